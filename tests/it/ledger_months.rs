//! The months of a ledger in a real PostgreSQL: which row is where, and what is dropped.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::row::LedgerRow;
use kubemoor_ledger::store::Store;
use kubemoor_runtime::config::{LedgerUrl, Retention};

use crate::fleet_tenants::divide;
use crate::ledger::{FOREVER, Written, details, row};
use crate::support::{Postgres, SOON, eventually};

const DAY: u64 = 86400;

/// A PostgreSQL with one ledger.
pub(crate) struct LedgerServer {
    server: Postgres,
    text: String,
    pub(crate) url: LedgerUrl,
}

impl LedgerServer {
    pub(crate) async fn start() -> Self {
        let server = Postgres::start().await;
        let text = server.database();
        Self { server, url: text.parse().unwrap(), text }
    }

    pub(crate) fn ask(&self, statement: &str) -> String {
        let database = self.text.rsplit_once('/').unwrap().1;
        self.server.psql(database, statement).unwrap().trim().to_owned()
    }

    /// A ledger that takes rows, after its guard looked for the first time what is to be deleted.
    async fn open(&self, cluster: &str, retention: Retention) -> Written {
        let database = self.text.rsplit_once('/').unwrap().1;
        let forget = format!("UPDATE clusters SET age = NULL WHERE name = '{cluster}'");
        drop(self.server.psql(database, &forget));
        let written = Written::start(&self.url, cluster, retention);
        let statement = format!("SELECT age >= 0 FROM clusters WHERE name = '{cluster}'");
        eventually("the months are there", SOON, || async {
            self.server.psql(database, &statement).is_ok_and(|answer| answer.trim() == "t")
        })
        .await;
        written
    }

    /// Has a guard of `cluster` write these rows.
    async fn record(&self, cluster: &str, rows: impl IntoIterator<Item = LedgerRow>) {
        let written = self.open(cluster, FOREVER).await;
        rows.into_iter().for_each(|row| written.ledger.record(row));
        written.close().await;
    }

    /// The details of all rows, newest first.
    async fn details(&self) -> Vec<String> {
        let store = Store::read(&self.url).await.unwrap();
        let page = store.page(&Filter::default()).await.unwrap();
        store.close().await;
        details(&page).into_iter().map(str::to_owned).collect()
    }

    /// The partitions that have rows, and how many.
    fn parts(&self) -> Vec<String> {
        let parts = self.ask("SELECT tableoid::regclass, count(*) FROM entries GROUP BY 1");
        let mut parts: Vec<_> = parts.lines().map(str::to_owned).collect();
        parts.sort();
        parts
    }

    /// Whether there is a table of that name.
    fn has(&self, table: &str) -> bool {
        self.ask(&format!("SELECT to_regclass('{table}') IS NOT NULL")) == "t"
    }

    /// Makes the months since this one, as a ledger has them that is as old.
    fn make_months_since(&self, first: Date) {
        let mut statements = "ALTER TABLE entries DETACH PARTITION entries_before;".to_owned();
        let mut month = first;
        while month < month_of(Timestamp::now()) {
            let next = month.checked_add(1.month()).unwrap();
            statements += &format!(
                "CREATE TABLE {} PARTITION OF entries FOR VALUES FROM ({}) TO ({});",
                name(month),
                id(month),
                id(next)
            );
            month = next;
        }
        statements += &format!(
            "ALTER TABLE entries ATTACH PARTITION entries_before FOR VALUES FROM (MINVALUE) TO ({})",
            id(first)
        );
        self.ask(&statements);
    }
}

fn month_of(time: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(time).date().first_of_month()
}

fn name(month: Date) -> String {
    format!("entries_{}", month.strftime("%Y_%m"))
}

/// The first id of a month.
fn id(month: Date) -> i64 {
    let second = TimeZone::UTC.to_timestamp(month.at(0, 0, 0, 0)).unwrap().as_second();
    ((second - 1_577_836_800) * 1_000_000) << 12
}

/// Noon of the second day of the month that is so many months from now.
fn noon(months: i32) -> Timestamp {
    let day = month_of(Timestamp::now()).checked_add(months.months()).unwrap();
    TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).unwrap() + SignedDuration::from_hours(36)
}

fn at(time: Timestamp, detail: &str) -> LedgerRow {
    LedgerRow { time, detail: detail.to_owned(), ..row(0, "shop", "web", "alice", "Deny") }
}

fn kept_for(days: u64) -> Retention {
    Retention { age: Duration::from_secs(days * DAY), rows: u64::MAX }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rows_lie_in_their_months_and_come_back_in_order() {
    let shared = LedgerServer::start().await;
    let old: Timestamp = "2021-03-04T05:06:07Z".parse().unwrap();
    let times = [("old", old), ("this", noon(0)), ("next", noon(1)), ("third", noon(2)), ("year", noon(13))];
    shared.record("east", times.map(|(detail, time)| at(time, detail))).await;
    shared.record("west", times.map(|(detail, time)| at(time, detail))).await;
    let mut expected: Vec<_> = (0..3).map(|months| format!("{}|2", name(month_of(noon(months))))).collect();
    expected.extend(["entries_ahead|2".to_owned(), "entries_before|2".to_owned()]);
    assert_eq!(shared.parts(), expected);
    let newest_first = ["year", "third", "next", "this", "old"].map(|detail| [detail, detail]).concat();
    assert_eq!(shared.details().await, newest_first);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rows_from_the_future_move_into_their_month_once_made() {
    let shared = LedgerServer::start().await;
    let rows = [at(noon(1), "next"), at(noon(2), "last"), at(noon(3), "beyond")];
    shared.record("east", rows).await;
    // As two months ago, when their months were not there yet.
    let (next, last) = (month_of(noon(1)), month_of(noon(2)));
    shared.ask(&format!(
        "ALTER TABLE entries DETACH PARTITION entries_ahead; INSERT INTO entries_ahead SELECT * FROM {0}; \
         INSERT INTO entries_ahead SELECT * FROM {1}; DROP TABLE {0}, {1}; \
         ALTER TABLE entries ATTACH PARTITION entries_ahead FOR VALUES FROM ({2}) TO (MAXVALUE)",
        name(next),
        name(last),
        id(next)
    ));
    assert_eq!(shared.parts(), ["entries_ahead|3"]);
    shared.record("east", []).await;
    let parts = [format!("{}|1", name(next)), format!("{}|1", name(last)), "entries_ahead|1".to_owned()];
    assert_eq!(shared.parts(), parts);
    assert_eq!(shared.details().await, ["beyond", "last", "next"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn mark_seen_by_two_guards_across_months_is_one_row() {
    let shared = LedgerServer::start().await;
    let edge = TimeZone::UTC.to_timestamp(month_of(noon(1)).at(0, 0, 0, 0)).unwrap();
    let marked = |seconds, same: &str, detail: &str| LedgerRow {
        same: Some(same.to_owned()),
        ..at(edge + SignedDuration::from_secs(seconds), detail)
    };
    // One sees it before the month ends, the other one after, each of them twice, among other rows.
    let one = [marked(-2, "policy gone", "gone"), marked(-1, "policy gone", "gone again"), at(edge, "one")];
    let other = [at(edge, "other"), marked(3, "policy gone", "late"), marked(3, "another", "another")];
    let guards = [shared.open("east", FOREVER).await, shared.open("east", FOREVER).await];
    for (guard, rows) in guards.iter().zip([one, other]) {
        rows.into_iter().for_each(|row| guard.ledger.record(row));
    }
    for guard in guards {
        guard.close().await;
    }
    // An attempt whose answer was lost writes all of it again.
    shared.record("east", [marked(-2, "policy gone", "again"), marked(9, "another", "again")]).await;
    shared.record("west", [marked(5, "policy gone", "elsewhere")]).await;
    let mut details = shared.details().await;
    details.retain(|detail| !["gone", "gone again", "late"].contains(&detail.as_str()));
    details.sort();
    assert_eq!(details, ["another", "elsewhere", "one", "other"]);
    assert_eq!(shared.ask("SELECT count(*) FROM entries"), "5");
    assert_eq!(shared.ask("SELECT count(*) FROM entry_marks JOIN entries USING (cluster, same, id)"), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn month_that_no_cluster_keeps_is_dropped_despite_silent_cluster() {
    let shared = LedgerServer::start().await;
    shared.record("east", []).await;
    let first = month_of(noon(-5));
    shared.make_months_since(first);
    let months: Vec<_> = (-5..0).map(|month| name(month_of(noon(month)))).collect();
    let rows = |cluster: &str| {
        let marked = |month: i32| LedgerRow {
            same: Some(format!("{cluster} {month}")),
            ..at(noon(month), &format!("{cluster} {month}"))
        };
        [at(noon(-20), &format!("{cluster} -20")), marked(-5), marked(-4), marked(0)]
    };
    shared.record("east", rows("east")).await;
    shared.record("west", rows("west")).await;
    // The west keeps everything, whether its guard runs or not.
    let east = shared.open("east", kept_for(65)).await;
    let asked = "SELECT count(*) FROM entries JOIN clusters ON clusters.id = cluster WHERE name = 'east'";
    eventually("old rows are deleted", SOON, || async { shared.ask(asked) == "1" }).await;
    assert!(months.iter().all(|month| shared.has(month)), "{:?}", shared.parts());
    east.close().await;
    // It kept them for ten days when it was heard last, long ago.
    shared.ask(&format!("UPDATE clusters SET keeps = 0, age = {} WHERE name = 'west'", 10 * DAY));
    let east = shared.open("east", kept_for(65)).await;
    eventually("months are dropped", SOON, || async { !shared.has(&months[1]) }).await;
    let there: Vec<_> = months.iter().map(|month| shared.has(month)).collect();
    // The third one ends 60 days ago, or a little earlier.
    assert_eq!([there[0], there[1], there[3], there[4]], [false, false, true, true]);
    let marks = "SELECT count(*) FROM entry_marks";
    eventually("marks of old rows are deleted", SOON, || async { shared.ask(marks) == "2" }).await;
    let mut details = shared.details().await;
    details.sort();
    assert_eq!(details, ["east 0", "west 0"]);
    // What comes late has a place.
    east.ledger.record(at(noon(-5), "late"));
    east.close().await;
    assert_eq!(shared.details().await.last().unwrap(), "late");
    assert!(shared.parts().contains(&"entries_before|1".to_owned()), "{:?}", shared.parts());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn two_guards_at_once_make_the_tables_and_months() {
    let shared = LedgerServer::start().await;
    let guards = [Written::start(&shared.url, "east", FOREVER), Written::start(&shared.url, "west", FOREVER)];
    for guard in &guards {
        for (months, detail) in [(0, "now"), (2, "ahead"), (13, "far ahead")] {
            guard.ledger.record(at(noon(months), detail));
        }
        for detail in ["marked", "marked again"] {
            guard.ledger.record(LedgerRow { same: Some("seen".to_owned()), ..at(noon(0), detail) });
        }
    }
    for guard in guards {
        guard.close().await;
    }
    shared.record("east", []).await;
    let mut details = shared.details().await;
    details.sort();
    // The mark of another cluster is another one.
    assert_eq!(details, ["ahead", "ahead", "far ahead", "far ahead", "marked", "marked", "now", "now"]);
    let [now, ahead] =
        [(0, 4), (2, 2)].map(|(months, rows)| format!("{}|{rows}", name(month_of(noon(months)))));
    assert_eq!(shared.parts(), [now.as_str(), ahead.as_str(), "entries_ahead|2"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn tenant_reads_no_row_of_a_partition_itself() {
    let shared = LedgerServer::start().await;
    let of = |months, namespace: &str| LedgerRow {
        time: noon(months),
        detail: String::new(),
        ..row(1, namespace, "web", "alice", "Deny")
    };
    shared.record("prod-eu", [of(-20, "shop"), of(0, "shop"), of(13, "shop"), of(0, "bank")]).await;
    shared.record("prod-us", [of(0, "shop")]).await;
    let database = shared.text.rsplit_once('/').unwrap().1;
    divide(&shared.server, database);
    // What an administrator may have granted as well.
    let month = name(month_of(noon(0)));
    shared.ask(&format!(
        "GRANT SELECT ON entries_before, entries_ahead, {month}, ledger TO team_shop; \
         ALTER VIEW ledger SET (security_invoker = true)"
    ));
    let as_team = |statement: &str| {
        shared
            .server
            .psql(database, &format!("SET ROLE team_shop; {statement}"))
            .map(|it| it.trim().to_owned())
    };
    let own = as_team("SELECT count(*), min(cluster), max(cluster), max(namespace) FROM ledger");
    assert_eq!(own.unwrap(), "SET\n3|prod-eu|prod-eu|shop");
    for part in ["entries_before", "entries_ahead", month.as_str()] {
        assert_ne!(shared.ask(&format!("SELECT count(*) FROM {part}")), "0", "{part}");
        assert_eq!(as_team(&format!("SELECT count(*) FROM {part}")).unwrap(), "SET\n0", "{part}");
    }
    assert!(as_team("SELECT * FROM entry_marks").unwrap_err().contains("denied"));
}
