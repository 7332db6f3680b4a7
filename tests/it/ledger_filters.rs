//! Every filter of the ledger, the same on SQLite and on PostgreSQL.

use jiff::SignedDuration;
use kubemoor_declare::model::{NamedObject, Operation};
use kubemoor_ledger::query::Filter;
use kubemoor_ledger::store::Store;

use crate::ledger::{FOREVER, Written, begin, both, details, row};

/// Filters, and the rows that each of them finds.
fn filters() -> Vec<(Filter, Vec<&'static str>)> {
    let some = |text: &str| Some(text.to_owned());
    let east = Filter { cluster: some("east"), ..Filter::default() };
    let verdicts = |verdicts: &[&str]| verdicts.iter().map(|verdict| (*verdict).to_owned()).collect();
    let after = |seconds| Some(begin() + SignedDuration::from_secs(seconds));
    vec![
        (Filter::default(), vec!["row 5", "row 4", "row 3", "row 2", "row 1"]),
        (east.clone(), vec!["row 4", "row 3", "row 2", "row 1"]),
        (Filter { cluster: some("north"), ..Filter::default() }, vec![]),
        (Filter { namespace: some("shop"), ..east.clone() }, vec!["row 3", "row 2", "row 1"]),
        (Filter { release: some("web"), ..east.clone() }, vec!["row 4", "row 2", "row 1"]),
        (Filter { release: some("web"), namespace: some("shop"), ..east.clone() }, vec!["row 2", "row 1"]),
        (Filter { user: some("bob"), ..east.clone() }, vec!["row 2"]),
        (Filter { verdicts: verdicts(&["Deny"]), ..east.clone() }, vec!["row 4", "row 1"]),
        (
            Filter { verdicts: verdicts(&["Warn", "Deny", "Warn"]), ..east.clone() },
            vec!["row 4", "row 3", "row 2", "row 1"],
        ),
        (
            Filter { verdicts: verdicts(&["Warn", "Deny"]), user: some("alice"), ..east.clone() },
            vec!["row 4", "row 3", "row 1"],
        ),
        (Filter { until: after(3), ..east.clone() }, vec!["row 2", "row 1"]),
        (
            Filter { since: after(2), until: after(4), namespace: some("shop"), ..east.clone() },
            vec!["row 3", "row 2"],
        ),
        (Filter { operations: vec![Operation::Create], release: some("db"), ..east.clone() }, vec!["row 3"]),
        (Filter { operations: vec![Operation::Update, Operation::Delete], ..east.clone() }, vec![]),
        (Filter { object: object_filter("deploy/web"), ..east.clone() }, vec!["row 4", "row 2", "row 1"]),
        (Filter { object: object_filter("Deployments.apps/db"), ..east.clone() }, vec!["row 3"]),
        (Filter { object: object_filter("deployment.batch/db"), ..east.clone() }, vec![]),
        (Filter { object: object_filter("cm/db"), ..east.clone() }, vec![]),
        (Filter { object: object_filter("deployment/' OR 1=1 --"), ..east.clone() }, vec![]),
        (Filter { since: after(3), ..east.clone() }, vec!["row 4", "row 3"]),
        (Filter { user: some("' OR 1=1 --"), ..east.clone() }, vec![]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rows_are_filtered_paged_and_sorted_newest_first() {
    for url in both().await {
        let written = Written::start(&url, "east", FOREVER);
        written.ledger.record(row(1, "shop", "web", "alice", "Deny"));
        written.ledger.record(row(2, "shop", "web", "bob", "Warn"));
        written.ledger.record(row(3, "shop", "db", "alice", "Warn"));
        written.ledger.record(row(4, "prod", "web", "alice", "Deny"));
        written.close().await;
        let other = Written::start(&url, "west", FOREVER);
        other.ledger.record(row(5, "shop", "web", "alice", "Deny"));
        other.close().await;

        let store = Store::read(&url).await.unwrap();
        for (filter, expected) in filters() {
            assert_eq!(details(&store.page(&filter).await.unwrap()), expected, "{url}: {filter:?}");
        }

        for filter in [
            Filter { limit: Some(2), ..Filter::default() },
            // Verdict by verdict, each of which ends elsewhere.
            Filter {
                limit: Some(2),
                verdicts: ["Warn", "Deny"].map(str::to_owned).to_vec(),
                ..Filter::default()
            },
        ] {
            assert_eq!(pages(&store, filter).await, ["row 5,row 4", "row 3,row 2", "row 1"], "{url}");
        }
        store.close().await;
    }
}

fn object_filter(text: &str) -> Option<NamedObject> {
    Some(text.parse().unwrap())
}

/// The pages of a filter, one after the other.
async fn pages(store: &Store, mut filter: Filter) -> Vec<String> {
    let mut pages = Vec::new();
    loop {
        let page = store.page(&filter).await.unwrap();
        pages.push(details(&page).join(","));
        let Some(next) = page.next else { return pages };
        filter.before = Some(next.parse().unwrap());
    }
}
