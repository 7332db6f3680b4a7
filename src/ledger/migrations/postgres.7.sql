-- For the rows of one object: there are few, and without an index all rows of the cluster are read for them. Building
-- it takes long where there are many rows, and nobody could write meanwhile: partitions without rows have it, and those
-- that are made from here on.
SET LOCAL lock_timeout = '5s';

CREATE INDEX entries_object ON ONLY entries (cluster, object_name, id);

DO $$
DECLARE
    part REGCLASS;
    part_name NAME;
    has_rows BOOLEAN;
BEGIN
    FOR part, part_name IN
        SELECT pg_class.oid, relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'entries'::regclass
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO has_rows;
        IF NOT has_rows THEN
            EXECUTE format('CREATE INDEX %I ON %s (cluster, object_name, id)', part_name || '_object', part);
            EXECUTE format('ALTER INDEX entries_object ATTACH PARTITION %I', part_name || '_object');
        END IF;
    END LOOP;
END
$$;
