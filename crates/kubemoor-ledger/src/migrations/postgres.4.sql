-- Entries become partitions by month, in three versions, while guards of before go on writing: this one prepares,
-- the next one reads all rows under no lock that keeps anybody from writing, the last one changes names.
-- A long query of somebody else is no reason to keep writers waiting behind this: the guard tries again.
SET LOCAL lock_timeout = '5s';
LOCK TABLE entries IN ACCESS EXCLUSIVE MODE;

-- `keeps` is the lowest id that the cluster's guard kept when it last looked for old rows, `age` the seconds for which
-- it keeps them.
ALTER TABLE clusters ADD COLUMN keeps BIGINT, ADD COLUMN age BIGINT;

-- Which row is the one of all that are the same: no index over partitions by id can say that.
CREATE TABLE entry_marks (
    cluster SMALLINT NOT NULL,
    same BIGINT NOT NULL,
    id BIGINT NOT NULL,
    PRIMARY KEY (cluster, same)
);

CREATE INDEX entry_marks_time ON entry_marks (cluster, id);

-- Rows of after the last month that there is: those of clocks that are ahead.
CREATE TABLE entries_ahead (LIKE entries);
ALTER TABLE entries_ahead ENABLE ROW LEVEL SECURITY;

-- The rows of before, and those until the month after next begins, will be one partition, which this proves.
DO $$
DECLARE
    month TIMESTAMP := date_trunc('month', now() AT TIME ZONE 'UTC') + interval '2 months';
    beyond BIGINT := (extract(epoch FROM month)::bigint * 1000000 - 1577836800000000) << 12;
BEGIN
    WITH moved AS (
        DELETE FROM entries USING clusters
        WHERE entries.cluster = clusters.id AND entries.id >= beyond RETURNING entries.*
    )
    INSERT INTO entries_ahead SELECT * FROM moved;
    EXECUTE format('ALTER TABLE entries ADD CONSTRAINT entries_until CHECK (id < %s) NOT VALID', beyond);
END
$$;

-- Guards of before write no marks.
CREATE FUNCTION entries_mark() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entry_marks (cluster, same, id) VALUES (NEW.cluster, NEW.same, NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE TRIGGER entries_mark AFTER INSERT ON entries
FOR EACH ROW WHEN (NEW.same IS NOT NULL) EXECUTE FUNCTION entries_mark();
