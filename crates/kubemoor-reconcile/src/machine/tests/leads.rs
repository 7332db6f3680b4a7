//! Changes of leaders in the middle of a repair, by tables of events.

use super::*;
use crate::brake::Drifting;

/// The lead is lost during a re-creation, and the release is gone after it.
fn scene_without_lead() -> Scene {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.later = Some((2, None));
    scene.change(None);
    while let Some((errand, work)) = scene.work.pop_front() {
        let is_written = work.is_write();
        let outcome = scene.outcome(work);
        if is_written {
            scene.tell(LoopEvent::Leads(false));
        }
        scene.tell(LoopEvent::Outcome(errand, outcome));
    }
    assert_eq!(scene.value, Some("v"), "a replica that does not lead deletes nothing");
    scene.later = Some((0, None));
    scene
}

/// Repairs of the namespace stop.
fn brake(scene: &mut Scene) {
    let by_namespace = [("shop".to_owned(), 20)].into();
    let drifting = Drifting { by_namespace, declared: 30 };
    for seconds in 0..4 {
        scene.machine.repairs.brake.pull("shop", &drifting, scene.now + Duration::from_secs(seconds));
    }
    assert!(scene.machine.repairs.brake.is_on("shop"));
}

#[test]
fn stopped_repairs_go_on_in_a_later_lead_and_in_a_later_namespace() {
    let ends: [fn(&mut Scene); 2] = [
        |scene| scene.tell(LoopEvent::Leads(false)),
        |scene| scene.tell(LoopEvent::Release(scene.release.id.clone(), None)),
    ];
    for end in ends {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        brake(&mut scene);
        end(&mut scene);
        assert!(!scene.machine.repairs.brake.is_on("shop"));
        let is_told = |told: &Occurrence| matches!(told, Occurrence::Unbraked { namespace } if namespace.as_deref() == Some("shop"));
        assert!(scene.told.iter().any(is_told));
    }
}

#[test]
fn recreated_object_is_taken_back_once_after_the_lead_returns() {
    let mut scene = scene_without_lead();
    scene.tell(LoopEvent::Leads(true));
    assert_eq!((scene.work().as_str(), scene.value), ("object records DELETE", None));
    for leads in [false, true] {
        scene.tell(LoopEvent::Leads(leads));
    }
    assert_eq!(scene.work(), "");
}

#[test]
fn recreated_object_stays_if_helm_declares_it_again() {
    let mut scene = scene_without_lead();
    scene.later = None;
    scene.tell(LoopEvent::Leads(true));
    assert_eq!((scene.work().as_str(), scene.value), ("object records object", Some("v")));
}

#[test]
fn recreated_object_stays_after_ten_minutes_or_for_another_owner() {
    type Change = fn(&mut Scene);
    let cases: [(&str, Change, &str); 3] = [
        ("late", |scene| scene.now += SignedDuration::from_mins(11), ""),
        ("another object", |scene| scene.uid = "2", "object"),
        ("another release", |scene| scene.owner = "other", "object"),
    ];
    for (name, change, expected) in cases {
        let mut scene = scene_without_lead();
        change(&mut scene);
        scene.tell(LoopEvent::Leads(true));
        assert_eq!((scene.work().as_str(), scene.value), (expected, Some("v")), "{name}");
    }
}

#[test]
fn recreated_object_is_not_taken_back_while_repairs_are_suspended() {
    let mut scene = scene_without_lead();
    let id = scene.release.id.clone();
    let suspend = |to: Option<Suspension>| LoopEvent::Order(LoopOrder::Suspend(id.clone(), to));
    scene.tell(suspend(Some(Suspension::default())));
    scene.tell(LoopEvent::Leads(true));
    assert_eq!((scene.work().as_str(), scene.value), ("", Some("v")));
    scene.tell(suspend(None));
    assert_eq!((scene.work().as_str(), scene.value), ("object records DELETE", None));
}

#[test]
fn taking_back_waits_between_its_tries() {
    let mut scene = scene_without_lead();
    scene.writes = [Fault::NotLeading].into();
    scene.tell(LoopEvent::Leads(true));
    assert_eq!(scene.work(), "object records DELETE");
    scene.later = Some((0, None));
    assert_eq!((scene.wait().as_secs(), scene.work().as_str()), (5, "object records DELETE"));
}

#[test]
fn failed_tries_do_not_lengthen_the_time_of_taking_back() {
    let mut scene = scene_without_lead();
    scene.now += SignedDuration::from_mins(9);
    scene.writes = [Fault::NotLeading].into();
    scene.tell(LoopEvent::Leads(true));
    assert_eq!(scene.work(), "object records DELETE");
    scene.later = Some((0, None));
    scene.now += SignedDuration::from_mins(2);
    for leads in [false, true] {
        scene.tell(LoopEvent::Leads(leads));
    }
    assert_eq!((scene.work().contains("DELETE"), scene.value), (false, Some("v")));
}
