//! How long a page of the ledger takes, where its rows grow.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;

use super::chart::GrowthLine;
use crate::rows::{BenchLedger, row};

/// Times that each page is read; their median counts.
const ROUNDS: usize = 15;

const ROWS: [u64; 5] = [62_500, 125_000, 250_000, 500_000, 1_000_000];

/// The line of one page of a user's denied changes, on SQLite.
pub(crate) fn measure() -> GrowthLine {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = LedgerUrl::Sqlite(folder.path().join("ledger.db"));
    let begin = Timestamp::now() - SignedDuration::from_secs(200_000);
    let filter =
        Filter { user: Some("user-7@example.com".to_owned()), limit: Some(100), ..Filter::default() };
    let mut points = Vec::new();
    let mut written = 0;
    for rows in ROWS {
        let took = runtime.block_on(async {
            let ledger = BenchLedger::start(&url).await;
            ledger.record((written..rows).map(|number| row(begin, number))).await;
            ledger.close().await;
            let store = Store::read(&url).await.unwrap();
            let took = page(&store, &filter).await;
            store.close().await;
            took
        });
        written = rows;
        points.push((rows, took));
    }
    GrowthLine { cause: "rows of the ledger", cost: "A page of 100 rows of one user in µs", points }
}

async fn page(store: &Store, filter: &Filter) -> f64 {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        assert_eq!(store.page(filter).await.unwrap().items.len(), 100);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
