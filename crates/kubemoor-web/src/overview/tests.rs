use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;
use kubemoor_ledger::entry::LedgerEntry;

fn entry(time: &str, user: &str, verdict: &str) -> LedgerEntry {
    serde_json::from_value(json!({
        "id": "1", "time": time, "kind": "verdict", "cluster": "here", "namespace": "shop", "release": "web",
        "revision": 1, "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
        "operation": "UPDATE", "user": user, "groups": [], "verdict": verdict, "reason": "drift", "detail": "",
        "fields": [], "moreFields": 0, "uid": "",
    }))
    .unwrap()
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Everything until the evening of the tenth of January.
fn span() -> DaySpan {
    DaySpan::until(time("2026-01-10T19:00:00Z"))
}

fn newest(entries: impl Into<Vec<LedgerEntry>>, next: Option<&str>) -> EntryPage {
    EntryPage { items: entries.into(), next: next.map(str::to_owned), missing: Vec::new() }
}

#[test]
fn days_and_users_are_counted_since_one_time() {
    let entries = [
        entry("2026-01-10T12:00:00Z", "alice", "Deny"),
        entry("2026-01-01T00:00:00Z", "alice", "Deny"),
        entry("2026-01-01T00:00:00Z", "bob", "Deny"),
    ];
    let denials = DenialHistory::count(&span(), &newest(entries, None));
    assert_eq!(denials.users, [("alice".to_owned(), 2), ("bob".to_owned(), 1)]);
    assert_eq!(denials.days.len(), 10);
    assert_eq!(denials.days.values().sum::<u64>(), 3);
    let place = LinkScope { cluster: None, namespace: None };
    let shown = denied(place, &denials).into_string();
    let since = "since=2026%2D01%2D01T00%3A00%3A00Z";
    assert!(shown.contains(&format!("by=alice&amp;{since}")), "{shown}");
    assert!(shown.contains(&format!("verdict=Deny&amp;{since}&amp;until=2026%2D01%2D01T23")), "{shown}");
    assert!(!shown.contains("Only the newest"), "{shown}");
}

#[test]
fn days_beyond_the_newest_rows_are_named_and_not_shown() {
    let entries = [
        entry("2026-01-10T12:00:00Z", "alice", "Reported"),
        entry("2026-01-09T12:00:00Z", "alice", "Restored"),
    ];
    let drift = DriftHistory::count(&span(), &newest(entries, Some("7")));
    let days: Vec<_> = drift.days.iter().map(|(day, counts)| (day.to_string(), *counts)).collect();
    assert_eq!(days, [("2026-01-09".to_owned(), (0, 1)), ("2026-01-10".to_owned(), (1, 0))]);
    let place = LinkScope { cluster: None, namespace: None };
    let shown = drifted(place, &drift).into_string();
    for part in
        ["those since 2026-01-09T12:00:00Z", "since=2026%2D01%2D09T12%3A00%3A00Z&amp;until=2026%2D01%2D09T23"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("2026-01-08"), "{shown}");
}

#[test]
fn as_many_rows_as_are_counted_are_not_called_cut() {
    let entry = entry("2026-01-02T12:00:00Z", "alice", "Deny");
    let denials = DenialHistory::count(&span(), &newest(vec![entry; COUNTED], None));
    assert!(!denials.span.is_cut && denials.days.len() == 10, "{:?}", denials.span);
}

#[tokio::test]
async fn counts_are_kept_for_their_place_until_rights_end() {
    let (histories, counted) = (ReleaseHistories::default(), AtomicU32::new(0));
    let count = async |histories: &ReleaseHistories, namespace: &str, version: u64, is_away: bool| {
        let place = HistoryKey { cluster: None, namespace: Some(namespace.to_owned()), version };
        let history = async {
            counted.fetch_add(1, Ordering::Relaxed);
            if is_away {
                return Err(InspectError::Named("away".to_owned()));
            }
            let (span, none) = (DaySpan::until(Timestamp::UNIX_EPOCH), EntryPage::default());
            Ok(RecentHistory {
                drift: DriftHistory::count(&span, &none),
                denials: DenialHistory::count(&span, &none),
                missing: Vec::new(),
            })
        };
        let kept = histories.keep(place, history).await;
        assert_eq!(kept.is_err(), is_away);
        counted.swap(0, Ordering::Relaxed)
    };
    assert_eq!(count(&histories, "shop", 0, true).await, 1);
    assert_eq!(count(&histories, "shop", 0, false).await, 1, "a failure is not kept");
    assert_eq!(count(&histories, "shop", 0, false).await, 0);
    assert_eq!(count(&histories, "bank", 0, false).await, 1, "another namespace");
    assert_eq!(count(&histories, "shop", 1, false).await, 1, "after a change");
    assert_eq!(count(&ReleaseHistories::default(), "shop", 0, false).await, 1, "another visitor");
    histories.forget();
    assert_eq!(count(&histories, "shop", 0, false).await, 1);
}
