-- One row per verdict, record transition, repair and allowance.
-- `id` is microseconds since 2020-01-01 UTC, shifted left by 12, plus the tag of
-- the guard that wrote the row: it orders rows by time.
CREATE TABLE clusters (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE sealing_key (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bytes BLOB NOT NULL
);

-- `cluster` is one of `clusters`, whose rows nobody deletes. The keys are hashes of
-- the names beside them: indexes hold them in place of the names, and a query
-- that finds a key compares the name as well. `same` is set where every guard of a
-- cluster sees the same: a hash of what makes it the same.
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    revision INTEGER,
    more_fields INTEGER NOT NULL,
    same INTEGER,
    namespace_key INTEGER NOT NULL,
    release_key INTEGER,
    user_key INTEGER NOT NULL,
    verdict_key INTEGER NOT NULL,
    cluster INTEGER NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    release TEXT,
    object_group TEXT NOT NULL,
    object_kind TEXT NOT NULL,
    object_namespace TEXT,
    object_name TEXT NOT NULL,
    operation TEXT,
    user_name TEXT NOT NULL,
    user_groups TEXT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    fields TEXT NOT NULL,
    uid TEXT NOT NULL
);

CREATE INDEX entries_time ON entries (cluster);
CREATE UNIQUE INDEX entries_same ON entries (cluster, same) WHERE same IS NOT NULL;

-- Each holds the other keys as well, so that rows which one more filter drops are
-- dropped without being read.
CREATE INDEX entries_release ON entries (cluster, release_key, id, namespace_key, user_key, verdict_key);
CREATE INDEX entries_namespace ON entries (cluster, namespace_key, id, release_key, user_key, verdict_key);
CREATE INDEX entries_user ON entries (cluster, user_key, id, namespace_key, release_key, verdict_key);
CREATE INDEX entries_verdict ON entries (cluster, verdict_key, id, namespace_key, release_key, user_key);

CREATE VIEW ledger AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', (entries.id >> 12) / 1000000.0 + 1577836800, 'unixepoch') AS time,
    clusters.name AS cluster,
    entries.kind, entries.namespace, entries.release, entries.revision,
    entries.object_group, entries.object_kind, entries.object_namespace, entries.object_name,
    entries.operation, entries.user_name, entries.user_groups,
    entries.verdict, entries.reason, entries.detail, entries.fields, entries.more_fields,
    entries.uid, entries.id
FROM entries JOIN clusters ON clusters.id = entries.cluster;
