-- 1 while an operator has taken the whole worker out, at its gateway.
ALTER TABLE node ADD COLUMN drained INTEGER NOT NULL DEFAULT 0 CHECK (drained IN (0, 1));
