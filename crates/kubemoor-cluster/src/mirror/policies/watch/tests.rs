use super::*;

fn assessment(accepted: bool, reason: &'static str) -> Assessment {
    Assessment { accepted, reason, message: "In force.".to_owned() }
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00.5Z".parse().unwrap()
}

#[test]
fn a_condition_is_written_once() {
    let first = with(&[], &assessment(true, "Accepted"), 1, now()).unwrap();
    assert_eq!(first[0]["lastTransitionTime"], "2026-03-01T12:00:00Z");
    assert_eq!(with(&first, &assessment(true, "Accepted"), 1, now()), None);
}

#[test]
fn the_time_changes_with_the_status_alone() {
    let first = with(&[], &assessment(true, "Accepted"), 1, now()).unwrap();
    let later = "2026-03-02T12:00:00Z".parse().unwrap();
    let again = with(&first, &assessment(true, "MatchesNothing"), 2, later).unwrap();
    assert_eq!((&again[0]["reason"], &again[0]["observedGeneration"]), (&json!("MatchesNothing"), &json!(2)));
    assert_eq!(again[0]["lastTransitionTime"], "2026-03-01T12:00:00Z");
    let refused = with(&again, &assessment(false, "InvalidPath"), 3, later).unwrap();
    assert_eq!(
        (&refused[0]["status"], &refused[0]["lastTransitionTime"]),
        (&json!("False"), &json!("2026-03-02T12:00:00Z"))
    );
}

#[test]
fn conditions_of_others_stay() {
    let others = json!({"type": "Audited", "status": "True"});
    let written = with(std::slice::from_ref(&others), &assessment(true, "Accepted"), 1, now()).unwrap();
    assert_eq!((written.len(), &written[0]), (2, &others));
    assert_eq!(with(&written, &assessment(true, "Accepted"), 1, now()), None);
}

#[test]
fn policy_is_readable_despite_an_invalid_status() {
    let mut object = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "p"},
        "spec": {"edits": "Deny"}, "status": {"conditions": "nonsense"},
    });
    assert_eq!(read(&mut object).unwrap().name, "p");
}

#[test]
fn a_field_that_is_not_known_is_a_flaw() {
    let mut object = json!({"metadata": {"name": "p"}, "spec": {"edit": "Deny"}});
    let flaws = read(&mut object).unwrap_err();
    assert!(flaws[0].message.contains("edit"), "{flaws:?}");
}
