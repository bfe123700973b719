-- A requester may choose its lease id; a lease from before that was possible did not have its id chosen.
ALTER TABLE lease ADD COLUMN id_chosen_by_requester INTEGER NOT NULL DEFAULT 0 CHECK (id_chosen_by_requester IN (0, 1));
