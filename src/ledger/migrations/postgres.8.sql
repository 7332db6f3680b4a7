-- For deletions and creations: there are few among many updates, and without an index all rows of the cluster are read
-- for them. For a namespace and a release together: both may be frequent where the pair is not. Building them takes long
-- where there are many rows, and nobody could write meanwhile: partitions without rows have them, and those that are
-- made from here on.
SET LOCAL lock_timeout = '5s';

CREATE INDEX entries_operation ON ONLY entries (cluster, operation, id) WHERE operation IN ('CREATE', 'DELETE');
CREATE INDEX entries_pair ON ONLY entries (cluster, namespace_key, release_key, id, user_key, verdict_key);

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
            EXECUTE format(
                'CREATE INDEX %I ON %s (cluster, operation, id) WHERE operation IN (''CREATE'', ''DELETE'')',
                part_name || '_operation', part
            );
            EXECUTE format('ALTER INDEX entries_operation ATTACH PARTITION %I', part_name || '_operation');
            EXECUTE format(
                'CREATE INDEX %I ON %s (cluster, namespace_key, release_key, id, user_key, verdict_key)',
                part_name || '_pair', part
            );
            EXECUTE format('ALTER INDEX entries_pair ATTACH PARTITION %I', part_name || '_pair');
        END IF;
    END LOOP;
END
$$;
