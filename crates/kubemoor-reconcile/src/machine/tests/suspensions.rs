//! Releases that people have suspended, with and without an end.

use super::*;

#[test]
fn suspended_release_is_repaired_when_its_suspension_ends() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    let (release, hour) = (scene.release.id.clone(), SignedDuration::from_hours(1));
    let suspension = |until: Timestamp| Suspension { until: Some(until), reason: "migration".to_owned() };
    let end = scene.now + hour;
    scene.tell(LoopEvent::Order(LoopOrder::Suspend(release.clone(), Some(suspension(end)))));
    scene.work();
    scene.change(Some("x"));
    assert_eq!(scene.work(), "");
    let control = scene.report.as_ref().map(|report| report.control.clone());
    assert_eq!(control.and_then(|control| control.suspended), Some(suspension(end)));
    // It is prolonged before it ends.
    let later = end + hour;
    scene.tell(LoopEvent::Order(LoopOrder::Suspend(release, Some(suspension(later)))));
    assert_eq!((scene.work(), scene.reason()), (String::new(), Some(HealthReason::Suspended)));
    while scene.timer.is_some_and(|timer| timer < later) {
        scene.wait();
        assert_eq!((scene.work(), scene.value), (String::new(), Some("x")));
    }
    scene.wait();
    assert_eq!(scene.work(), RESTORED);
    assert_eq!((scene.now, scene.value, scene.reason()), (later, Some("v"), Some(HealthReason::InSync)));
}

#[test]
fn suspension_that_ended_while_no_guard_ran_stops_nothing() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    let over = Suspension { until: Some(scene.now), reason: String::new() };
    scene.tell(LoopEvent::Order(LoopOrder::Suspend(scene.release.id.clone(), Some(over))));
    scene.work();
    scene.change(Some("x"));
    assert_eq!((scene.work().as_str(), scene.reason()), (RESTORED, Some(HealthReason::InSync)));
}
