//! Objects that a release declares outside of its namespace.

use super::*;
use crate::drifts::First;
use crate::report::DriftKind;
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_verdict::health::ObjectState;

const BOTH: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {k: v}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs, namespace: bank}
data: {k: v}
---
apiVersion: v1
kind: Namespace
metadata: {name: bank}
";

fn theirs() -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "bank", "theirs")
}

impl Scene {
    /// A watch shows the object of the other namespace, which names this release.
    fn show(&mut self, (namespace, name): (&str, &str), value: &str) {
        self.version += 1;
        let mut live = Scene::live(self).unwrap();
        live.sighting.id = theirs();
        live.sighting.release = Some(ReleaseId { namespace: namespace.into(), name: name.into() });
        let object = live.object.as_mut().unwrap();
        object["metadata"]["name"] = json!("theirs");
        object["metadata"]["namespace"] = json!("bank");
        object["metadata"]["annotations"] =
            json!({"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace});
        object["data"]["k"] = json!(value);
        let live = Box::new(live);
        self.tell(LoopEvent::Watch(scope(), ObjectNews::Object { live, is_listed: false }));
    }

    /// The objects that are not judged because they are outside, and how many are named otherwise.
    fn outside(&self) -> (Vec<String>, usize) {
        let report = self.report.as_ref().unwrap();
        let outside = report.excused.iter().filter(|it| it.state == ObjectState::Outside);
        let others = report.excused.len() + report.drifted.len() + report.foreign.len();
        let names: Vec<_> = outside.map(|it| it.object.name.to_string()).collect();
        (names.clone(), others - names.len())
    }
}

#[test]
fn objects_elsewhere_are_neither_read_nor_told_unless_they_name_the_release() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    scene.record(release(ReleaseStatus::Deployed, BOTH));
    scene.tell(LoopEvent::Scopes { wanted: BTreeSet::from([scope()]), unserved: BTreeSet::new() });
    assert_eq!(scene.work(), "");
    let both = (vec!["theirs".to_owned(), "bank".to_owned()], 0);
    assert_eq!(scene.outside(), both);
    // A listing that lacks it, another owner, and an order change nothing.
    for tidings in [
        ObjectNews::Relisting,
        ObjectNews::Object { live: Box::new(scene.live().unwrap()), is_listed: true },
        ObjectNews::Listed,
    ] {
        scene.tell(LoopEvent::Watch(scope(), tidings));
    }
    assert_eq!((scene.work().as_str(), scene.outside()), ("", both.clone()));
    scene.show(("bank", "other"), "x");
    assert_eq!((scene.work().as_str(), scene.outside()), ("", both.clone()));
    let health = scene.report.as_ref().unwrap().health();
    assert_eq!((health.counts.matching, health.counts.outside), (1, 2));
    assert_eq!(health.message, "1 of 3 objects match revision 1; 2 are outside of the namespace, not judged");
    // Its own annotations make it the release's.
    scene.show(("shop", "web"), "x");
    scene.work();
    assert_eq!(scene.outside(), (vec!["bank".to_owned()], 1));
    assert_eq!(*scene.report.as_ref().unwrap().drifted[0].object, theirs());
}

#[test]
fn object_elsewhere_that_an_earlier_guard_saw_is_missed() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    scene.record(release(ReleaseStatus::Deployed, BOTH));
    assert_eq!(scene.work(), "");
    scene.value = None;
    let seen = |object| SeenAlive { object: Arc::new(object), agreement: None, settled: None };
    let (id, state) = (scene.release.id.clone(), &scene.release.state);
    let first = First { uid: None, revision: state.revision, digest: state.digest };
    let seen = vec![seen(theirs())];
    scene.tell(LoopEvent::Order(LoopOrder::Remember {
        release: id,
        first,
        seen,
        contested: Vec::new(),
        manager: None,
    }));
    assert_eq!(scene.work(), "object");
    assert_eq!(scene.outside(), (vec!["bank".to_owned()], 1));
    let drifted = &scene.report.as_ref().unwrap().drifted[0];
    assert_eq!((&*drifted.object, drifted.kind), (&theirs(), DriftKind::Missing));
}

#[test]
fn object_elsewhere_that_is_seen_before_its_record_is_judged_whoever_declares_it() {
    let mut scene = Scene::new(DriftMode::Report, settings());
    let forged =
        SampleRecord { manifest: BOTH, namespace: "thief", name: "forged", ..SampleRecord::default() };
    let forged = Arc::new(assembled(forged, None));
    let ruled = GovernedRelease { release: Arc::clone(&forged), policy: Arc::clone(&scene.policy) };
    scene.tell(LoopEvent::Release(forged.id.clone(), Some(ruled)));
    scene.work();
    scene.show(("shop", "web"), "x");
    scene.record(release(ReleaseStatus::Deployed, BOTH));
    // It is read again, since its declaration was not known when it was seen.
    assert_eq!(scene.work(), "object");
}
