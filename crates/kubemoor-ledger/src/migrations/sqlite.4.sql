-- How many equal refusals within the minute after it have no row of their own.
ALTER TABLE entries ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0;
