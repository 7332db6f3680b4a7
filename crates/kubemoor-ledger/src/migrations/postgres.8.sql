-- How many equal refusals within the minute after it have no row of their own. Rows of before are not read for it.
SET LOCAL lock_timeout = '5s';
ALTER TABLE entries ADD COLUMN repeats BIGINT NOT NULL DEFAULT 0;
