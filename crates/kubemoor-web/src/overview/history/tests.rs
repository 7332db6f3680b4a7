use jiff::Timestamp;
use serde_json::json;

use super::*;
use kubemoor_ledger::entry::Entry;
use kubemoor_ledger::query::Page;

fn entry(time: &str, user: &str, verdict: &str) -> Entry {
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
fn span() -> Span {
    Span::until(time("2026-01-10T19:00:00Z"))
}

fn newest(entries: impl Into<Vec<Entry>>, next: Option<&str>) -> Page {
    Page { items: entries.into(), next: next.map(str::to_owned), missing: Vec::new() }
}

#[test]
fn days_and_users_are_counted_since_one_time() {
    let entries = [
        entry("2026-01-10T12:00:00Z", "alice", "Deny"),
        entry("2026-01-01T00:00:00Z", "alice", "Deny"),
        entry("2026-01-01T00:00:00Z", "bob", "Deny"),
    ];
    let denials = Denials::of(&span(), &newest(entries, None));
    assert_eq!(denials.users, [("alice".to_owned(), 2), ("bob".to_owned(), 1)]);
    assert_eq!(denials.days.len(), 10);
    assert_eq!(denials.days.values().sum::<u64>(), 3);
    let place = Place { cluster: None, namespace: None };
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
    let drift = Drift::of(&span(), &newest(entries, Some("7")));
    let days: Vec<_> = drift.days.iter().map(|(day, counts)| (day.to_string(), *counts)).collect();
    assert_eq!(days, [("2026-01-09".to_owned(), (0, 1)), ("2026-01-10".to_owned(), (1, 0))]);
    let place = Place { cluster: None, namespace: None };
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
    let denials = Denials::of(&span(), &newest(vec![entry; COUNTED], None));
    assert!(!denials.span.is_cut && denials.days.len() == 10, "{:?}", denials.span);
}
