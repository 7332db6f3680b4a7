//! The states of the releases of many clusters in one PostgreSQL, as `kubemoor fleet` and its page read them.

use std::time::Instant;

use kubemoor_ledger::fleet::{FleetFilter, FleetSearch};
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;

use super::query::{WRITTEN, fill};
use crate::support::Postgres;

/// Clusters that share the database.
const CLUSTERS: u64 = 200;

/// Milliseconds that each query may take. The look for changes is taken every three seconds.
const BAR: f64 = 200.0;

/// Times that each query is put; their median counts.
const ROUNDS: usize = 15;

/// Prints how long the states of so many releases take.
pub(crate) async fn measure(releases: u64) {
    println!("states of {releases} releases of {CLUSTERS} clusters");
    let server = Postgres::start().await;
    let url = server.database();
    let database = url.rsplit_once('/').unwrap().1;
    let ledger: LedgerUrl = url.parse().unwrap();
    fill(&ledger, WRITTEN, 0).await;
    let run = |statement: &str| server.psql(database, statement).unwrap();
    run(&format!("INSERT INTO clusters (name) SELECT 'cluster-' || n FROM generate_series(2, {CLUSTERS}) n"));
    run("INSERT INTO guards (cluster, version, heard) SELECT id, '1.0.0', now() FROM clusters");
    run(&format!(
        "INSERT INTO releases (cluster, namespace, name, revision, declared, drifted, oldest_drift, since, ready, reason, \
         status, chart, edits, drift, message) \
         SELECT 1 + n % {CLUSTERS}, 'team-' || n / {CLUSTERS} % 50, 'release-' || n / {CLUSTERS}, n % 30, 12, \
         CASE WHEN n % 9 = 0 THEN 2 ELSE 0 END, CASE WHEN n % 9 = 0 THEN now() - n * interval '1 minute' END, \
         now() - n * interval '1 minute', CASE WHEN n % 9 = 0 THEN 'False' ELSE 'True' END, \
         CASE WHEN n % 9 = 0 THEN 'Drifted' ELSE 'InSync' END, 'deployed', 'web-1.2.3', 'Deny', 'Report', \
         'all 12 objects match revision ' || n % 30 FROM generate_series(0, {releases} - 1) n"
    ));
    // What autovacuum does by itself within a minute.
    run("VACUUM ANALYZE");
    let store = Store::read(&ledger).await.unwrap();
    let (all, one) = (
        FleetFilter::default(),
        FleetFilter { clusters: vec!["cluster-17".to_owned()], ..FleetFilter::default() },
    );
    time("the look for changes", async || store.fleet_mark().await.unwrap().len()).await;
    time("clusters by state", async || store.fleet(&all).await.unwrap().len()).await;
    time("one of them", async || store.fleet(&one).await.unwrap().len()).await;
    let of_namespace = FleetFilter { namespace: Some("team-17".to_owned()), ..FleetFilter::default() };
    time("those with a namespace", async || store.fleet(&of_namespace).await.unwrap().len()).await;
    let drifted = FleetSearch { drifted: true, limit: 100, ..FleetSearch::default() };
    time("a page of drifted releases", async || store.fleet_search(&drifted).await.unwrap().releases.len())
        .await;
    store.close().await;
}

/// Puts a query and prints how long it takes.
async fn time(what: &str, query: impl AsyncFn() -> usize) {
    let (mut times, mut found) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        found = query().await;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let first = times[0];
    times.sort_by(f64::total_cmp);
    let median = times[ROUNDS / 2];
    let missed = if median > BAR { format!(" (at most {BAR} ms: missed)") } else { String::new() };
    println!("  {median:>8.1} ms (first {first:>6.1} ms), {found:>4}: {what}{missed}");
}
