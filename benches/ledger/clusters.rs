//! Filtered pages over the rows of many clusters in one PostgreSQL.

use kubemoor::config::LedgerUrl;

use super::query::{self, WRITTEN, fill};
use crate::support::Postgres;

/// Clusters that share the ledger.
const CLUSTERS: u64 = 200;

/// The indexes that take longest to write to one row after the other.
const INDEXES: &str = "SELECT indexdef FROM pg_indexes WHERE tablename = 'entries' AND indexname LIKE 'entries\\_%' \
                       AND indexname NOT IN ('entries_pkey', 'entries_same')";

/// Prints how long pages take.
pub(crate) async fn measure(rows: u64) {
    let (written, copies) = (WRITTEN.min(rows), rows.div_ceil(WRITTEN).saturating_sub(1));
    println!("queries over {} rows of {CLUSTERS} clusters", written * (copies + 1));
    let server = Postgres::start().await;
    let url = server.database();
    let database = url.rsplit_once('/').unwrap().1;
    let ledger: LedgerUrl = url.parse().unwrap();
    fill(&ledger, written, copies).await;
    let run = |statement: &str| server.psql(database, statement).unwrap();
    run(&format!("INSERT INTO clusters (name) SELECT 'cluster-' || n FROM generate_series(2, {CLUSTERS}) n"));
    let indexes = run(INDEXES);
    run("DROP INDEX entries_release, entries_namespace, entries_user, entries_verdict");
    // Row by row another cluster, as they come in when all of them are at work.
    run(&format!("UPDATE entries SET cluster = 1 + id / 4096 / 100000 % {CLUSTERS}"));
    for copy in 1..=copies {
        run(&query::once_more(written, copy));
    }
    indexes.lines().for_each(|index| drop(run(index)));
    run("VACUUM ANALYZE entries");
    println!("  {} on the disk", run("SELECT pg_size_pretty(pg_total_relation_size('entries'))").trim());
    query::query("200 clusters", &ledger, None).await;
    query::query("one of them", &ledger, Some("cluster-17")).await;
}
