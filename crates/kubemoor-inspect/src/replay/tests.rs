use serde_json::json;

use super::*;
use crate::sample_policies::policy;

/// A row about a change of the replicas of `shop/web` or of a record of it.
fn row(verdict: &str, user: &str, facts: Option<&serde_json::Value>) -> LedgerEntry {
    serde_json::from_value(json!({
        "id": "1", "time": "2026-11-21T12:00:00Z", "kind": "verdict", "cluster": "here", "namespace": "shop",
        "release": "web", "revision": 1,
        "object": {"group": "apps", "kind": "Deployment", "namespace": "shop", "name": "web"},
        "operation": "UPDATE", "user": user, "groups": [], "verdict": verdict, "reason": "drift",
        "detail": "", "fields": [{"path": "/spec/replicas"}], "moreFields": 0, "uid": "",
        "facts": facts.map(ToString::to_string),
    }))
    .unwrap()
}

fn scaled() -> serde_json::Value {
    json!({"edit": {"claims": [{
        "release": {"namespace": "shop", "name": "web"}, "revision": 1, "pending": false,
        "evidence": "canonical",
        "alternatives": [{
            "declared": {"version": "v1"},
            "changes": [{"path": "/spec/replicas", "is": "differs", "declared": 2, "old": 2, "new": 5}],
        }],
    }]}})
}

fn report(spec: &str, rows: &[LedgerEntry]) -> ReplayReport {
    let defaults = Policy::new(
        kubemoor_declare::model::EditsMode::Warn,
        kubemoor_declare::model::DriftMode::Report,
        std::time::Duration::from_secs(3600),
    );
    let since = "2026-11-20T12:00:00Z".parse().unwrap();
    let run = ReplayRun::new(defaults, vec![policy("strict", spec)], since);
    rows.chunks(300).for_each(|rows| run.0.lock().add(rows));
    run.report()
}

fn lines(report: &ReplayReport) -> Vec<String> {
    let line = |ChangedVerdict { key, edits, .. }: &ChangedVerdict| {
        let VerdictKey { user, field, was, now, rule, .. } = key;
        format!("{edits} {user} {field}: {was} -> {now} by {rule}")
    };
    report.changes.iter().map(line).collect()
}

#[test]
fn verdicts_that_change_are_told_by_user_field_and_rule() {
    let facts = scaled();
    let row = |verdict, user| row(verdict, user, Some(&facts));
    let mut before = row("Warn", "alice");
    before.time = "2026-11-21T11:59:00Z".parse().unwrap();
    let rows = [row("Warn", "alice"), row("Warn", "bob"), row("Deny", "bob"), before];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.edits, found.replayed, found.refused, found.permitted), (4, 4, 3, 0));
    assert_eq!(
        lines(&found),
        [
            "2 alice /spec/replicas: Warn -> Deny by edits: Deny (policy strict)",
            "1 bob /spec/replicas: Warn -> Deny by edits: Deny (policy strict)"
        ]
    );
    let found = report("ignore: [{paths: [/spec]}]", &rows);
    assert_eq!((found.refused, found.permitted), (0, 1));
    assert!(
        lines(&found).contains(&"1 bob /spec/replicas: Deny -> Allow by ignore (policy strict)".to_owned())
    );
}

#[test]
fn unreplayable_changes_are_counted_by_reason() {
    let cut = json!("cut");
    let (mut whole, mut garbled) = (row("Deny", "alice", None), row("Warn", "bob", None));
    whole.reason = "too-large".to_owned();
    garbled.facts = Some("{}".to_owned());
    let rows = [whole, garbled, row("Warn", "carol", None), row("Warn", "dave", Some(&cut))];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.edits, found.replayed, found.refused), (4, 0, 0));
    let why: Vec<_> = found.not_replayable.into_iter().collect();
    assert_eq!(why, [("cut", 1), ("unknown", 1), ("unrecorded", 1), ("whole", 1)]);
}

#[test]
fn rows_about_one_change_are_counted_apart() {
    let facts = scaled();
    let rows = [
        row("Deny", "bob", Some(&facts)),
        row("Deny", "bob", Some(&facts)),
        row("Warn", "bob", Some(&facts)),
        row("Warn", "bob", Some(&facts)),
    ];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.edits, found.repeats, found.replayed), (2, 2, 2));
}
