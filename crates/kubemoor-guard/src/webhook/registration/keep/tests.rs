use serde_json::json;

use super::*;

type LiveConfiguration = ValidatingWebhookConfiguration;

fn configuration(version: &str, webhooks: &Value, managers: &[&str]) -> LiveConfiguration {
    let entry = |name: &&str| json!({"manager": name, "operation": "Update"});
    let managers: Vec<Value> = managers.iter().map(entry).collect();
    let metadata = json!({"name": "kubemoor", "resourceVersion": version, "managedFields": managers});
    serde_json::from_value(json!({"metadata": metadata, "webhooks": webhooks})).unwrap()
}

fn webhook(name: &str, policy: &str, path: &str) -> Value {
    json!({
        "name": name,
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://guard/{path}")},
    })
}

fn named(names: &[&str], policy: &str) -> Value {
    names.iter().map(|name| webhook(name, policy, "secret")).collect()
}

/// Gives what is told of a change by somebody else from `before` to `after`.
#[track_caller]
fn check(before: &Value, after: &Value, told: &[&str]) {
    let mut known = KnownConfiguration::default();
    known.note_own(&configuration("1", before, &["kubemoor"]));
    known.record_live_state(&configuration("2", after, &["kubemoor", "kubectl-edit"]));
    let changes = known.take_changes();
    let what: Vec<&str> = changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(what, told);
    assert!(changes.iter().all(|change| change.managers == ["kubectl-edit"]));
}

#[test]
fn webhook_configuration_change_is_reported_once_for_all_affected_webhooks() {
    let all = ["a.kubemoor.dev", "b.kubemoor.dev", "c.kubemoor.dev", "d.kubemoor.dev"];
    check(&named(&all, "Fail"), &named(&all, "Fail"), &[]);
    check(
        &named(&all, "Fail"),
        &named(&all, "Ignore"),
        &["failurePolicy Fail → Ignore (a.kubemoor.dev, b.kubemoor.dev, c.kubemoor.dev and 1 more)"],
    );
    check(&named(&all[..2], "Fail"), &named(&all[1..2], "Fail"), &["webhook removed (a.kubemoor.dev)"]);
    check(&named(&all[..1], "Fail"), &named(&all[..2], "Fail"), &["webhook added (b.kubemoor.dev)"]);
}

#[test]
fn the_address_is_named_and_its_token_is_not() {
    let (before, after) = (webhook("a", "Fail", "old-token"), webhook("a", "Fail", "new-token"));
    check(&json!([before]), &json!([after]), &["clientConfig (a)"]);
}

#[test]
fn late_watch_events_of_known_configuration_versions_are_not_reported() {
    let mut known = KnownConfiguration::default();
    let state = |version, policy| configuration(version, &named(&["a"], policy), &[]);
    known.record_live_state(&state("1", "Fail"));
    known.record_live_state(&state("2", "Ignore"));
    known.note_own(&state("3", "Fail"));
    assert_eq!(known.take_changes().len(), 1);
    // The watch tells of all of it afterwards.
    ["1", "2", "3"].into_iter().for_each(|version| known.record_live_state(&state(version, "Ignore")));
    assert_eq!(known.take_changes(), []);
}

#[test]
fn configuration_deletion_is_reported_once_and_its_return_if_different() {
    let mut known = KnownConfiguration::default();
    let state = |version, policy| configuration(version, &named(&["a"], policy), &[]);
    // Nothing was known of it.
    known.note_gone("deleted");
    assert_eq!(known.take_changes(), []);
    known.note_own(&state("1", "Fail"));
    known.note_gone("deleted");
    known.note_gone("deleted");
    let told = known.take_changes();
    assert_eq!(told.len(), 1);
    assert!(told[0].is_deletion);
    known.record_live_state(&state("3", "Fail"));
    assert_eq!(known.take_changes(), []);
    known.note_gone("deleted");
    known.record_live_state(&state("5", "Ignore"));
    let told: Vec<String> = known.take_changes().into_iter().map(|change| change.what).collect();
    assert_eq!(told, ["deleted", "failurePolicy Fail → Ignore (a)"]);
}

#[test]
fn new_leader_tells_recent_changes_by_others_not_by_guards() {
    let start = Instant::now();
    let state = |version, policy, managers: &[&str]| configuration(version, &named(&["a"], policy), managers);
    let told = |since: Duration, writer: &str| {
        let mut known = KnownConfiguration::default();
        known.record_live_state(&state("1", "Fail", &["kubemoor"]));
        known.record_live_state(&state("2", "Ignore", &["kubemoor", writer]));
        known.set_aside(start);
        assert_eq!(known.take_changes(), []);
        known.take_over(start + since);
        known.take_changes().into_iter().map(|change| change.managers).collect::<Vec<_>>()
    };
    assert_eq!(told(Duration::from_secs(5), "kubectl-edit"), [["kubectl-edit"]]);
    assert_eq!(told(LEADERLESS, "kubectl-edit"), [] as [Vec<String>; 0], "the leader then has told of it");
    let mut known = KnownConfiguration::default();
    known.record_live_state(&state("1", "Fail", &[]));
    known.record_live_state(&state("2", "Ignore", &["kubemoor"]));
    known.take_over(start);
    assert_eq!(known.take_changes(), []);
}
