-- A lease request is stored from when it begins to wait. `result` is the lease as it was granted, `refusal` why it got
-- none, `place` where it stands in line: an open one's, and one's that the node's restart has failed, until whoever has
-- its ticket has taken it over. Those of before were stored when they were granted.
CREATE TABLE new_request (
    id              TEXT PRIMARY KEY,
    requester       TEXT NOT NULL,
    idempotency_key TEXT,
    fingerprint     TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('open', 'granted', 'failed', 'cancelled')),
    created_at      INTEGER NOT NULL,
    result          TEXT,
    expires_at      INTEGER,
    refusal         TEXT,
    place           TEXT,
    settled_at      INTEGER,
    ended_at        INTEGER,
    end_reason      TEXT,
    CHECK ((state = 'open') = (settled_at IS NULL)),
    CHECK ((state = 'granted') = (result IS NOT NULL)),
    CHECK ((result IS NULL) = (expires_at IS NULL)),
    CHECK ((state IN ('failed', 'cancelled')) = (refusal IS NOT NULL)),
    CHECK (state = 'granted' OR (settled_at IS ended_at AND end_reason IS NULL))
) STRICT;
INSERT INTO new_request (id, requester, idempotency_key, fingerprint, state, created_at, result, expires_at, settled_at,
                         ended_at)
SELECT id, requester, idempotency_key, fingerprint, 'granted', settled_at, result, expires_at, settled_at, ended_at
FROM request;
DROP TABLE request;
ALTER TABLE new_request RENAME TO request;

-- An operator may take a resource out.
ALTER TABLE resource ADD COLUMN drained INTEGER NOT NULL DEFAULT 0 CHECK (drained IN (0, 1));

-- The unattended waiters of a resource. A lease id that one claimed is not kept, and neither is when it was last seen.
-- `run` and `arrival` are its place in the order of joining.
CREATE TABLE waiter (
    resource_id TEXT NOT NULL REFERENCES resource (id),
    holder      TEXT NOT NULL,
    mode        TEXT NOT NULL CHECK (mode IN ('exclusive', 'shared')),
    priority    REAL NOT NULL,
    run         INTEGER NOT NULL,
    arrival     INTEGER NOT NULL,
    joined_at   INTEGER NOT NULL,
    ttl_ms      INTEGER NOT NULL CHECK (ttl_ms > 0),
    note        TEXT,
    PRIMARY KEY (resource_id, holder)
) STRICT, WITHOUT ROWID;

-- For whom a resource is kept, and how long; a start counts the whole of it again.
CREATE TABLE reservation (
    resource_id TEXT NOT NULL REFERENCES resource (id),
    holder      TEXT NOT NULL,
    mode        TEXT NOT NULL CHECK (mode IN ('exclusive', 'shared')),
    width_ms    INTEGER NOT NULL CHECK (width_ms > 0),
    PRIMARY KEY (resource_id, holder)
) STRICT, WITHOUT ROWID;

-- What happened. `seq` never repeats, not even after the newest has been pruned; `owner` is the principal of this node
-- that may read it as its own.
CREATE TABLE event (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    id       TEXT NOT NULL,
    at       INTEGER NOT NULL,
    event    TEXT NOT NULL,
    owner    TEXT,
    lease_id TEXT,
    payload  TEXT NOT NULL
) STRICT;
CREATE INDEX event_of_owner ON event (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX event_of_lease ON event (lease_id, seq) WHERE lease_id IS NOT NULL;
