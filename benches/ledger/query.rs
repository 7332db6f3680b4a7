//! Filtered queries over many rows.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kubemoor_declare::model::Operation;
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::LedgerUrl;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::rows::{BenchLedger, DEPLOYER, RELEASES, USERS, edit, row};
use crate::support::Postgres;

/// Milliseconds that a query may take.
const BAR: f64 = 1000.0;

/// Times that each query is put; their median counts.
const ROUNDS: usize = 15;

/// Rows that are written as the guard writes them; the others are these once
/// more, at other times.
pub(super) const WRITTEN: u64 = 100_000;

/// Pages that are turned.
const PAGES: usize = 10;

/// A user of as many rows as most.
const ALICE: &str = "user-7@example.com";

/// A user of a few rows.
pub(super) const RARE: &str = "rare@example.com";

/// Prints how long each database takes.
pub(crate) async fn measure(rows: u64) {
    let (written, copies) = (WRITTEN.min(rows), rows.div_ceil(WRITTEN).saturating_sub(1));
    println!("queries over {} rows of {RELEASES} releases and {USERS} users", written * (copies + 1));
    let folder = tempfile::tempdir().unwrap();
    let sqlite = LedgerUrl::Sqlite(folder.path().join("ledger.db"));
    fill(&sqlite, written, copies).await;
    let options = SqliteConnectOptions::new().filename(folder.path().join("ledger.db"));
    let options = options.pragma("synchronous", "off").pragma("cache_size", "-200000");
    let mut connection = options.connect().await.unwrap();
    for copy in 1..=copies {
        sqlx::query(sqlx::AssertSqlSafe(once_more(written, copy))).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    query("SQLite", &sqlite, None).await;
    drop(folder);

    let server = Postgres::start().await;
    let url = server.database();
    let database = url.rsplit_once('/').unwrap().1;
    let postgres: LedgerUrl = url.parse().unwrap();
    fill(&postgres, written, copies).await;
    for copy in 1..=copies {
        server.psql(database, &once_more(written, copy)).unwrap();
    }
    // What autovacuum does by itself within a minute.
    server.psql(database, "VACUUM ANALYZE entries").unwrap();
    query("PostgreSQL", &postgres, None).await;
}

/// Writes rows that leave room in time for that many copies behind them, and a few
/// rows of a user who is hardly ever there. Says when they begin.
pub(super) async fn fill(url: &LedgerUrl, rows: u64, copies: u64) -> Timestamp {
    let written = BenchLedger::start(url).await;
    let seconds = i64::try_from(rows / 10 * (copies + 1)).unwrap();
    let begin = Timestamp::now() - SignedDuration::from_secs(seconds + 60);
    let rare = |number: u64| {
        let time = begin + SignedDuration::from_secs(seconds / 6 * i64::try_from(number + 1).unwrap());
        edit(time, 17 + number * 50, RARE.to_owned(), "Deny", number)
    };
    written.record((0..rows).map(|number| row(begin, number))).await;
    written.close().await;
    let written = BenchLedger::start(url).await;
    written.record((0..5).map(rare)).await;
    written.close().await;
    begin
}

/// The columns of a row but its id.
pub(super) const COLUMNS: &str = "revision, more_fields, same, cluster, kind, namespace, release, object_group, \
                                  object_kind, object_namespace, object_name, operation, user_name, user_groups, \
                                  verdict, reason, detail, fields, uid, facts";

/// The difference of the ids of so many rows: behind the time in microseconds an id
/// has 12 bits; there are ten rows a second.
pub(super) const fn period(rows: u64) -> u64 {
    (rows * 100_000) << 12
}

/// The statement that has the first rows stand there once more, so many times later.
pub(super) fn once_more(rows: u64, copy: u64) -> String {
    let period = period(rows);
    format!(
        "INSERT INTO entries (id, {COLUMNS}) SELECT id + {}, {COLUMNS} FROM entries \
         WHERE id < (SELECT min(id) FROM entries) + {period} AND user_name <> '{RARE}'",
        copy * period
    )
}

/// Puts each query, of one cluster or of all, and prints how long it takes.
pub(super) async fn query(name: &str, url: &LedgerUrl, cluster: Option<&str>) {
    let store = Store::read(url).await.unwrap();
    let all = Filter { cluster: cluster.map(str::to_owned), limit: Some(1000), ..Filter::default() };
    for (what, filter) in filters(&all) {
        time(name, &store, what, &filter).await;
    }
    for (what, filter) in [
        ("pages of a user", of(&all, "", "", ALICE, "")),
        ("pages of a frequent release", of(&all, "", "release-0", "", "")),
        ("pages of a release, denied", Filter { limit: Some(50), ..of(&all, "", "release-0", "", "Deny") }),
    ] {
        pages(name, &store, what, filter).await;
    }
    store.close().await;
}

/// The queries, within `all`.
fn filters(all: &Filter) -> Vec<(&'static str, Filter)> {
    let text = |text: &str| Some(text.to_owned());
    let hour_ago = Some(Timestamp::now() - SignedDuration::from_hours(1));
    let long_ago = Some(Timestamp::now() - SignedDuration::from_hours(60 * 24));
    let object = |name: &str| Filter { object: Some(name.parse().unwrap()), ..all.clone() };
    vec![
        ("the newest", all.clone()),
        ("an hour", Filter { since: hour_ago, ..all.clone() }),
        ("a namespace", of(all, "team-17", "", "", "")),
        ("a frequent namespace", of(all, "team-0", "", "", "")),
        ("a release", of(all, "", "release-17", "", "")),
        ("a frequent release", of(all, "", "release-0", "", "")),
        ("a user", of(all, "", "", ALICE, "")),
        ("a frequent user", of(all, "", "", DEPLOYER, "")),
        ("a rare user", of(all, "", "", RARE, "")),
        ("nobody", of(all, "", "", "nobody", "")),
        ("denied", of(all, "", "", "", "Deny")),
        ("a verdict of nearly all", of(all, "", "", "", "Warn")),
        ("a rare verdict that is not there", of(all, "", "", "", "Failed")),
        ("a namespace, denied", of(all, "team-17", "", "", "Deny")),
        ("a namespace and a release", of(all, "team-17", "release-17", "", "")),
        ("a namespace and a release of another", of(all, "team-17", "release-0", "", "")),
        ("a namespace and a rare user", of(all, "team-17", "", RARE, "")),
        ("a namespace and nobody", of(all, "team-17", "", "nobody", "")),
        ("a release and a user", of(all, "", "release-17", ALICE, "")),
        ("a release and a frequent user", of(all, "", "release-17", DEPLOYER, "")),
        ("a frequent release and a user", of(all, "", "release-0", ALICE, "")),
        ("a frequent user, denied: none", of(all, "", "", DEPLOYER, "Deny")),
        ("a frequent release and user: none", of(all, "", "release-0", DEPLOYER, "")),
        ("all four", of(all, "team-17", "release-17", DEPLOYER, "Warn")),
        ("all four, none", of(all, "team-0", "release-0", DEPLOYER, "Warn")),
        ("a release and a user, an hour", Filter { since: hour_ago, ..of(all, "", "release-0", ALICE, "") }),
        ("another cluster", Filter { cluster: text("elsewhere"), ..all.clone() }),
        ("an object", object("deployment/release-17-web")),
        ("a frequent object", object("deployment/release-0-web")),
        ("a frequent object and a user", Filter { user: text(ALICE), ..object("deployment/release-0-web") }),
        (
            "a frequent object and nobody",
            Filter { user: text("nobody"), ..object("deployment/release-0-web") },
        ),
        ("an object that is not there", object("deployment/nothing-like-it")),
        (
            "an object of a release",
            Filter { release: text("release-17"), ..object("deployment/release-17-web") },
        ),
        ("deletions", Filter { operations: vec![Operation::Delete], ..all.clone() }),
        (
            "drift that stayed",
            Filter { verdicts: ["Reported", "Failed"].map(str::to_owned).into(), ..all.clone() },
        ),
        ("until 60 days ago", Filter { until: long_ago, ..all.clone() }),
    ]
}

/// The rows of a namespace, a release, a user and a verdict, where these are given.
fn of(all: &Filter, namespace: &str, release: &str, user: &str, verdict: &str) -> Filter {
    let given = |it: &str| (!it.is_empty()).then(|| it.to_owned());
    Filter {
        namespace: given(namespace),
        release: given(release),
        user: given(user),
        verdicts: given(verdict).into_iter().collect(),
        ..all.clone()
    }
}

async fn time(name: &str, store: &Store, what: &str, filter: &Filter) {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        found = store.page(filter).await.unwrap().items.len();
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    let first = times[0];
    times.sort_by(f64::total_cmp);
    let median = times[ROUNDS / 2];
    let missed = if median > BAR { format!(" (at most {BAR} ms: missed)") } else { String::new() };
    println!("  {name:<11} {median:>8.1} ms (first {first:>6.1} ms), {found:>4} rows: {what}{missed}");
}

/// Turns pages, and prints the slowest.
async fn pages(name: &str, store: &Store, what: &str, mut filter: Filter) {
    let (mut slowest, mut turned, mut found) = (0.0_f64, 0, 0);
    while turned < PAGES {
        let start = Instant::now();
        let page = store.page(&filter).await.unwrap();
        slowest = slowest.max(start.elapsed().as_secs_f64() * 1000.0);
        (turned, found) = (turned + 1, found + page.items.len());
        let Some(next) = page.next else { break };
        filter.before = Some(next.parse().unwrap());
    }
    let missed = if slowest > BAR { format!(" (at most {BAR} ms: missed)") } else { String::new() };
    println!("  {name:<11} {slowest:>8.1} ms, the slowest of {turned} {what}, {found} rows{missed}");
}
