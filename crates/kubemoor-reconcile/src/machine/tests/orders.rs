//! Orders of people, by tables of events.

use super::*;

#[test]
fn order_repairs_what_is_only_reported_and_is_answered_once() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    scene.change(None);
    assert_eq!(scene.work(), "object");
    let order = |at: &str, scene: &mut Scene| {
        let (release, at) = (scene.release.id.clone(), at.to_owned());
        scene.tell(LoopEvent::Order(LoopOrder::Reconcile { release, at, ticket: None }));
        scene.work()
    };
    assert_eq!(order("1", &mut scene), RECREATED);
    let answer = |scene: &Scene| scene.report.as_ref().and_then(|report| report.answer.clone()).unwrap();
    assert_eq!((answer(&scene).at.as_str(), answer(&scene).message.as_str()), ("1", "1 object is repaired"));
    assert_eq!(order("2", &mut scene), "object");
    assert_eq!(answer(&scene).message, "nothing had to be repaired");
    // The order is done: new drift is only reported again, even if the same order arrives again.
    scene.change(None);
    assert_eq!(scene.work(), "object");
    for leads in [false, true] {
        scene.tell(LoopEvent::Leads(leads));
    }
    assert_eq!(order("2", &mut scene), "");
    assert_eq!((answer(&scene).message.as_str(), scene.value), ("nothing had to be repaired", None));
    // The same while it is carried out.
    let told_twice = |scene: &mut Scene| {
        let release = scene.release.id.clone();
        scene.tell(LoopEvent::Order(LoopOrder::Reconcile { release, at: "3".to_owned(), ticket: None }));
    };
    told_twice(&mut scene);
    // The order is a reason to read the object again.
    assert_eq!(order("3", &mut scene), format!("{RECREATED} object"));
    assert_eq!(answer(&scene).message, "1 object is repaired");
}

#[test]
fn order_that_another_replica_may_have_answered_repairs_nothing_until_it_is_given_again() {
    for is_given_again in [false, true] {
        let mut scene = Scene::new(DriftMode::Report, settings());
        scene.change(None);
        assert_eq!(scene.work(), "object");
        let tell = |scene: &mut Scene| {
            let release = scene.release.id.clone();
            scene.tell(LoopEvent::Order(LoopOrder::Reconcile { release, at: "1".to_owned(), ticket: None }));
        };
        tell(&mut scene);
        // The lead is lost and won back while the object is read.
        for leads in [false, true] {
            scene.tell(LoopEvent::Leads(leads));
        }
        if is_given_again {
            tell(&mut scene);
        }
        scene.work();
        let answer = scene.report.as_ref().and_then(|report| report.answer.clone());
        assert_eq!((scene.value.is_some(), answer.is_some()), (is_given_again, is_given_again));
    }
}
