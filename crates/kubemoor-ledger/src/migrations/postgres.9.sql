-- The indexes hold the names themselves, in place of their hashes. Building them takes long where there are many rows, and
-- nobody could write meanwhile: the guard builds those of the partitions that there are afterwards, while everybody writes.
SET LOCAL lock_timeout = '5s';
LOCK TABLE entries IN ACCESS EXCLUSIVE MODE;

DROP INDEX entries_release, entries_namespace, entries_user, entries_verdict, entries_user_release,
    entries_user_namespace, entries_object, entries_object_user, entries_operation, entries_pair,
    entries_release_verdict, entries_user_verdict;

DO $$
DECLARE
    has_rows BOOLEAN := EXISTS (SELECT FROM entries);
    name TEXT;
    columns TEXT;
BEGIN
    FOR name, columns IN VALUES
        ('namespace', 'namespace, id'),
        ('release', 'release, id'),
        ('user', 'user_name, id'),
        ('verdict', 'verdict, id'),
        ('operation', 'operation, id'),
        -- Objects of other kinds are passed over without being read.
        ('object', 'object_name, id, object_kind')
    LOOP
        EXECUTE format(
            'CREATE INDEX entries_%s ON %s entries (cluster, %s)',
            name, CASE WHEN has_rows THEN 'ONLY' END, columns
        );
    END LOOP;
    -- Guards of before that share the ledger go on writing hashes. A new ledger has none.
    IF has_rows THEN
        ALTER TABLE entries
            ALTER COLUMN namespace_key DROP NOT NULL,
            ALTER COLUMN user_key DROP NOT NULL,
            ALTER COLUMN verdict_key DROP NOT NULL;
    ELSE
        ALTER TABLE entries
            DROP COLUMN namespace_key, DROP COLUMN release_key, DROP COLUMN user_key, DROP COLUMN verdict_key;
    END IF;
END
$$;
