//! Rows a second that are written one after the other, and their size.

use std::path::Path;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kubemoor_runtime::config::LedgerUrl;

use super::rows::{BenchLedger, RELEASES, USERS, row};
use crate::support::Postgres;

/// Rows a second that SQLite takes.
const BAR: f64 = 10_000.0;

/// Bytes of a row with its share of the indexes.
const SIZE: u64 = 1024;

/// The bytes of all partitions, with their indexes.
pub(super) const SIZE_OF_ALL: &str =
    "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('entries')";

/// Prints what each database takes.
pub(crate) async fn measure(rows: u64) {
    println!("writing {rows} rows of {RELEASES} releases and {USERS} users");
    let folder = tempfile::tempdir().unwrap();
    let rate = fill(&LedgerUrl::Sqlite(folder.path().join("ledger.db")), rows).await;
    let missed = if rate < BAR { ": missed" } else { "" };
    println!("  SQLite      {rate:>9.0} rows/s sustained (at least {BAR}{missed})");
    size("SQLite", bytes(folder.path()) / rows);

    let server = Postgres::start().await;
    let url = server.database();
    let rate = fill(&url.parse().unwrap(), rows).await;
    println!("  PostgreSQL  {rate:>9.0} rows/s sustained");
    let database = url.rsplit_once('/').unwrap().1;
    let bytes = server.psql(database, SIZE_OF_ALL).unwrap();
    size("PostgreSQL", bytes.trim().parse::<u64>().unwrap() / rows);
}

/// Writes rows through the queue, and says how many a second.
async fn fill(url: &LedgerUrl, rows: u64) -> f64 {
    let written = BenchLedger::start(url).await;
    let begin = Timestamp::now() - SignedDuration::from_secs(i64::try_from(rows / 10).unwrap());
    let start = Instant::now();
    written.record((0..rows).map(|number| row(begin, number))).await;
    let kept = written.close().await;
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(kept, rows, "rows were not written");
    rows as f64 / seconds
}

fn size(name: &str, bytes: u64) {
    let missed = if bytes > SIZE { ": missed" } else { "" };
    println!("  {name:<11} {bytes:>9} bytes a row, indexes included (at most {SIZE}{missed})");
}

/// The bytes of all files of a folder.
fn bytes(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}
