-- The table of before becomes the first partition of a new one, as it is. Who may read it, and which rows, is the
-- same for the new one. Partitions themselves nobody else reads.
SET LOCAL lock_timeout = '5s';
LOCK TABLE entries IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER entries_mark ON entries;
DROP FUNCTION entries_mark();
DROP INDEX entries_same;

DO $$
DECLARE
    before OID := 'entries'::regclass;
    tables_owner NAME;
    secured BOOLEAN;
    forced BOOLEAN;
    views_options TEXT;
    policies TEXT[];
    grants TEXT[];
    month BIGINT;
    is_new BOOLEAN;
    command TEXT;
BEGIN
    SELECT pg_get_userbyid(relowner), relrowsecurity, relforcerowsecurity INTO tables_owner, secured, forced
    FROM pg_class WHERE oid = before;
    SELECT 'WITH (' || array_to_string(reloptions, ', ') || ')' INTO views_options
    FROM pg_class WHERE oid = 'ledger'::regclass;
    -- With the names that expressions have as long as the table has its own.
    SELECT array_agg(format(
        'CREATE POLICY %I ON entries AS %s FOR %s TO %s%s%s', polname,
        CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
        CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
            ELSE 'ALL' END,
        (SELECT string_agg(CASE WHEN role = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(role)) END, ', ')
            FROM unnest(polroles) AS role),
        ' USING (' || pg_get_expr(polqual, before) || ')',
        ' WITH CHECK (' || pg_get_expr(polwithcheck, before) || ')'
    )) INTO policies FROM pg_policy WHERE polrelid = before;
    SELECT array_agg(format(
        'GRANT %s%s ON entries TO %s%s', privilege_type, columns,
        CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
        CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END
    )) INTO grants FROM (
        SELECT acl.*, '' AS columns FROM pg_class, aclexplode(relacl) AS acl
        WHERE oid = before AND acl.grantee <> relowner
        UNION ALL
        SELECT acl.*, format(' (%I)', attname) FROM pg_attribute, aclexplode(attacl) AS acl
        WHERE attrelid = before AND NOT attisdropped
    ) AS granted;
    SELECT substring(pg_get_constraintdef(oid) FROM '[0-9]+')::bigint INTO STRICT month
    FROM pg_constraint WHERE conrelid = before AND conname = 'entries_until';
    -- A new ledger has its months from this one on.
    is_new := NOT EXISTS (SELECT FROM entries) AND NOT EXISTS (SELECT FROM entries_ahead);
    IF is_new THEN
        month := (extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC'))::bigint * 1000000
            - 1577836800000000) << 12;
    END IF;

    ALTER TABLE entries RENAME TO entries_before;
    ALTER INDEX entries_pkey RENAME TO entries_before_pkey;
    ALTER INDEX entries_release RENAME TO entries_before_release;
    ALTER INDEX entries_namespace RENAME TO entries_before_namespace;
    ALTER INDEX entries_user RENAME TO entries_before_user;
    ALTER INDEX entries_verdict RENAME TO entries_before_verdict;
    CREATE TABLE entries (LIKE entries_before, PRIMARY KEY (cluster, id)) PARTITION BY RANGE (id);
    CREATE INDEX entries_release ON entries (cluster, release_key, id, namespace_key, user_key, verdict_key);
    CREATE INDEX entries_namespace ON entries (cluster, namespace_key, id, release_key, user_key, verdict_key);
    CREATE INDEX entries_user ON entries (cluster, user_key, id, namespace_key, release_key, verdict_key);
    CREATE INDEX entries_verdict ON entries (cluster, verdict_key, id, namespace_key, release_key, user_key);
    EXECUTE format('ALTER TABLE entries ATTACH PARTITION entries_before FOR VALUES FROM (MINVALUE) TO (%s)', month);
    -- For two names that are both frequent and hardly ever together. Building them takes long where there are many
    -- rows, and nobody could write meanwhile: partitions that are made or attached from here on have them.
    IF is_new THEN
        CREATE INDEX entries_user_release
            ON entries (cluster, user_key, release_key, id, namespace_key, verdict_key);
        CREATE INDEX entries_user_namespace
            ON entries (cluster, user_key, namespace_key, id, release_key, verdict_key);
    ELSE
        CREATE INDEX entries_user_release
            ON ONLY entries (cluster, user_key, release_key, id, namespace_key, verdict_key);
        CREATE INDEX entries_user_namespace
            ON ONLY entries (cluster, user_key, namespace_key, id, release_key, verdict_key);
    END IF;
    EXECUTE format('ALTER TABLE entries ATTACH PARTITION entries_ahead FOR VALUES FROM (%s) TO (MAXVALUE)', month);
    ALTER TABLE entries_before DROP CONSTRAINT entries_until;

    -- What the defaults of the schema grant is not what was granted.
    FOR command IN
        SELECT format('REVOKE ALL ON %s FROM %s', relation::regclass,
            CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
        FROM (
            SELECT oid AS relation, (aclexplode(relacl)).grantee FROM pg_class
            UNION
            SELECT attrelid, (aclexplode(attacl)).grantee FROM pg_attribute WHERE NOT attisdropped
        ) AS granted
        WHERE relation IN ('entries'::regclass, before, 'entries_ahead'::regclass, 'entry_marks'::regclass)
            AND pg_get_userbyid(grantee) <> tables_owner
    LOOP
        EXECUTE command;
    END LOOP;
    FOREACH command IN ARRAY coalesce(grants, '{}') LOOP
        EXECUTE command;
    END LOOP;
    FOREACH command IN ARRAY coalesce(policies, '{}') LOOP
        EXECUTE command;
    END LOOP;
    IF secured THEN
        ALTER TABLE entries ENABLE ROW LEVEL SECURITY;
    END IF;
    IF forced THEN
        ALTER TABLE entries FORCE ROW LEVEL SECURITY;
    END IF;
    FOR command IN SELECT format('DROP POLICY %I ON entries_before', polname) FROM pg_policy WHERE polrelid = before LOOP
        EXECUTE command;
    END LOOP;
    ALTER TABLE entries_before ENABLE ROW LEVEL SECURITY;
    ALTER TABLE entries_before NO FORCE ROW LEVEL SECURITY;
    IF tables_owner <> current_user THEN
        EXECUTE format('ALTER TABLE entries OWNER TO %I', tables_owner);
        EXECUTE format('ALTER TABLE entries_ahead OWNER TO %I', tables_owner);
        EXECUTE format('ALTER TABLE entry_marks OWNER TO %I', tables_owner);
    END IF;

    -- It has read the table of before by its identity. Its columns, owner and grants stay.
    EXECUTE format('CREATE OR REPLACE VIEW ledger %s AS
        SELECT
            to_timestamp((entries.id >> 12) / 1000000.0 + 1577836800) AS time,
            clusters.name AS cluster,
            entries.kind, entries.namespace, entries.release, entries.revision,
            entries.object_group, entries.object_kind, entries.object_namespace, entries.object_name,
            entries.operation, entries.user_name, entries.user_groups,
            entries.verdict, entries.reason, entries.detail, entries.fields, entries.more_fields,
            entries.uid, entries.id
        FROM entries JOIN clusters ON clusters.id = entries.cluster', views_options);
END
$$;
