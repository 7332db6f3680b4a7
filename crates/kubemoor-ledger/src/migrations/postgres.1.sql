-- `keeps` is the lowest id that the cluster's guard kept when it last looked for old rows, `age` the seconds for which
-- it keeps them.
CREATE TABLE clusters (
    id SMALLINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name TEXT NOT NULL UNIQUE,
    keeps BIGINT,
    age BIGINT
);

CREATE TABLE sealing_key (
    id SMALLINT PRIMARY KEY CHECK (id = 1),
    bytes BYTEA NOT NULL
);

-- One row per verdict, record transition, repair, allowance and act.
-- `id` is microseconds since 2020-01-01 UTC, shifted left by 12, plus the tag of the guard that wrote the row: it orders
-- rows by time. `cluster` is one of `clusters`, whose rows nobody deletes. `same` is set where every guard of a cluster
-- sees the same: a hash of what makes it the same. `facts` is what an edit did, as JSON: by that other policies can judge
-- it. `repeats` is how many equal refusals within the minute after it have no row of their own.
CREATE TABLE entries (
    id BIGINT NOT NULL,
    revision BIGINT,
    more_fields BIGINT NOT NULL,
    same BIGINT,
    cluster SMALLINT NOT NULL,
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
    uid TEXT NOT NULL,
    facts TEXT,
    repeats BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (cluster, id)
) PARTITION BY RANGE (id);

CREATE INDEX entries_namespace ON entries (cluster, namespace, id);
CREATE INDEX entries_release ON entries (cluster, release, id);
CREATE INDEX entries_user ON entries (cluster, user_name, id);
CREATE INDEX entries_verdict ON entries (cluster, verdict, id);
CREATE INDEX entries_operation ON entries (cluster, operation, id);
-- Objects of other kinds are passed over without being read.
CREATE INDEX entries_object ON entries (cluster, object_name, id, object_kind);

-- Rows from before this month, and rows from after the last month that there is: those of clocks that are ahead. The
-- guards create the months between them.
DO $$
DECLARE
    month BIGINT := (extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC'))::bigint * 1000000
        - 1577836800000000) << 12;
BEGIN
    EXECUTE format('CREATE TABLE entries_before PARTITION OF entries FOR VALUES FROM (MINVALUE) TO (%s)', month);
    EXECUTE format('CREATE TABLE entries_ahead PARTITION OF entries FOR VALUES FROM (%s) TO (MAXVALUE)', month);
END
$$;

-- Policies apply to `entries`. A role that reads a partition directly sees no row, whatever it is granted.
ALTER TABLE entries_before ENABLE ROW LEVEL SECURITY;
ALTER TABLE entries_ahead ENABLE ROW LEVEL SECURITY;

-- Which row is the one of all that are the same: no index over partitions by id can say that.
CREATE TABLE entry_marks (
    cluster SMALLINT NOT NULL,
    same BIGINT NOT NULL,
    id BIGINT NOT NULL,
    PRIMARY KEY (cluster, same)
);

CREATE INDEX entry_marks_time ON entry_marks (cluster, id);

CREATE VIEW ledger AS
SELECT
    to_timestamp((entries.id >> 12) / 1000000.0 + 1577836800) AS time,
    clusters.name AS cluster,
    entries.kind, entries.namespace, entries.release, entries.revision,
    entries.object_group, entries.object_kind, entries.object_namespace, entries.object_name,
    entries.operation, entries.user_name, entries.user_groups,
    entries.verdict, entries.reason, entries.detail, entries.fields, entries.more_fields,
    entries.uid, entries.id
FROM entries JOIN clusters ON clusters.id = entries.cluster;

-- How the releases of all clusters stand: one row per cluster and release, written when it changes.
-- Who keeps the rows of a cluster is heard of every 30 seconds. Times are those of this server.
CREATE TABLE guards (
    cluster SMALLINT PRIMARY KEY REFERENCES clusters (id),
    version TEXT NOT NULL,
    certificate_until TIMESTAMPTZ,
    heard TIMESTAMPTZ NOT NULL
);

-- `reason` is the state in one word. `values_hash` tells the values that the user gave from others, under the key
-- of this ledger. `since` is when the release came into this state.
CREATE TABLE releases (
    cluster SMALLINT NOT NULL REFERENCES clusters (id),
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision BIGINT NOT NULL,
    declared BIGINT NOT NULL,
    drifted BIGINT NOT NULL,
    oldest_drift TIMESTAMPTZ,
    since TIMESTAMPTZ NOT NULL,
    ready TEXT NOT NULL,
    reason TEXT NOT NULL,
    status TEXT NOT NULL,
    chart TEXT,
    values_hash TEXT,
    edits TEXT NOT NULL,
    drift TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (cluster, namespace, name)
);

CREATE INDEX releases_name ON releases (name, namespace);

CREATE VIEW fleet AS
SELECT
    clusters.name AS cluster, releases.namespace, releases.name AS release, releases.ready, releases.reason,
    releases.since, releases.revision, releases.status, releases.chart, releases.values_hash,
    releases.declared, releases.drifted, releases.oldest_drift, releases.edits, releases.drift, releases.message,
    guards.version AS guard_version, guards.certificate_until, guards.heard,
    CASE WHEN guards.heard < now() - interval '2 minutes' THEN guards.heard END AS stale_since
FROM releases JOIN clusters ON clusters.id = releases.cluster JOIN guards ON guards.cluster = releases.cluster;
