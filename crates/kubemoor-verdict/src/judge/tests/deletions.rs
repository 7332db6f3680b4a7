//! Deletions, by the state of the record.

use super::*;

const DROPPED: &str = "";

fn delete(claim: Release) -> JudgeCase<'static> {
    JudgeCase { claims: vec![claim], operation: Operation::Delete, new: None, ..JudgeCase::default() }
}

fn created(time: &str) -> Option<Value> {
    Some(live(&[("/metadata/creationTimestamp", json!(time))]))
}

fn kept() -> Option<Value> {
    Some(live(&[("/metadata/annotations/helm.sh~1resource-policy", json!("keep"))]))
}

fn keeping() -> String {
    MANIFEST.replace("{name: web}", "{name: web, annotations: {helm.sh/resource-policy: keep}}")
}

fn uninstalling(manifest: &str) -> Release {
    assembled(SampleRecord { status: ReleaseStatus::Uninstalling, manifest, ..SampleRecord::default() }, None)
}

#[test]
fn a_deployed_release_deletes_nothing() {
    check(delete(deployed(MANIFEST)), "Deny deletion");
    check(delete(second(ReleaseStatus::Superseded, MANIFEST, DROPPED)), "Deny deletion");
    check(JudgeCase { owner: ObjectOwner::Nobody, ..delete(deployed(MANIFEST)) }, "Deny deletion");
}

#[test]
fn an_operation_deletes_what_only_the_baseline_has() {
    for status in
        [ReleaseStatus::PendingInstall, ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback]
    {
        let dropped = || delete(second(status, DROPPED, MANIFEST));
        check(dropped(), "Allow in-band");
        check(JudgeCase { old: kept(), ..dropped() }, "Deny deletion");
        check(delete(second(status, MANIFEST, MANIFEST)), "Deny deletion");
        check(delete(second(status, MANIFEST, DROPPED)), "Deny deletion");
        check(JudgeCase { now: "2026-05-01T13:00:01Z", ..dropped() }, "Deny deletion");
        check(JudgeCase { now: "2026-05-01T13:00:00Z", ..dropped() }, "Allow in-band");
    }
    check(delete(second(ReleaseStatus::Deployed, DROPPED, MANIFEST)), "Allow not-declared");
}

#[test]
fn an_uninstallation_deletes_all_but_what_the_manifest_keeps() {
    check(delete(uninstalling(MANIFEST)), "Allow in-band");
    check(JudgeCase { old: kept(), ..delete(uninstalling(MANIFEST)) }, "Allow in-band");
    check(delete(uninstalling(&keeping())), "Deny deletion");
    check(JudgeCase { now: "2026-05-01T13:00:01Z", ..delete(uninstalling(MANIFEST)) }, "Deny deletion");
    check(
        JudgeCase { new: scaled(5), operation: Operation::Update, ..delete(uninstalling(MANIFEST)) },
        "Deny drift? /spec/replicas",
    );
}

#[test]
fn failed_operation_may_delete_its_new_objects_for_ten_minutes() {
    let failed = || delete(second(ReleaseStatus::Failed, MANIFEST, DROPPED));
    check(JudgeCase { old: created("2026-05-01T12:00:01Z"), ..failed() }, "Allow in-band");
    check(JudgeCase { old: created("2026-05-01T12:00:00Z"), ..failed() }, "Allow in-band");
    check(JudgeCase { old: created("2026-05-01T11:59:59Z"), ..failed() }, "Deny deletion");
    check(JudgeCase { old: created("never"), ..failed() }, "Deny deletion");
    let late = || JudgeCase { old: created("2026-05-01T12:00:01Z"), ..failed() };
    check(JudgeCase { now: "2026-05-01T12:10:00Z", ..late() }, "Allow in-band");
    check(JudgeCase { now: "2026-05-01T12:10:01Z", ..late() }, "Deny deletion");
}

#[test]
fn claim_that_lets_the_object_go_is_enough() {
    let both = |other: Release| JudgeCase { claims: vec![deployed(MANIFEST), other], ..delete(deployed("")) };
    let api = |status| {
        assembled(SampleRecord { name: "api", status, manifest: MANIFEST, ..SampleRecord::default() }, None)
    };
    check(both(api(ReleaseStatus::Deployed)), "Deny deletion");
    check(both(api(ReleaseStatus::Uninstalling)), "Allow in-band");
}
