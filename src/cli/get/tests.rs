use serde_json::json;

use super::*;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::GuardedReleaseStatus;
use kubemoor_verdict::health::{GuardLeaseState, ReportedHealth};

#[test]
fn unguarded_releases_are_listed_beside_guarded_releases() {
    let id = |name: &str| ReleaseId { namespace: "shop".into(), name: name.into() };
    let rows = [
        ListedRelease::guarded(
            id("new"),
            ReportedHealth::new(
                GuardedReleaseStatus::default(),
                &GuardLeaseState::Unknown,
                Timestamp::UNIX_EPOCH,
            ),
        ),
        ListedRelease::unguarded(id("old"), "it is uninstalled; its history was kept".to_owned()),
    ];
    let lines = rows.each_ref().map(|row| {
        let cells: Vec<_> = row.cells().into_iter().map(|(text, _)| text).collect();
        assert_eq!(cells.len(), ListedRelease::head().len());
        cells.join(" ")
    });
    assert!(lines[0].contains("Unknown") && lines[0].contains("not checked it yet"), "{lines:?}");
    assert!(lines[1].contains("NotGuarded") && lines[1].ends_with("its history was kept"), "{lines:?}");
    let states = |text: &str| rows.each_ref().map(|row| parse_state(text).unwrap().is_of(row));
    assert_eq!(states("unknown"), [true, false]);
    assert_eq!(states("not-guarded"), [false, true]);
    assert_eq!(states("drifted"), [false, false]);
}

#[test]
fn accepted_condition_counts_only_for_the_observed_generation() {
    let policy = |judged: i64, status: &str| {
        ListedPolicy::from_resource(&json!({
            "metadata": {"name": "production", "generation": 2},
            "spec": {"priority": 10, "edits": "Deny", "releases": {"names": ["shop-*"]}},
            "status": {
                "observedGeneration": judged,
                "conditions": [{"type": "Accepted", "status": status, "reason": "Flawed", "message": "no"}],
            },
        }))
    };
    let accepted = policy(2, "True");
    assert_eq!((accepted.accepted.as_str(), accepted.message.as_str(), accepted.priority), ("True", "", 10));
    let refused = policy(2, "False");
    assert_eq!((refused.accepted.as_str(), refused.message.as_str()), ("False", "no"));
    assert_eq!(policy(1, "True").accepted, "Unknown");
    let gone = ListedPolicy::deleted(&json!({"metadata": {"name": "production"}}));
    assert_eq!((gone.accepted.as_str(), gone.reason.as_str()), ("False", "Deleted"));
    let wide: Vec<_> = accepted.cells().into_iter().map(|(text, _)| text).collect();
    assert_eq!(wide, ["production", "10", "Deny", "-", "True", "Flawed", "shop-*", "*", "no"]);
    assert_eq!(ListedPolicy::head().len(), wide.len());
}
