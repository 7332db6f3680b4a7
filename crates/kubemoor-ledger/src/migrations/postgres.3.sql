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
