//! Revisions that follow each other, by tables of events.

use super::*;
use crate::sample_releases::second;

#[test]
fn object_from_before_a_failed_upgrade_is_judged_by_the_next() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    let changed = MANIFEST.replace("k: v", "k: w");
    let next = SampleRecord { manifest: &changed, revision: 3, ..SampleRecord::default() };
    for (release, expected) in [
        (second(ReleaseStatus::Failed, &changed, MANIFEST), HealthReason::ReleaseFailed),
        (assembled(next, None), HealthReason::Drifted),
    ] {
        scene.record(Arc::new(release));
        assert_eq!(scene.work(), "object");
        assert_eq!(scene.reason(), Some(expected));
    }
}

#[test]
fn object_that_a_failed_upgrade_dropped_and_deleted_is_not_missing() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.record(Arc::new(second(ReleaseStatus::Failed, "", MANIFEST)));
    scene.work();
    for value in [None, Some("v"), None] {
        scene.change(value);
        scene.work();
        let report = scene.report.as_ref().unwrap();
        let found = (report.health().reason, report.drifted.len(), report.health().counts.matching);
        assert_eq!(found, (HealthReason::ReleaseFailed, 0, 1), "{value:?}");
    }
}

/// kubectl takes a field during the operation. Or after it, and the watch of the object is ahead of the watch of Helm's
/// records: the loop then still takes the operation for running.
#[test]
fn fields_taken_during_an_operation_return_to_helm_after_it() {
    for underway in [ReleaseStatus::PendingUpgrade, ReleaseStatus::PendingRollback] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        for status in [underway, ReleaseStatus::Deployed] {
            scene.record(Arc::new(second(status, MANIFEST, MANIFEST)));
            if status == underway {
                scene.managed = Some(taken());
                scene.change(Some("v"));
                assert_eq!(scene.work(), "", "Helm may take them back itself");
                assert_eq!(scene.report.as_ref().map(|report| report.drifted.len()), Some(0));
            }
        }
        assert_eq!(scene.work(), "object object records MERGE", "after {underway:?}");
    }
}

#[test]
fn fields_taken_from_a_failed_release_return_to_helm_when_it_is_deployed() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    for status in [ReleaseStatus::Failed, ReleaseStatus::Deployed] {
        scene.record(Arc::new(second(status, MANIFEST, MANIFEST)));
        if status == ReleaseStatus::Failed {
            scene.managed = Some(taken());
            scene.work();
            scene.change(Some("v"));
            assert_eq!(scene.work(), "", "a failed release is not repaired");
        }
    }
    assert_eq!(scene.work(), "object object records MERGE");
}

/// It begins at revision 1 again. Its record may come before the end of the former one is told.
#[test]
fn fields_return_to_helm_once_in_each_installation() {
    let taken_again = |scene: &mut Scene| {
        scene.managed = Some(taken());
        scene.change(Some("v"));
        scene.work()
    };
    for is_told in [true, false] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        assert_eq!(taken_again(&mut scene), "object records MERGE");
        assert_eq!(taken_again(&mut scene), "object records", "once");
        if is_told {
            scene.tell(LoopEvent::Release(scene.release.id.clone(), None));
        }
        let mut anew = Release::clone(&scene.release);
        Arc::make_mut(&mut anew.latest).uid = "another".to_owned();
        scene.record(Arc::new(anew));
        let work = [scene.work(), taken_again(&mut scene)].concat();
        assert_eq!(work.matches("MERGE").count(), 1, "told: {is_told}: {work}");
    }
}

/// The `managedFields` of the object after somebody has taken `k` from Helm.
pub(super) fn taken() -> Value {
    let annotations = json!({"f:meta.helm.sh/release-name": {}, "f:meta.helm.sh/release-namespace": {}});
    json!([
        {"manager": "helm", "operation": "Apply", "apiVersion": "v1", "time": "2026-05-01T12:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:annotations": annotations}}},
        {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1", "time": "2026-05-01T12:10:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}},
    ])
}
