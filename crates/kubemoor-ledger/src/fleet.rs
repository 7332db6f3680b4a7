//! The states of releases in many clusters, as the guards store them in a shared PostgreSQL database: one row per
//! cluster and release. Times are the database's own, so that clocks of clusters need not agree. Of the user-supplied
//! chart values, only a keyed hash is stored.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder, Row as _};

use crate::entry::cut;
use crate::store::{ClusterNumber, DatabasePool, LONGEST, Store, StoreError};
use kubemoor_declare::model::ReleaseId;
use kubemoor_verdict::shown::SealingKey;

/// A cluster whose guard has not reported for this long is shown as stale. The view `fleet` uses the same value.
pub const STALE_AFTER: Duration = Duration::from_secs(120);

/// The state of one release in its guard's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetReleaseState {
    pub release: ReleaseId,
    pub revision: u64,
    pub declared: u64,
    pub drifted: u64,
    /// The start of the oldest drift.
    pub oldest_drift: Option<Timestamp>,
    /// `True`, `False` or `Unknown`.
    pub ready: &'static str,
    pub reason: &'static str,
    pub status: &'static str,
    /// The chart with its version.
    pub chart: Option<String>,
    /// SHA-256 of the user-supplied values; the database gets only its hash under the ledger's key.
    pub values: Option<[u8; 32]>,
    pub edits: String,
    pub drift: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardState {
    pub version: &'static str,
    pub certificate_until: Option<Timestamp>,
}

/// The filter on rows. An empty field matches all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFilter {
    pub clusters: Vec<String>,
    pub namespace: Option<String>,
    pub release: Option<String>,
}

/// A search for releases. Fields that are empty or false do not restrict it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSearch {
    pub filter: FleetFilter,
    /// Releases with one of these reasons, or that match one of the next two fields.
    pub reasons: Vec<String>,
    /// Releases with drift, whatever their reason.
    pub drifted: bool,
    /// Releases of stale clusters, whatever their reason.
    pub stale: bool,
    /// Each must occur in the namespace, name, chart or message.
    pub words: Vec<String>,
    pub order: FleetOrder,
    pub is_reversed: bool,
    pub offset: u32,
    pub limit: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FleetOrder {
    #[default]
    Name,
    Cluster,
    /// By reason: first these in this order, then others, `InSync` last.
    State(Vec<&'static str>),
    Drifted,
    Revision,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFound {
    pub releases: Vec<ReleaseRow>,
    /// The number of matches, counted up to [`COUNTED`] + 1.
    pub total: u64,
}

/// Matches beyond this number are not counted.
pub const COUNTED: u64 = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    pub cluster: String,
    pub states: BTreeMap<String, StateCount>,
    /// The start of the oldest drift.
    pub oldest_drift: Option<Timestamp>,
    pub version: String,
    /// When the guard's certificate expires.
    pub certificate_until: Option<Timestamp>,
    /// When the guard last reported.
    pub heard: Timestamp,
    pub is_stale: bool,
}

/// The releases of one cluster in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateCount {
    pub releases: u64,
    /// How many of them have objects that drifted.
    pub drifted: u64,
}

/// One release of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseRow {
    pub cluster: String,
    pub namespace: String,
    pub name: String,
    pub ready: Option<String>,
    pub reason: String,
    pub revision: Option<u64>,
    pub chart: Option<String>,
    /// Identifies the user-supplied values: equal in two clusters of the answer if their values are.
    pub values: Option<String>,
    pub drifted: u64,
    pub oldest_drift: Option<Timestamp>,
    pub edits: Option<String>,
    pub drift: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<Timestamp>,
    pub message: String,
    /// The columns in which the release differs between the clusters of the answer.
    pub differs: Vec<&'static str>,
    /// Since when it is in this state.
    #[serde(skip)]
    pub since: Timestamp,
}

/// Unchanged rows are not written.
const PUT: &str = "INSERT INTO releases AS old (namespace, name, revision, declared, drifted, oldest_drift, ready, \
     reason, status, chart, values_hash, edits, drift, message, cluster, since) \
     SELECT new.namespace, new.name, new.revision, new.declared, new.drifted, to_timestamp(new.oldest), new.ready, \
     new.reason, new.status, new.chart, new.values_hash, new.edits, new.drift, new.message, $15::int2, now() \
     FROM unnest($1::text[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::text[], $8::text[], \
     $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[]) AS new (namespace, name, revision, \
     declared, drifted, oldest, ready, reason, status, chart, values_hash, edits, drift, message) \
     ON CONFLICT (cluster, namespace, name) DO UPDATE SET revision = excluded.revision, \
     declared = excluded.declared, drifted = excluded.drifted, oldest_drift = excluded.oldest_drift, \
     ready = excluded.ready, reason = excluded.reason, status = excluded.status, chart = excluded.chart, \
     values_hash = excluded.values_hash, edits = excluded.edits, drift = excluded.drift, \
     message = excluded.message, since = CASE WHEN old.reason = excluded.reason THEN old.since ELSE now() END \
     WHERE (old.revision, old.declared, old.drifted, old.oldest_drift, old.ready, old.reason, old.status, old.chart, \
     old.values_hash, old.edits, old.drift, old.message) IS DISTINCT FROM (excluded.revision, excluded.declared, \
     excluded.drifted, excluded.oldest_drift, excluded.ready, excluded.reason, excluded.status, excluded.chart, \
     excluded.values_hash, excluded.edits, excluded.drift, excluded.message)";

const REMOVE: &str = "DELETE FROM releases USING unnest($1::text[], $2::text[]) AS gone (namespace, name) \
     WHERE releases.cluster = $3 AND releases.namespace = gone.namespace AND releases.name = gone.name";

const BEAT: &str = "INSERT INTO guards (cluster, version, certificate_until, heard) \
     VALUES ($1, $2, to_timestamp($3::int8), now()) ON CONFLICT (cluster) DO UPDATE SET \
     version = excluded.version, certificate_until = excluded.certificate_until, heard = excluded.heard";

const CLUSTERS: &str = "SELECT guards.cluster AS number, clusters.name, guards.version, \
     floor(extract(epoch FROM guards.certificate_until))::int8 AS certificate_until, \
     floor(extract(epoch FROM guards.heard))::int8 AS heard, \
     guards.heard < now() - make_interval(secs => $2) AS is_stale \
     FROM guards JOIN clusters ON clusters.id = guards.cluster \
     WHERE $1::text[] = '{}' OR clusters.name = ANY($1) ORDER BY clusters.name";

const STATES: &str = "SELECT cluster, reason, count(*) AS releases, count(*) FILTER (WHERE drifted > 0) AS drifted, \
     floor(extract(epoch FROM min(oldest_drift)))::int8 AS oldest FROM releases \
     WHERE ($1::text IS NULL OR namespace = $1) GROUP BY cluster, reason";

/// The columns of a release; [`STALE_AFTER`] goes between the two parts.
const RELEASES: [&str; 2] = [
    "SELECT clusters.name AS cluster, releases.namespace, releases.name, revision, drifted, \
     floor(extract(epoch FROM oldest_drift))::int8 AS oldest, floor(extract(epoch FROM since))::int8 AS since, ready, \
     reason, chart, values_hash, edits, drift, message, CASE WHEN guards.heard < now() - make_interval(secs => ",
    ") THEN floor(extract(epoch FROM guards.heard))::int8 END AS stale",
];

const FROM: &str = " FROM releases JOIN clusters ON clusters.id = releases.cluster \
     JOIN guards ON guards.cluster = releases.cluster WHERE true";

/// A text that changes with any release, the staleness of a cluster, and new entries of the last 10 minutes.
const MARK: &str = "SELECT concat_ws(' ', count(*), sum(revision), sum(drifted), sum(hashtext(reason || message)::int8), \
     max(since), (SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE heard < now() - make_interval(secs => $1))) \
     FROM guards), (SELECT string_agg(concat(clusters.id, ':', newest.id), ' ' ORDER BY clusters.id) FROM clusters \
     CROSS JOIN LATERAL (SELECT id FROM entries WHERE cluster = clusters.id AND id >= \
     ((extract(epoch FROM now() - interval '10 minutes') * 1000000)::int8 - 1577836800000000) << 12 \
     ORDER BY id DESC LIMIT 1) AS newest)) FROM releases";

/// The rows of one cluster, for its guard.
#[derive(Clone)]
pub struct ClusterFleet {
    pub(crate) store: Store,
    pub(crate) cluster: ClusterNumber,
    pub(crate) key: SealingKey,
    /// Clusters that were silent for longer are deleted.
    pub(crate) age: Duration,
}

impl ClusterFleet {
    pub async fn releases(&self) -> Result<Vec<ReleaseId>, StoreError> {
        let pool = self.store.shared()?;
        let select = sqlx::query_as("SELECT namespace, name FROM releases WHERE cluster = $1");
        let rows: Result<Vec<(String, String)>, _> = select.bind(self.cluster.0).fetch_all(pool).await;
        let rows = rows.map_err(self.store.failed("read"))?;
        Ok(rows
            .into_iter()
            .map(|(namespace, name)| ReleaseId { namespace: namespace.into(), name: name.into() })
            .collect())
    }

    /// Writes the states of some releases and deletes others, in one transaction.
    pub async fn write(&self, states: &[FleetReleaseState], gone: &[ReleaseId]) -> Result<(), StoreError> {
        if states.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let pool = self.store.shared()?;
        let written = async {
            let mut transaction = pool.begin().await?;
            if !states.is_empty() {
                put(&mut transaction, self.cluster, &self.key, states).await?;
            }
            if !gone.is_empty() {
                let namespaces: Vec<_> = gone.iter().map(|release| release.namespace.as_str()).collect();
                let names: Vec<_> = gone.iter().map(|release| release.name.as_str()).collect();
                let remove = sqlx::query(REMOVE).bind(namespaces).bind(names).bind(self.cluster.0);
                remove.execute(&mut *transaction).await?;
            }
            transaction.commit().await
        };
        written.await.map_err(self.store.failed("written"))
    }

    /// Records a heartbeat of the guard. Deletes clusters that were silent for too long.
    pub async fn beat(&self, guard: &GuardState) -> Result<(), StoreError> {
        let pool = self.store.shared()?;
        let written = async {
            let until = guard.certificate_until.map(Timestamp::as_second);
            sqlx::query(BEAT).bind(self.cluster.0).bind(guard.version).bind(until).execute(pool).await?;
            let silent = "SELECT cluster FROM guards WHERE heard < now() - make_interval(secs => $1)";
            let silent = sqlx::query_scalar(silent).bind(self.age.min(LONGEST).as_secs_f64());
            let silent: Vec<i16> = silent.fetch_all(pool).await?;
            if silent.is_empty() {
                return Ok(());
            }
            let mut transaction = pool.begin().await?;
            for delete in
                ["DELETE FROM releases WHERE cluster = ANY($1)", "DELETE FROM guards WHERE cluster = ANY($1)"]
            {
                sqlx::query(delete).bind(&silent).execute(&mut *transaction).await?;
            }
            transaction.commit().await
        };
        written.await.map_err(self.store.failed("written"))
    }
}

impl Store {
    /// The clusters that match `filter`, sorted by name.
    pub async fn fleet(&self, filter: &FleetFilter) -> Result<Vec<ClusterView>, StoreError> {
        let pool = self.shared()?;
        let read = async {
            let clusters = sqlx::query(CLUSTERS).bind(&filter.clusters).bind(STALE_AFTER.as_secs_f64());
            let clusters = clusters.fetch_all(pool).await?;
            let mut views = BTreeMap::new();
            for row in &clusters {
                views.insert(row.try_get::<i16, _>("number")?, cluster(row)?);
            }
            for row in sqlx::query(STATES).bind(&filter.namespace).fetch_all(pool).await? {
                let Some(view) = views.get_mut(&row.try_get::<i16, _>("cluster")?) else { continue };
                let counted =
                    StateCount { releases: number(&row, "releases")?, drifted: number(&row, "drifted")? };
                view.states.insert(row.try_get("reason")?, counted);
                view.oldest_drift = [view.oldest_drift, time(&row, "oldest")?].into_iter().flatten().min();
            }
            let mut views: Vec<_> = views.into_values().collect();
            views.sort_by(|left, right| left.cluster.cmp(&right.cluster));
            Ok(views)
        };
        read.await.map_err(self.failed("read"))
    }

    /// The releases that match `filter`, sorted by namespace, name and cluster.
    pub async fn fleet_releases(&self, filter: &FleetFilter) -> Result<Vec<ReleaseRow>, StoreError> {
        let search = FleetSearch { filter: filter.clone(), ..FleetSearch::default() };
        let mut query = releases(&search);
        query.push(" ORDER BY releases.namespace, releases.name, clusters.name");
        let rows = query.build().fetch_all(self.shared()?).await;
        let views = rows.and_then(|rows| rows.iter().map(view).collect());
        views.map_err(self.failed("read"))
    }

    /// One page of the releases that match `search`, and their number.
    pub async fn fleet_search(&self, search: &FleetSearch) -> Result<FleetFound, StoreError> {
        let pool = self.shared()?;
        let read = async {
            let mut query = releases(search);
            order(&mut query, search);
            query.push(" LIMIT ").push_bind(i64::from(search.limit));
            query.push(" OFFSET ").push_bind(i64::from(search.offset));
            let rows = query.build().fetch_all(pool).await?;
            let mut count = QueryBuilder::<Postgres>::new("SELECT count(*) FROM (SELECT 1");
            count.push(FROM);
            conditions(&mut count, search);
            count.push(" LIMIT ").push_bind(i64::try_from(COUNTED).unwrap_or(i64::MAX).saturating_add(1));
            count.push(") AS found");
            let total: i64 = count.build_query_scalar().fetch_one(pool).await?;
            let releases: Result<Vec<_>, _> = rows.iter().map(view).collect();
            Ok(FleetFound { releases: releases?, total: u64::try_from(total).unwrap_or_default() })
        };
        read.await.map_err(self.failed("read"))
    }

    /// A text that changes when the stored state of a cluster changes, except for heartbeats, or when there are new
    /// entries of the last 10 minutes.
    pub async fn fleet_mark(&self) -> Result<String, StoreError> {
        let mark = sqlx::query_scalar(MARK).bind(STALE_AFTER.as_secs_f64()).fetch_one(self.shared()?).await;
        mark.map_err(self.failed("read"))
    }

    fn shared(&self) -> Result<&PgPool, StoreError> {
        match &self.pool {
            DatabasePool::Postgres(pool) => Ok(pool),
            DatabasePool::Sqlite { .. } => Err(StoreError::Unshared { place: self.place.clone() }),
        }
    }
}

fn releases(search: &FleetSearch) -> QueryBuilder<Postgres> {
    let [columns, end] = RELEASES;
    let mut query = QueryBuilder::new(columns);
    query.push_bind(STALE_AFTER.as_secs_f64()).push(end).push(FROM);
    conditions(&mut query, search);
    query
}

fn conditions(query: &mut QueryBuilder<Postgres>, search: &FleetSearch) {
    let FleetSearch { filter, reasons, drifted, stale, words, .. } = search;
    if !filter.clusters.is_empty() {
        query.push(" AND clusters.name = ANY(").push_bind(filter.clusters.clone()).push(")");
    }
    for (column, text) in
        [(" AND releases.namespace = ", &filter.namespace), (" AND releases.name = ", &filter.release)]
    {
        if let Some(text) = text {
            query.push(column).push_bind(text.clone());
        }
    }
    if !reasons.is_empty() || *drifted || *stale {
        query.push(" AND (reason = ANY(").push_bind(reasons.clone()).push(")");
        if *drifted {
            query.push(" OR drifted > 0");
        }
        if *stale {
            query.push(" OR guards.heard < now() - make_interval(secs => ");
            query.push_bind(STALE_AFTER.as_secs_f64()).push(")");
        }
        query.push(")");
    }
    for word in words {
        query.push(" AND position(").push_bind(word.to_lowercase());
        query.push(
            " IN lower(concat_ws(' ', releases.namespace || '/' || releases.name, chart, message))) > 0",
        );
    }
}

fn order(query: &mut QueryBuilder<Postgres>, search: &FleetSearch) {
    let (up, down) = if search.is_reversed { (" DESC", " ASC") } else { (" ASC", " DESC") };
    query.push(" ORDER BY ");
    match &search.order {
        FleetOrder::Name => {}
        FleetOrder::Cluster => {
            query.push("clusters.name").push(up).push(", ");
        }
        FleetOrder::State(words) => {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            query.push("(reason = 'InSync')").push(up);
            query
                .push(", coalesce(array_position(")
                .push_bind(words)
                .push("::text[], reason), 1000)")
                .push(up)
                .push(", ");
        }
        FleetOrder::Drifted => {
            query.push("drifted").push(down).push(", ");
        }
        FleetOrder::Revision => {
            query.push("revision").push(down).push(", ");
        }
    }
    for (place, column) in ["releases.name", "releases.namespace", "clusters.name"].iter().enumerate() {
        query.push(if place == 0 { "" } else { ", " }).push(column).push(up);
    }
}

async fn put(
    connection: &mut PgConnection,
    cluster: ClusterNumber,
    key: &SealingKey,
    states: &[FleetReleaseState],
) -> Result<(), sqlx::Error> {
    fn column<'s, T>(states: &'s [FleetReleaseState], of: impl Fn(&'s FleetReleaseState) -> T) -> Vec<T> {
        states.iter().map(of).collect()
    }
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    sqlx::query(PUT)
        .bind(column(states, |it| it.release.namespace.as_str()))
        .bind(column(states, |it| it.release.name.as_str()))
        .bind(column(states, |it| whole(it.revision)))
        .bind(column(states, |it| whole(it.declared)))
        .bind(column(states, |it| whole(it.drifted)))
        .bind(column(states, |it| it.oldest_drift.map(Timestamp::as_second)))
        .bind(column(states, |it| it.ready))
        .bind(column(states, |it| it.reason))
        .bind(column(states, |it| it.status))
        .bind(column(states, |it| it.chart.as_deref().map(cut)))
        .bind(column(states, |it| it.values.as_ref().and_then(|digest| key.seal(digest))))
        .bind(column(states, |it| it.edits.as_str()))
        .bind(column(states, |it| it.drift.as_str()))
        .bind(column(states, |it| cut(&it.message)))
        .bind(cluster.0)
        .execute(connection)
        .await
        .map(drop)
}

fn cluster(row: &PgRow) -> Result<ClusterView, sqlx::Error> {
    Ok(ClusterView {
        cluster: row.try_get("name")?,
        version: row.try_get("version")?,
        certificate_until: time(row, "certificate_until")?,
        heard: time(row, "heard")?.unwrap_or_default(),
        is_stale: row.try_get("is_stale")?,
        ..ClusterView::default()
    })
}

fn view(row: &PgRow) -> Result<ReleaseRow, sqlx::Error> {
    Ok(ReleaseRow {
        cluster: row.try_get("cluster")?,
        namespace: row.try_get("namespace")?,
        name: row.try_get("name")?,
        ready: row.try_get("ready")?,
        reason: row.try_get("reason")?,
        revision: Some(number(row, "revision")?),
        chart: row.try_get("chart")?,
        values: row.try_get("values_hash")?,
        drifted: number(row, "drifted")?,
        oldest_drift: time(row, "oldest")?,
        edits: row.try_get("edits")?,
        drift: row.try_get("drift")?,
        stale_since: time(row, "stale")?,
        message: row.try_get("message")?,
        differs: Vec::new(),
        since: time(row, "since")?.unwrap_or_default(),
    })
}

/// A count, which is never stored below zero.
fn number(row: &PgRow, column: &str) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or_default())
}

fn time(row: &PgRow, column: &str) -> Result<Option<Timestamp>, sqlx::Error> {
    let seconds: Option<i64> = row.try_get(column)?;
    Ok(seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()))
}
