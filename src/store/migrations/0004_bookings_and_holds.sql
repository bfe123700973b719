-- Why no new holds are made on the whole node, a reason on each line: 'admin', 'gateway', or what the node has found in
-- here. Null: they are made.
ALTER TABLE node ADD COLUMN holds_paused TEXT;
-- The same of one resource, where only an operator says so.
ALTER TABLE resource ADD COLUMN holds_paused INTEGER NOT NULL DEFAULT 0 CHECK (holds_paused IN (0, 1));

-- The width that a lease was asked for, where a booking has cut it.
ALTER TABLE lease ADD COLUMN asked_ttl_ms INTEGER CHECK (asked_ttl_ms > 0);

-- Windows on a resource, from `starts_at` up to and without `ends_at`. `claims` while nobody else can have the window.
CREATE TABLE booking (
    id          TEXT PRIMARY KEY,
    resource_id TEXT NOT NULL REFERENCES resource (id),
    holder      TEXT NOT NULL,
    starts_at   INTEGER NOT NULL,
    ends_at     INTEGER NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('scheduled', 'cancelled', 'fulfilled', 'missed')),
    claims      INTEGER NOT NULL CHECK (claims IN (0, 1)),
    note        TEXT,
    lease_id    TEXT,
    series_id   TEXT,
    created_at  INTEGER NOT NULL,
    settled_at  INTEGER,
    CHECK (starts_at < ends_at),
    CHECK (claims = 1 OR status <> 'scheduled'),
    CHECK (claims = 0 OR status IN ('scheduled', 'fulfilled')),
    CHECK ((status = 'scheduled') = (settled_at IS NULL))
) STRICT;
CREATE INDEX booking_of_resource ON booking (resource_id);

-- Short claims on a slot. A hold and its expiry are one row. Of the token only its SHA-256 is kept.
CREATE TABLE hold (
    id              TEXT PRIMARY KEY,
    resource_id     TEXT NOT NULL REFERENCES resource (id),
    holder          TEXT NOT NULL,
    starts_at       INTEGER NOT NULL,
    ends_at         INTEGER NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('active', 'confirmed', 'released', 'expired')),
    ttl_ms          INTEGER NOT NULL CHECK (ttl_ms > 0),
    expires_at      INTEGER NOT NULL,
    token_hash      BLOB NOT NULL CHECK (length(token_hash) = 32),
    idempotency_key TEXT,
    booking_id      TEXT,
    created_at      INTEGER NOT NULL,
    settled_at      INTEGER,
    CHECK (starts_at < ends_at),
    CHECK ((status = 'active') = (settled_at IS NULL)),
    CHECK ((status = 'confirmed') = (booking_id IS NOT NULL))
) STRICT;
CREATE INDEX hold_of_resource ON hold (resource_id);

-- The invariants, repeated as the last guard: no slot is claimed twice, by a booking or an active hold.
CREATE UNIQUE INDEX one_booking_for_a_slot ON booking (resource_id, starts_at) WHERE claims = 1;
CREATE UNIQUE INDEX one_hold_for_a_slot ON hold (resource_id, starts_at) WHERE status = 'active';

-- Nor is a part of it. Those that are there do not overlap, so among those that start before the new window ends, the
-- last is the only one that can reach into it: one look-up in an index, however many there are.
CREATE TRIGGER no_booking_over_another BEFORE INSERT ON booking
WHEN NEW.claims = 1
 AND (SELECT ends_at FROM booking
      WHERE resource_id = NEW.resource_id AND claims = 1 AND starts_at < NEW.ends_at
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_booking_over_another');
END;

CREATE TRIGGER no_booking_over_a_hold BEFORE INSERT ON booking
WHEN NEW.claims = 1
 AND (SELECT ends_at FROM hold
      WHERE resource_id = NEW.resource_id AND status = 'active' AND starts_at < NEW.ends_at
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_booking_over_a_hold');
END;

CREATE TRIGGER no_booking_moves_over_another BEFORE UPDATE OF resource_id, starts_at, ends_at, claims ON booking
WHEN NEW.claims = 1
 AND (SELECT ends_at FROM booking
      WHERE resource_id = NEW.resource_id AND claims = 1 AND starts_at < NEW.ends_at AND id <> OLD.id
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_booking_moves_over_another');
END;

CREATE TRIGGER no_booking_moves_over_a_hold BEFORE UPDATE OF resource_id, starts_at, ends_at, claims ON booking
WHEN NEW.claims = 1
 AND (SELECT ends_at FROM hold
      WHERE resource_id = NEW.resource_id AND status = 'active' AND starts_at < NEW.ends_at
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_booking_moves_over_a_hold');
END;

CREATE TRIGGER no_hold_over_another BEFORE INSERT ON hold
WHEN NEW.status = 'active'
 AND (SELECT ends_at FROM hold
      WHERE resource_id = NEW.resource_id AND status = 'active' AND starts_at < NEW.ends_at
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_hold_over_another');
END;

CREATE TRIGGER no_hold_over_a_booking BEFORE INSERT ON hold
WHEN NEW.status = 'active'
 AND (SELECT ends_at FROM booking
      WHERE resource_id = NEW.resource_id AND claims = 1 AND starts_at < NEW.ends_at
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_hold_over_a_booking');
END;

CREATE TRIGGER no_hold_moves_over_another BEFORE UPDATE OF resource_id, starts_at, ends_at, status ON hold
WHEN NEW.status = 'active'
 AND (SELECT ends_at FROM hold
      WHERE resource_id = NEW.resource_id AND status = 'active' AND starts_at < NEW.ends_at AND id <> OLD.id
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_hold_moves_over_another');
END;

CREATE TRIGGER no_hold_moves_over_a_booking BEFORE UPDATE OF resource_id, starts_at, ends_at, status ON hold
WHEN NEW.status = 'active'
 AND (SELECT ends_at FROM booking
      WHERE resource_id = NEW.resource_id AND claims = 1 AND starts_at < NEW.ends_at
      ORDER BY starts_at DESC LIMIT 1) > NEW.starts_at
BEGIN
    SELECT RAISE(ABORT, 'no_hold_moves_over_a_booking');
END;
