-- Which run of the gateway this is; it grows with each start.
CREATE TABLE node (
    incarnation INTEGER NOT NULL
) STRICT;
INSERT INTO node (incarnation) VALUES (0);

-- What happened, in the order in which it was stored. `worker` and `worker_seq` say whose log a relayed event is from and
-- where it stands there; the gateway's own have none. `stored_at` is the gateway's time. `request_id` is there for its own
-- events about a lease request.
CREATE TABLE event (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    at         INTEGER NOT NULL,
    stored_at  INTEGER NOT NULL,
    event      TEXT NOT NULL,
    owner      TEXT,
    lease_id   TEXT,
    request_id TEXT,
    worker     TEXT,
    worker_seq INTEGER,
    payload    TEXT NOT NULL,
    CHECK ((worker IS NULL) = (worker_seq IS NULL)),
    CHECK (request_id IS NULL OR worker IS NULL)
) STRICT;
CREATE INDEX event_of_owner ON event (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX event_of_lease ON event (lease_id, seq) WHERE lease_id IS NOT NULL;
CREATE INDEX event_of_request ON event (request_id) WHERE request_id IS NOT NULL;

-- How far each worker's log is stored here.
CREATE TABLE relayed (
    worker TEXT PRIMARY KEY,
    seq    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Lease requests whose end is not told yet, and the worker that each was sent to last.
CREATE TABLE open_request (
    request_id TEXT PRIMARY KEY,
    requester  TEXT NOT NULL,
    spec       TEXT NOT NULL,
    worker     TEXT
) STRICT, WITHOUT ROWID;
