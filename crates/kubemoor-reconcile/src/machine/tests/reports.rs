//! What is said of a release while not all of it has been looked at.

use super::*;

#[test]
fn release_is_not_in_sync_before_changed_object_is_checked() {
    for value in [None, Some("x")] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        assert_eq!(scene.report.take().map(|report| report.health().reason), Some(Reason::InSync));
        scene.change(value);
        // Something else makes the guard say how the release stands.
        let (id, ruled) = (scene.release.id.clone(), scene.ruled());
        scene.tell(Event::Release(id, ruled));
        assert_ne!(scene.reason(), Some(Reason::InSync), "{value:?}");
        scene.work();
        assert_eq!(scene.reason(), Some(Reason::InSync), "{value:?}");
    }
}

#[test]
fn release_is_not_in_sync_after_outdated_api_server_answer() {
    for value in [None, Some("x")] {
        let mut scene = Scene::new(DriftMode::Report, settings());
        scene.outdated = Some(("v", 1));
        scene.report = None;
        scene.change(value);
        for _ in 0..5 {
            scene.work();
            assert_ne!(scene.reason(), Some(Reason::InSync), "{value:?}");
            if scene.timer.is_some() {
                scene.wait();
            }
        }
    }
}
