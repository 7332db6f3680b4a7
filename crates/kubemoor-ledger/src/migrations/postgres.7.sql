-- For the rows of one object: there are few, and without an index all rows of the cluster are read for them. It holds
-- what else a search may name, so that rows which one more filter drops are dropped without being read. For deletions
-- and creations: there are few among many updates. For pairs of names: both may be frequent where the pair is not.
-- Building them takes long where there are many rows, and nobody could write meanwhile: partitions without rows have them,
-- and those that are made from here on.
SET LOCAL lock_timeout = '5s';

DO $$
DECLARE
    index_name TEXT;
    columns TEXT;
    part REGCLASS;
    part_name NAME;
    has_rows BOOLEAN;
BEGIN
    FOR index_name, columns IN VALUES
        (
            'object',
            '(cluster, object_name, id, object_kind, object_group, namespace_key, release_key, user_key, verdict_key)'
        ),
        ('object_user', '(cluster, object_name, user_key, id)'),
        ('operation', '(cluster, operation, id) WHERE operation IN (''CREATE'', ''DELETE'')'),
        ('pair', '(cluster, namespace_key, release_key, id, user_key, verdict_key)'),
        ('release_verdict', '(cluster, release_key, verdict_key, id, namespace_key, user_key)'),
        ('user_verdict', '(cluster, user_key, verdict_key, id, namespace_key, release_key)')
    LOOP
        EXECUTE format('CREATE INDEX entries_%s ON ONLY entries %s', index_name, columns);
        FOR part, part_name IN
            SELECT pg_class.oid, relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'entries'::regclass
        LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO has_rows;
            IF NOT has_rows THEN
                EXECUTE format('CREATE INDEX %I ON %s %s', part_name || '_' || index_name, part, columns);
                EXECUTE format(
                    'ALTER INDEX entries_%s ATTACH PARTITION %I', index_name, part_name || '_' || index_name
                );
            END IF;
        END LOOP;
    END LOOP;
END
$$;
