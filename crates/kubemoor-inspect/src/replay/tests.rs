use serde_json::json;

use super::*;
use crate::sample_policies::policy;
use kubemoor_policy::Policy;

/// A row about a change of the replicas of `shop/web` or of a record of it.
fn row(verdict: &str, user: &str, facts: Option<&serde_json::Value>) -> Entry {
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

fn scaled(pending: bool) -> serde_json::Value {
    json!({"edit": {"claims": [{
        "release": {"namespace": "shop", "name": "web"}, "revision": 1, "pending": pending,
        "evidence": "canonical",
        "alternatives": [{
            "declared": {"version": "v1"},
            "changes": [{"path": "/spec/replicas", "is": "differs", "declared": 2, "old": 2, "new": 5}],
        }],
    }]}})
}

fn recorded() -> serde_json::Value {
    json!({"record": {"revision": 1, "releases": [{"namespace": "shop", "name": "web"}]}})
}

fn report(spec: &str, rows: &[Entry]) -> Report {
    by_threads(1, spec, rows)
}

fn by_threads(threads: usize, spec: &str, rows: &[Entry]) -> Report {
    let defaults = Policy::new(
        kubemoor_declare::model::EditsMode::Warn,
        kubemoor_declare::model::DriftMode::Report,
        std::time::Duration::from_secs(3600),
    );
    let mut judges = Judges::new(threads, &defaults, &[policy("strict", spec)]);
    let mut tally = Tally::new("2026-11-20T12:00:00Z".parse().unwrap());
    rows.chunks(300).for_each(|rows| tally.add(&mut judges, rows));
    tally.finish()
}

fn told(report: &Report) -> Vec<String> {
    let line = |Changed { key, edits, .. }: &Changed| {
        let Key { user, field, was, now, rule, .. } = key;
        format!("{edits} {user} {field}: {was} -> {now} by {rule}")
    };
    report.changes.iter().map(line).collect()
}

#[test]
fn report_is_the_same_by_any_number_of_threads() {
    let (facts, begun) = (scaled(true), recorded());
    let rows: Vec<_> = (0..1000)
        .map(|number| {
            let user = format!("user-{}", number % 7);
            match number % 5 {
                0 => row("Warn", &user, None),
                1 => {
                    let mut begun = row("Allow", &user, Some(&begun));
                    begun.operation = Some("CREATE".to_owned());
                    begun
                }
                2 => row("Deny", &format!("user-{number}"), Some(&facts)),
                _ => row("Warn", &user, Some(&facts)),
            }
        })
        .collect();
    let told = |threads| {
        let report = by_threads(threads, "edits: Deny", &rows);
        (serde_json::to_string(&report).unwrap(), format!("{:?}", report.by_day))
    };
    let alone = told(1);
    assert!(alone.0.contains("\"replayed\":800"), "{}", alone.0);
    for threads in [2, 3, 64] {
        assert_eq!(told(threads), alone, "{threads} threads");
    }
}

#[test]
fn verdicts_that_change_are_told_by_user_field_and_rule() {
    let facts = scaled(false);
    let row = |verdict, user| row(verdict, user, Some(&facts));
    let rows = [row("Warn", "alice"), row("Warn", "alice"), row("Warn", "bob"), row("Deny", "bob")];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.edits, found.replayed, found.refused, found.permitted), (4, 4, 3, 0));
    assert_eq!(
        told(&found),
        [
            "2 alice /spec/replicas: Warn -> Deny by edits: Deny (policy strict)",
            "1 bob /spec/replicas: Warn -> Deny by edits: Deny (policy strict)"
        ]
    );
    let found = report("ignore: [{paths: [/spec]}]", &rows);
    assert_eq!((found.refused, found.permitted), (0, 1));
    assert!(
        told(&found).contains(&"1 bob /spec/replicas: Deny -> Allow by ignore (policy strict)".to_owned())
    );
}

#[test]
fn unreplayable_changes_are_counted_by_reason() {
    let cut = json!("cut");
    let (mut whole, mut garbled) = (row("Deny", "alice", None), row("Warn", "alice", None));
    whole.reason = "too-large".to_owned();
    garbled.facts = Some("{}".to_owned());
    let rows = [whole, garbled, row("Warn", "alice", None), row("Warn", "alice", Some(&cut))];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.edits, found.replayed, found.refused), (4, 0, 0));
    let why: Vec<_> = found.not_replayable.into_iter().collect();
    assert_eq!(why, [("cut", 1), ("unknown", 1), ("unrecorded", 1), ("whole", 1)]);
}

#[test]
fn helm_operation_is_affected_only_by_refusals_of_its_user() {
    let (during, record) = (scaled(true), recorded());
    let created = |user| {
        let mut row = row("Allow", user, Some(&record));
        row.operation = Some("CREATE".to_owned());
        row
    };
    let touched = |spec, rows: &[Entry]| {
        let found = report(spec, rows);
        (found.helm_operations, found.helm_operations_touched, found.refused)
    };
    // Newest first.
    let by_helm = [row("Warn", "helm", Some(&during)), created("helm")];
    assert_eq!(touched("edits: Deny", &by_helm), (1, 1, 1));
    assert_eq!(touched("edits: Warn", &by_helm), (1, 0, 0));
    let by_hand = [row("Warn", "alice", Some(&during)), created("helm")];
    assert_eq!(touched("edits: Deny", &by_hand), (1, 0, 1));
    let operators = "edits: Deny\noperators: [{kind: User, name: ci}]";
    assert_eq!(touched(operators, &[created("helm")]), (1, 1, 1));
    assert_eq!(touched(operators, &[created("ci")]), (1, 0, 0));
}

#[test]
fn affected_helm_operations_are_named_with_cluster_and_users() {
    let (during, record) = (scaled(true), recorded());
    let created = |cluster: &str, user| {
        let mut row = row("Allow", user, Some(&record));
        (row.operation, row.cluster) = (Some("CREATE".to_owned()), cluster.to_owned());
        row
    };
    let changed = |cluster: &str, user| {
        let mut row = row("Warn", user, Some(&during));
        row.cluster = cluster.to_owned();
        row
    };
    // A user of one cluster does not write the records of another one.
    let rows =
        [changed("east", "helm"), changed("west", "helm"), created("east", "helm"), created("west", "argo")];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.helm_operations, found.helm_operations_touched), (2, 1));
    let operation = HelmOperation {
        cluster: "east".to_owned(),
        namespace: "shop".to_owned(),
        release: "web".to_owned(),
        revision: 1,
    };
    assert_eq!(found.touched_operations, [TouchedOperation { operation, users: vec!["helm".to_owned()] }]);
}

#[test]
fn rows_about_one_refused_change_are_counted_apart() {
    let facts = scaled(false);
    let rows = [
        row("Deny", "bob", Some(&facts)),
        row("Deny", "bob", Some(&facts)),
        row("Warn", "bob", Some(&facts)),
    ];
    let found = report("edits: Deny", &rows);
    assert_eq!((found.edits, found.repeats, found.replayed), (2, 1, 2));
    assert_eq!((found.days[0].edits, found.days[0].repeats), (2, 1));
}
