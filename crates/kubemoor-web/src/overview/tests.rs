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

/// What these rows tell on the evening of the tenth of January, and the page of it.
fn counted(items: Vec<LedgerEntry>, next: Option<&str>) -> (RecentHistory, String) {
    let now = "2026-01-10T19:00:00Z".parse().unwrap();
    let newest = EntryPage { items, next: next.map(str::to_owned), missing: Vec::new() };
    let history = Arc::new(RecentHistory::count(since(now), now, newest));
    let shown = last_days(&Ok(Arc::clone(&history)), LinkScope { cluster: None, namespace: None });
    (Arc::into_inner(history).unwrap(), shown.into_string())
}

#[test]
fn days_and_users_are_counted_since_one_time() {
    let entries = vec![
        entry("2026-01-10T12:00:00Z", "alice", "Deny"),
        entry("2026-01-01T00:00:00Z", "alice", "Deny"),
        entry("2026-01-01T00:00:00Z", "bob", "Deny"),
    ];
    let (history, shown) = counted(entries, None);
    assert_eq!(history.users, [("alice".to_owned(), 2), ("bob".to_owned(), 1)]);
    assert_eq!(history.days.len(), 10);
    assert_eq!(history.days.values().map(|counts| counts.denied).sum::<u64>(), 3);
    let since = "since=2026%2D01%2D01T00%3A00%3A00Z";
    for part in [
        &format!("verdict=Deny&amp;{since}&amp;by=alice"),
        &format!("{since}&amp;until=2026%2D01%2D01T23%3A59%3A59%2E999999999Z&amp;verdict=Deny"),
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("Only the newest"), "{shown}");
}

#[test]
fn days_beyond_the_newest_rows_are_named_and_not_shown() {
    let entries = vec![
        entry("2026-01-10T12:00:00Z", "alice", "Reported"),
        entry("2026-01-09T12:00:00Z", "alice", "Restored"),
    ];
    let (history, shown) = counted(entries, Some("7"));
    let days: Vec<_> = history.days.iter().map(|(day, it)| (day.to_string(), it.left, it.repaired)).collect();
    assert_eq!(days, [("2026-01-09".to_owned(), 0, 1), ("2026-01-10".to_owned(), 1, 0)]);
    for part in
        ["those since 2026-01-09T12:00:00Z", "since=2026%2D01%2D09T12%3A00%3A00Z&amp;until=2026%2D01%2D09T23"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("2026-01-08"), "{shown}");
}

#[test]
fn as_many_rows_as_are_counted_are_not_called_cut() {
    let (history, _) = counted(vec![entry("2026-01-02T12:00:00Z", "alice", "Deny"); COUNTED], None);
    assert!(!history.is_cut && history.days.len() == 10, "{:?}", history.days);
}
