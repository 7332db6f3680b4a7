//! What the ledger carries: rows a second into SQLite, filtered queries over
//! many rows on SQLite and PostgreSQL, and bytes per row with its indexes.
//!
//! `cargo bench --bench ledger` takes 200,000 rows; the number may be given:
//! `cargo bench --bench ledger -- 5000000`.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::string_slice)]
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kubemoor::config::{self, LedgerUrl, Retention};
use kubemoor::ledger::Ledger;
use kubemoor::ledger::query::Filter;
use kubemoor::ledger::row::{Change, Changes, Kind, Row};
use kubemoor::ledger::store::Store;
use kubemoor::metrics::{self, LedgerMetrics};
use kubemoor::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor::verdict::shown::Shown;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::json;
use support::Postgres;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[path = "../tests/it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
mod support;

/// Rows handed in at once: fewer than the queue holds.
const BURST: u64 = 4000;

/// Times that each query is put; their median counts.
const ROUNDS: usize = 15;

const RELEASES: u64 = 1000;
const USERS: u64 = 200;

/// One row in so many was refused.
const DENIALS: u64 = 500;

struct Written {
    ledger: Ledger,
    registry: Registry,
    closing: CancellationToken,
    writing: JoinHandle<()>,
}

fn main() {
    let rows = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(200_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(rows));
}

async fn measure(rows: u64) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let sqlite = LedgerUrl::Sqlite(file.clone());
    println!("{rows} rows of {RELEASES} releases and {USERS} users");
    let seconds = fill(&sqlite, rows).await;
    println!("SQLite      {:>9.0} rows/s sustained", rows as f64 / seconds);
    println!("SQLite      {:>9} bytes a row, indexes included", size(folder.path()) / rows);
    query("SQLite", &sqlite).await;

    let server = Postgres::start().await;
    let url = server.database();
    let postgres: LedgerUrl = url.parse().unwrap();
    let seconds = fill(&postgres, rows).await;
    println!("PostgreSQL  {:>9.0} rows/s sustained", rows as f64 / seconds);
    let database = url.rsplit_once('/').unwrap().1;
    let bytes = server.psql(database, "SELECT pg_total_relation_size('entries')").unwrap();
    println!("PostgreSQL  {:>9} bytes a row, indexes included", bytes.trim().parse::<u64>().unwrap() / rows);
    // What autovacuum does by itself within a minute.
    server.psql(database, "VACUUM ANALYZE entries").unwrap();
    query("PostgreSQL", &postgres).await;
}

/// Writes rows through the queue, and says how many seconds that took.
async fn fill(url: &LedgerUrl, rows: u64) -> f64 {
    let written = Written::start(url);
    while written.ledger.store().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let begin = Timestamp::now() - SignedDuration::from_secs(i64::try_from(rows / 10).unwrap());
    let start = Instant::now();
    for number in 0..rows {
        written.ledger.record(row(begin, number));
        if number % BURST == BURST - 1 {
            while written.metric("kubemoor_ledger_queue ") > BURST / 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    let registry = written.close().await;
    let seconds = start.elapsed().as_secs_f64();
    let kept = metric(&registry, "kubemoor_ledger_rows_total{outcome=\"database\"} ");
    assert_eq!(kept, rows, "rows were not written");
    seconds
}

/// What an edit of a container's image that is refused leaves behind, ten a second.
fn row(begin: Timestamp, number: u64) -> Row {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let (release, user) = (spread % RELEASES, spread / RELEASES % USERS);
    let namespace = format!("team-{}", release % 50);
    let object = ObjectId {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some(namespace.clone()),
        name: format!("release-{release}-web"),
    };
    let path = "/spec/template/spec/containers/[name=app]/image";
    let shown = |tag: u64| {
        let image = json!(format!("registry.example.com/team/application:1.{tag}"));
        Some(Shown::of(&object, &path.parse().unwrap(), &image))
    };
    let change = Change { path: path.to_owned(), declared: shown(1), old: shown(1), new: shown(number) };
    Row {
        time: begin + SignedDuration::from_millis(i64::try_from(number * 100).unwrap()),
        kind: Kind::Verdict,
        release: Some((ReleaseId { namespace, name: format!("release-{release}") }, 7)),
        operation: Some(Operation::Update),
        actor: Actor {
            user: format!("user-{user}@example.com"),
            groups: vec!["developers".to_owned(), "system:authenticated".to_owned()],
        },
        verdict: if number.is_multiple_of(DENIALS) { "Deny" } else { "Warn" },
        reason: "drift",
        detail: String::new(),
        fields: Changes::Listed(vec![change], 0),
        uid: format!("{number:08x}-0000-4000-8000-000000000000"),
        same: None,
        object,
    }
}

async fn query(name: &str, url: &LedgerUrl) {
    let store = Store::read(url).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let hour_ago = Some(Timestamp::now() - SignedDuration::from_hours(1));
    let all = Filter { limit: Some(1000), ..Filter::default() };
    for (what, filter) in [
        ("the newest", all.clone()),
        ("one release", Filter { namespace: text("team-17"), release: text("release-17"), ..all.clone() }),
        ("one user", Filter { user: text("user-7@example.com"), ..all.clone() }),
        (
            "one namespace, denied",
            Filter { namespace: text("team-17"), verdict: text("Deny"), ..all.clone() },
        ),
        (
            "one user of one release, an hour",
            Filter {
                release: text("release-17"),
                user: text("user-7@example.com"),
                since: hour_ago,
                ..all.clone()
            },
        ),
        ("nobody", Filter { user: text("nobody"), ..all.clone() }),
        (
            "one release, a user who is not there",
            Filter { release: text("release-17"), user: text("nobody"), ..all },
        ),
    ] {
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            found = store.page(&filter).await.unwrap().items.len();
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        let first = times[0];
        times.sort_by(f64::total_cmp);
        println!("{name:<11} {:>9.1} ms (first {first:.1} ms) for {found} rows: {what}", times[ROUNDS / 2]);
    }
    store.close().await;
}

impl Written {
    fn start(url: &LedgerUrl) -> Self {
        let retention = Retention { age: Duration::MAX, rows: u64::MAX };
        let settings = config::Ledger { url: url.clone(), cluster_name: None, retention };
        let mut registry = metrics::registry();
        let (ledger, writer) = Ledger::new(settings, LedgerMetrics::register(&mut registry)).unwrap();
        let (name, named) = oneshot::channel();
        name.send("6f1c1b52-6a0e-4d61-9c40-0c7b9a2f4e10".to_owned()).unwrap();
        let closing = CancellationToken::new();
        let writing = tokio::spawn(writer.run(named, closing.clone()));
        Self { ledger, registry, closing, writing }
    }

    fn metric(&self, name: &str) -> u64 {
        metric(&self.registry, name)
    }

    async fn close(self) -> Registry {
        self.closing.cancel();
        self.writing.await.unwrap();
        self.registry
    }
}

fn metric(registry: &Registry, name: &str) -> u64 {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |value| value.parse().unwrap())
}

/// The bytes of all files of a folder.
fn size(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}
