-- Times are Unix microseconds of wall time.

-- Facts of the node itself: how often it has started, and which group of batches was committed last.
CREATE TABLE node (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    incarnation INTEGER NOT NULL,
    last_group  INTEGER NOT NULL
) STRICT;
INSERT INTO node VALUES (1, 0, 0);

-- What outlives a resource's leases.
CREATE TABLE resource (
    id         TEXT PRIMARY KEY,
    fence      INTEGER NOT NULL,
    idle_since INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
    id              TEXT PRIMARY KEY,
    request_id      TEXT NOT NULL UNIQUE,
    resource_id     TEXT NOT NULL REFERENCES resource (id),
    mode            TEXT NOT NULL CHECK (mode IN ('exclusive', 'shared')),
    holder          TEXT NOT NULL,
    granted_at      INTEGER NOT NULL,
    renewed_at      INTEGER NOT NULL,
    ttl_ms          INTEGER NOT NULL CHECK (ttl_ms > 0),
    expires_at      INTEGER NOT NULL,
    fence           INTEGER NOT NULL,
    note            TEXT,
    idempotency_key TEXT,
    fingerprint     TEXT NOT NULL
) STRICT;
CREATE INDEX lease_of_resource ON lease (resource_id);

-- A granted request, kept for replays until its retention is over. `result` is the lease as it was granted.
CREATE TABLE request (
    id              TEXT PRIMARY KEY,
    requester       TEXT NOT NULL,
    idempotency_key TEXT,
    fingerprint     TEXT NOT NULL,
    result          TEXT NOT NULL,
    expires_at      INTEGER NOT NULL,
    settled_at      INTEGER NOT NULL,
    ended_at        INTEGER
) STRICT;

-- The invariants, repeated as the last guard. Whoever is stopped by one of these has found a bug.
CREATE UNIQUE INDEX one_exclusive_lease ON lease (resource_id) WHERE mode = 'exclusive';

CREATE TRIGGER no_lease_beside_an_exclusive_one BEFORE INSERT ON lease
WHEN EXISTS (SELECT 1 FROM lease
             WHERE resource_id = NEW.resource_id AND (mode = 'exclusive' OR NEW.mode = 'exclusive'))
BEGIN
    SELECT RAISE(ABORT, 'no_lease_beside_an_exclusive_one');
END;

CREATE TRIGGER a_grant_raises_the_fence BEFORE INSERT ON lease
WHEN NEW.fence <= (SELECT fence FROM resource WHERE id = NEW.resource_id)
BEGIN
    SELECT RAISE(ABORT, 'a_grant_raises_the_fence');
END;

CREATE TRIGGER the_fence_never_falls BEFORE UPDATE OF fence ON resource
WHEN NEW.fence < OLD.fence
BEGIN
    SELECT RAISE(ABORT, 'the_fence_never_falls');
END;

CREATE TRIGGER a_resource_keeps_its_fence BEFORE DELETE ON resource
BEGIN
    SELECT RAISE(ABORT, 'a_resource_keeps_its_fence');
END;
