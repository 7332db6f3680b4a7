//! How releases stand, in a real PostgreSQL: rows that change, clusters that fall silent, tables of before.

use std::time::Duration;

use jiff::Timestamp;
use kubemoor_declare::model::ReleaseId;
use kubemoor_ledger::fleet::{FleetFilter, FleetReleaseState, GuardState, ReleaseRow};
use kubemoor_ledger::store::{ClusterFleet, Store};
use kubemoor_runtime::config::{LedgerUrl, Retention};

use crate::ledger::{FOREVER, Written};
use crate::support::{Postgres, SOON, eventually, folder, run};

pub(crate) fn guard() -> GuardState {
    GuardState { version: "1.2.3", certificate_until: Some("2027-01-01T00:00:00Z".parse().unwrap()) }
}

pub(crate) fn state(namespace: &str, name: &str) -> FleetReleaseState {
    FleetReleaseState {
        release: ReleaseId { namespace: namespace.into(), name: name.into() },
        revision: 3,
        declared: 5,
        drifted: 0,
        oldest_drift: None,
        ready: "True",
        reason: "InSync",
        status: "deployed",
        chart: Some("web-1.2.3".to_owned()),
        values: Some([7; 32]),
        edits: "Deny".to_owned(),
        drift: "Repair".to_owned(),
        message: "all 5 objects match".to_owned(),
    }
}

/// The rows of a cluster, and what keeps its ledger open.
async fn open(url: &LedgerUrl, cluster: &str, retention: Retention) -> (ClusterFleet, Written) {
    let written = Written::start(url, cluster, retention);
    let fleet =
        eventually("the ledger is open", SOON, || async { written.ledger.fleet().ok_or("it is not") }).await;
    (fleet, written)
}

async fn releases(url: &LedgerUrl, filter: FleetFilter) -> Vec<ReleaseRow> {
    let store = Store::read(url).await.unwrap();
    let rows = store.fleet_releases(&filter).await.unwrap();
    store.close().await;
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn row_of_a_release_says_its_state_and_since_when() {
    let server = Postgres::start().await;
    let text = server.database();
    let (database, url): (_, LedgerUrl) = (text.rsplit_once('/').unwrap().1, text.parse().unwrap());
    let (east, written) = open(&url, "east", FOREVER).await;
    let since: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
    let drifted = FleetReleaseState {
        drifted: 2,
        oldest_drift: Some(since),
        ready: "False",
        reason: "Drifted",
        message: "2 of 5\0 objects drifted".to_owned(),
        ..state("shop", "web")
    };
    east.beat(&guard()).await.unwrap();
    let backdate = || {
        server.psql(database, "UPDATE releases SET since = since - interval '1 hour'").unwrap();
    };
    let mut seen = Vec::new();
    for state in [
        state("shop", "web"),
        // The same again is no news, another message in the same state no other state.
        state("shop", "web"),
        FleetReleaseState { message: "all 5 objects match, 1 as it may".to_owned(), ..state("shop", "web") },
        drifted.clone(),
    ] {
        east.write(std::slice::from_ref(&state), &[]).await.unwrap();
        let row = releases(&url, FleetFilter::default()).await.pop().unwrap();
        let age = Timestamp::now().duration_since(row.since).as_hours();
        seen.push((row.reason.clone(), age, row.message.clone()));
        backdate();
    }
    let said: Vec<_> = seen.iter().map(|(reason, age, _)| (reason.as_str(), *age)).collect();
    assert_eq!(said, [("InSync", 0), ("InSync", 1), ("InSync", 2), ("Drifted", 0)]);
    assert_eq!(seen[2].2, "all 5 objects match, 1 as it may");
    let row = releases(&url, FleetFilter::default()).await.pop().unwrap();
    assert_eq!((row.drifted, row.oldest_drift, row.ready.as_deref()), (2, Some(since), Some("False")));
    assert_eq!((row.chart.as_deref(), row.stale_since), (Some("web-1.2.3"), None));
    assert_eq!(row.message, "2 of 5\u{fffd} objects drifted");
    // A hash under the ledger's key, not the digest.
    let kept = server.psql(database, "SELECT * FROM releases").unwrap();
    assert!(row.values.as_ref().is_some_and(|hash| hash.len() == 16), "{row:?}");
    assert!(!kept.contains("0707070707"), "{kept}");

    east.write(&[], &[drifted.release]).await.unwrap();
    assert_eq!(releases(&url, FleetFilter::default()).await, []);
    written.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn silent_cluster_is_stale_and_later_forgotten_with_its_releases() {
    let server = Postgres::start().await;
    let text = server.database();
    let (database, url): (_, LedgerUrl) = (text.rsplit_once('/').unwrap().1, text.parse().unwrap());
    let retention = Retention { age: Duration::from_secs(3600), rows: u64::MAX };
    let (west, one) = open(&url, "west", retention).await;
    west.write(&[state("shop", "web")], &[]).await.unwrap();
    west.beat(&guard()).await.unwrap();
    let (east, other) = open(&url, "east", retention).await;
    let silent = |time: &str| {
        let statement = format!(
            "UPDATE guards SET heard = now() - interval '{time}' FROM clusters \
                                 WHERE clusters.id = guards.cluster AND clusters.name = 'west'"
        );
        server.psql(database, &statement).unwrap();
    };
    let fleet = || async {
        let store = Store::read(&url).await.unwrap();
        let clusters = store.fleet(&FleetFilter::default()).await.unwrap();
        store.close().await;
        clusters.into_iter().map(|it| (it.cluster, it.is_stale)).collect::<Vec<_>>()
    };
    let named = |expected: &[(&str, bool)]| -> Vec<(String, bool)> {
        expected.iter().map(|(name, is_stale)| ((*name).to_owned(), *is_stale)).collect()
    };
    for (time, expected) in [
        ("1 minute", &[("east", false), ("west", false)][..]),
        ("50 minutes", &[("east", false), ("west", true)]),
        ("70 minutes", &[("east", false)]),
    ] {
        silent(time);
        east.beat(&guard()).await.unwrap();
        assert_eq!(fleet().await, named(expected), "{time}");
        let rows = releases(&url, FleetFilter::default()).await;
        let stale: Vec<_> = rows.iter().map(|row| row.stale_since.is_some()).collect();
        let of_west: Vec<_> = expected.iter().filter(|(name, _)| *name == "west").map(|it| it.1).collect();
        assert_eq!(stale, of_west, "{time}");
    }
    // One that speaks again is there again.
    west.write(&[state("shop", "web")], &[]).await.unwrap();
    west.beat(&guard()).await.unwrap();
    assert_eq!(fleet().await, named(&[("east", false), ("west", false)]));
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn file_of_one_guard_keeps_no_fleet() {
    let url: LedgerUrl = LedgerUrl::Sqlite(folder("fleet").join("ledger.db"));
    let written = Written::start(&url, "east", FOREVER);
    assert!(written.ledger.fleet().is_none() && !written.ledger.keeps_fleet());
    written.close().await;
    for command in [&["fleet"][..], &["fleet", "releases"]] {
        let ran = run(&[command, &["--ledger", &url.to_string()]].concat(), "");
        ran.assert_failed(&["is the file of a single guard", "use the PostgreSQL"]);
    }
}
