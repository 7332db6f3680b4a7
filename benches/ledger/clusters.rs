//! Filtered pages over the rows of many clusters in one PostgreSQL.

use std::time::Instant;

use jiff::{Span, Timestamp, civil::Date, tz::TimeZone};
use kubemoor_runtime::config::LedgerUrl;

use super::query::{self, COLUMNS, RARE, WRITTEN, fill, period};
use super::write::SIZE_OF_ALL;
use crate::support::Postgres;

/// Clusters that share the ledger.
const CLUSTERS: u64 = 200;

/// The time from a copy of the rows to the next one, as a multiple of the time that the
/// rows take: 50 million rows are spread over four months.
const SPREAD: u64 = 2;

/// For building indexes.
const MEMORY: &str = "SET maintenance_work_mem = '1GB'";

/// 2020-01-01T00:00:00Z, from which ids count.
const EPOCH: i64 = 1_577_836_800;

/// Prints how long pages take.
pub(crate) async fn measure(rows: u64) {
    let (written, copies) = (WRITTEN.min(rows), rows.div_ceil(WRITTEN).saturating_sub(1));
    println!("queries over {} rows of {CLUSTERS} clusters", written * (copies + 1));
    let server = Postgres::start().await;
    let url = server.database();
    let database = url.rsplit_once('/').unwrap().1;
    let ledger: LedgerUrl = url.parse().unwrap();
    let begin = fill(&ledger, written, copies * SPREAD).await;
    let run = |statement: &str| server.psql(database, statement).unwrap();
    run(&format!("INSERT INTO clusters (name) SELECT 'cluster-' || n FROM generate_series(2, {CLUSTERS}) n"));
    // Row by row another cluster, as they come in when all of them are at work.
    run(&format!("UPDATE entries SET cluster = 1 + id / 4096 / 100000 % {CLUSTERS}"));
    run(&format!("CREATE TABLE once AS SELECT * FROM entries WHERE user_name <> '{RARE}'"));
    // What a replay judges by is not part of a page, and would be a third of the disk.
    run("UPDATE once SET facts = NULL");
    let start = Instant::now();
    let this = TimeZone::UTC.to_datetime(Timestamp::now()).date().first_of_month();
    let first = TimeZone::UTC.to_datetime(begin).date().first_of_month();
    let lasts = name(this);
    // The months of the past, which a ledger has that is as old as its rows.
    run(&format!(
        "ALTER TABLE entries DETACH PARTITION entries_before; INSERT INTO entries_before SELECT * FROM {lasts}; \
         DROP TABLE {lasts}"
    ));
    let mut month = first;
    while month <= this {
        run(&format!("{MEMORY}; {}", one_month(month, copies, period(written))));
        month = after(month);
    }
    run(&format!(
        "TRUNCATE entries_before; DROP TABLE once; \
         ALTER TABLE entries ATTACH PARTITION entries_before FOR VALUES FROM (MINVALUE) TO ({})",
        id(first)
    ));
    println!(
        "  {} rows copied in {:.0} s",
        run("SELECT count(*) FROM entries").trim(),
        start.elapsed().as_secs_f64()
    );
    run("VACUUM ANALYZE entries");
    println!(
        "  {} on the disk: {}",
        run(&format!("SELECT pg_size_pretty(({SIZE_OF_ALL}))")).trim(),
        run("SELECT string_agg(relid::text || ' ' || pg_size_pretty(pg_total_relation_size(relid)), ', ' \
             ORDER BY relid::text) FROM pg_partition_tree('entries') WHERE isleaf")
        .trim()
    );
    query::query("200 clusters", &ledger, None).await;
    query::query("one of them", &ledger, Some("cluster-17")).await;
}

/// The statements that make the partition of a month, with its rows: those that the guard wrote and their
/// copies. It is filled before it has indexes.
fn one_month(month: Date, copies: u64, period: u64) -> String {
    let (name, begin, end, step) = (name(month), id(month), id(after(month)), period * SPREAD);
    format!(
        "CREATE TABLE {name} (LIKE entries, CONSTRAINT of_month CHECK (id >= {begin} AND id < {end})); \
         INSERT INTO {name} SELECT * FROM entries_before WHERE id >= {begin} AND id < {end}; \
         DO $$ DECLARE least bigint := (SELECT min(id) FROM once); most bigint := (SELECT max(id) FROM once); \
         BEGIN FOR copy IN 1..{copies} LOOP IF most + copy * {step} >= {begin} AND least + copy * {step} < {end} THEN \
         INSERT INTO {name} (id, {COLUMNS}) SELECT id + copy * {step}, {COLUMNS} FROM once \
         WHERE id + copy * {step} >= {begin} AND id + copy * {step} < {end}; END IF; END LOOP; END $$; \
         ALTER TABLE entries ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})"
    )
}

fn name(month: Date) -> String {
    format!("entries_{}", month.strftime("%Y_%m"))
}

/// The first id of a month.
fn id(month: Date) -> i64 {
    let second = TimeZone::UTC.to_timestamp(month.at(0, 0, 0, 0)).unwrap().as_second();
    ((second - EPOCH) * 1_000_000) << 12
}

fn after(month: Date) -> Date {
    month.checked_add(Span::new().months(1)).unwrap()
}
