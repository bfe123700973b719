-- What is done to a device around its leases. A resource whose device was never touched has no row. `of_…` is the lease
-- that it is about: the one to come while it is prepared, the last one after that. `claimed` is the fence of the latest
-- claim, which is spent also where no lease has come of it. `identity` is what tells the device from every other.
CREATE TABLE device (
    resource_id      TEXT PRIMARY KEY REFERENCES resource (id),
    work             TEXT NOT NULL CHECK (work IN ('none', 'preparing', 'resetting', 'quarantined')),
    of_lease         TEXT,
    of_holder        TEXT,
    of_fence         INTEGER,
    fault            TEXT CHECK (fault IN ('reset', 'health')),
    why              TEXT,
    tries            INTEGER,
    claimed          INTEGER NOT NULL DEFAULT 0,
    cooling_until    INTEGER,
    cooling_width_ms INTEGER,
    failure          TEXT,
    identity         TEXT,
    CHECK ((of_lease IS NULL) = (of_holder IS NULL) AND (of_lease IS NULL) = (of_fence IS NULL)),
    CHECK (work NOT IN ('preparing', 'resetting') OR of_lease IS NOT NULL),
    CHECK ((work = 'quarantined') = (fault IS NOT NULL) AND (fault IS NULL) = (why IS NULL)
           AND (fault IS NULL) = (tries IS NULL)),
    CHECK ((cooling_until IS NULL) = (cooling_width_ms IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER no_lease_on_a_device_that_is_not_ready BEFORE INSERT ON lease
WHEN EXISTS (SELECT 1 FROM device WHERE resource_id = NEW.resource_id AND work <> 'none')
BEGIN
    SELECT RAISE(ABORT, 'no_lease_on_a_device_that_is_not_ready');
END;

CREATE TRIGGER no_work_on_a_leased_device BEFORE UPDATE OF work ON device
WHEN NEW.work <> 'none' AND EXISTS (SELECT 1 FROM lease WHERE resource_id = NEW.resource_id)
BEGIN
    SELECT RAISE(ABORT, 'no_work_on_a_leased_device');
END;

CREATE TRIGGER no_first_work_on_a_leased_device BEFORE INSERT ON device
WHEN NEW.work <> 'none' AND EXISTS (SELECT 1 FROM lease WHERE resource_id = NEW.resource_id)
BEGIN
    SELECT RAISE(ABORT, 'no_first_work_on_a_leased_device');
END;
