CREATE TABLE clusters (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE sealing_key (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bytes BLOB NOT NULL
);

-- One row per verdict, record transition, repair, allowance and act.
-- `id` is microseconds since 2020-01-01 UTC, shifted left by 12, plus the tag of the guard that wrote the row: it orders
-- rows by time. `cluster` is one of `clusters`, whose rows nobody deletes. `same` is set where every guard of a cluster
-- sees the same: a hash of what makes it the same. `facts` is what an edit did, as JSON: by that other policies can judge
-- it. `repeats` is how many equal refusals within the minute after it have no row of their own.
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    cluster INTEGER NOT NULL,
    same INTEGER,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    release TEXT,
    revision INTEGER,
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
    more_fields INTEGER NOT NULL,
    repeats INTEGER NOT NULL DEFAULT 0,
    uid TEXT NOT NULL,
    facts TEXT
);

-- Behind the columns of an index comes the id.
CREATE INDEX entries_time ON entries (cluster);
CREATE UNIQUE INDEX entries_same ON entries (cluster, same) WHERE same IS NOT NULL;
-- For a search by two names SQLite, which has no statistics here, takes the later index: that of the rarer name.
CREATE INDEX entries_operation ON entries (cluster, operation);
CREATE INDEX entries_verdict ON entries (cluster, verdict);
CREATE INDEX entries_namespace ON entries (cluster, namespace);
CREATE INDEX entries_release ON entries (cluster, release);
CREATE INDEX entries_user ON entries (cluster, user_name);
CREATE INDEX entries_object ON entries (cluster, object_name);

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
