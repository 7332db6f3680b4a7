//! Changes of leaders in the middle of a repair, by tables of events.

use super::*;

/// The lead is lost during a re-creation, and the release is gone after it.
fn scene_without_lead() -> Scene {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.later = Some((2, None));
    scene.change(None);
    while let Some((errand, work)) = scene.work.pop_front() {
        let is_written = work.is_write();
        let outcome = scene.outcome(work);
        if is_written {
            scene.tell(Event::Leads(false));
        }
        scene.tell(Event::Outcome(errand, outcome));
    }
    assert_eq!(scene.value, Some("v"), "a replica that does not lead deletes nothing");
    scene
}

#[test]
fn recreated_object_is_taken_back_once_after_the_lead_returns() {
    let mut scene = scene_without_lead();
    scene.later = Some((0, None));
    scene.tell(Event::Leads(true));
    assert_eq!((scene.work().as_str(), scene.value), ("records DELETE", None));
    for leads in [false, true] {
        scene.tell(Event::Leads(leads));
    }
    assert_eq!(scene.work(), "");
}

#[test]
fn recreated_object_stays_if_helm_declares_it_again() {
    let mut scene = scene_without_lead();
    scene.tell(Event::Leads(true));
    assert_eq!((scene.work().as_str(), scene.value), ("records object", Some("v")));
}
