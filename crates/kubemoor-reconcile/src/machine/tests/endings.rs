//! Releases that end, and what of their objects stays known, by tables of events.

use super::*;

/// An object that its release left behind is edited, and then its kind is not watched any more.
#[test]
fn objects_that_only_closed_watches_showed_are_forgotten() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    let remembered = |scene: &Scene| scene.machine.drifts.remembered().count();
    scene.tell(LoopEvent::Release(scene.release.id.clone(), None));
    assert_eq!(remembered(&scene), 0);
    scene.change(Some("x"));
    assert_eq!(remembered(&scene), 1, "its record may be on its way");
    scene.tell(LoopEvent::Scopes { wanted: BTreeSet::new(), unserved: BTreeSet::new() });
    assert_eq!(remembered(&scene), 0);
}

#[test]
fn answers_about_objects_that_nobody_declares_are_ignored() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.tell(LoopEvent::Order(LoopOrder::Reconcile {
        release: scene.release.id.clone(),
        at: "2026-05-01T12:30:00Z".to_owned(),
        ticket: None,
    }));
    let (errand, work) = scene.work.pop_front().unwrap();
    let answer = scene.outcome(work);
    scene.change(None);
    scene.tell(LoopEvent::Release(scene.release.id.clone(), None));
    scene.tell(LoopEvent::Outcome(errand, answer));
    assert_eq!(scene.machine.drifts.remembered().count(), 0);
}

#[test]
fn object_is_judged_for_the_other_release_that_declares_it() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    let other = Arc::new(assembled(
        SampleRecord { name: "api", manifest: MANIFEST, ..SampleRecord::default() },
        None,
    ));
    scene.tell(LoopEvent::Release(
        other.id.clone(),
        Some(GovernedRelease { release: Arc::clone(&other), policy: Arc::clone(&scene.policy) }),
    ));
    scene.work();
    scene.change(Some("x"));
    scene.work();
    let drifted = |scene: &Scene| {
        let report = scene.report.as_ref().unwrap();
        (report.release.name.to_string(), report.drifted.len(), report.foreign.len())
    };
    assert_eq!(drifted(&scene), ("web".to_owned(), 1, 0));
    scene.tell(LoopEvent::Release(scene.release.id.clone(), None));
    assert_eq!(scene.work(), "object");
    assert_eq!(drifted(&scene), ("api".to_owned(), 1, 0));
}

#[test]
fn times_of_a_gone_release_are_not_waited_for() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    let (id, later) = (scene.release.id.clone(), scene.now + Duration::from_secs(60));
    scene.machine.alarms.set(&(id.clone(), web()), Some(later));
    scene.tell(LoopEvent::Release(id, None));
    assert_eq!((scene.machine.alarms.next(), scene.timer), (None, None));
}

#[test]
fn nothing_is_done_for_a_release_that_went_during_a_repair() {
    for value in [None, Some("x")] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        scene.change(value);
        while let Some((errand, work)) = scene.work.pop_front() {
            let (is_write, outcome) = (work.is_write(), scene.outcome(work));
            if is_write && scene.later.is_none() {
                scene.later = Some((0, None));
                scene.tell(LoopEvent::Release(scene.release.id.clone(), None));
            }
            scene.tell(LoopEvent::Outcome(errand, outcome));
        }
        let machine = &scene.machine;
        assert!(machine.drifts.concerned().is_empty(), "{value:?}: {:?}", machine.drifts.concerned());
        assert_eq!(machine.drifts.remembered().count(), 0, "{value:?}");
    }
}
