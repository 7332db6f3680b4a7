//! A person who puts a contested object right, by tables of events.

use super::*;
use crate::waits::Backoff;

/// Somebody changes the object back until its repairs wait.
fn contested() -> LoopScene {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    for _ in 0..4 {
        scene.change(Some("x"));
        while scene.work().is_empty() {
            scene.wait();
        }
    }
    scene.change(Some("x"));
    assert_eq!((scene.work(), scene.reason()), (String::new(), Some(HealthReason::Contested)));
    scene
}

#[test]
fn fields_of_a_person_who_puts_them_right_return_to_helm_at_once() {
    let mut scene = contested();
    scene.managed = Some(taken());
    scene.change(Some("v"));
    assert_eq!(scene.work(), "object records MERGE");
    assert_eq!(scene.reason(), Some(HealthReason::InSync));
}

#[test]
fn object_put_right_by_a_person_is_repaired_without_a_wait() {
    let mut scene = contested();
    scene.managed = Some(taken());
    scene.change(Some("v"));
    scene.work();
    scene.managed = None;
    scene.change(Some("x"));
    assert_eq!(scene.work(), RESTORED);
}

#[test]
fn writer_that_alternates_does_not_end_the_waits_for_ever() {
    let mut scene = contested();
    let mut writes = 0;
    for _ in 0..20 {
        scene.managed = Some(taken());
        scene.change(Some("v"));
        writes += usize::from(scene.work().contains("MERGE"));
        scene.managed = None;
        scene.change(Some("x"));
        writes += usize::from(scene.work().contains("APPLY"));
    }
    assert!(writes <= 16, "{writes}");
}

#[test]
fn forgiven_object_waits_again_after_as_many_repairs() {
    let (mut backoff, now) = (Backoff::default(), "2026-05-01T12:00:00Z".parse().unwrap());
    for _ in 0..3 {
        backoff.contest(&web(), now);
        assert!(backoff.reset_after_revert(&web(), now) && backoff.until(&web(), now).is_none());
    }
    backoff.contest(&web(), now);
    assert!(!backoff.reset_after_revert(&web(), now) && backoff.until(&web(), now).is_some());
}
