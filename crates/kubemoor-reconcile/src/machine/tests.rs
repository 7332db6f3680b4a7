//! The loop by tables of events: what it asks for and writes, one piece of work
//! after the other, given these answers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::super::event::{
    ApiWork, Fault, GovernedRelease, HelmManager, LiveObject, LoopOrder, ManifestDocument, ObjectWatchEvent,
    Secret, Sighting, WorkFailure, WorkId, WorkOutcome, Write,
};
use super::super::report::LoopReport;
use super::super::scopes::WatchScope;
use super::*;
use crate::brake::Drifting;
use crate::drifts::FirstManifest;
use crate::event::ObjectOutcome;
use crate::report::DriftKind;
use crate::sample_releases::{SampleRecord, assembled, second};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::{Release, document};
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_policy::guarded::Suspension;
use kubemoor_verdict::health::{HealthReason, ObjectState};

mod put_right;
mod rest;

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {k: v}\n";

const KEPT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, annotations: {helm.sh/resource-policy: keep}}\ndata: {k: v}\n";

/// The release `shop/web` of one ConfigMap, a loop that has seen it as declared, and
/// the cluster as it answers.
struct LoopScene {
    machine: Reconciler,
    now: Timestamp,
    release: Arc<Release>,
    manifest: &'static str,
    policy: Arc<Policy>,
    /// The value of `k` in the live object; none while it is missing.
    value: Option<&'static str>,
    version: u64,
    /// Its `managedFields`.
    managed: Option<Value>,
    /// The value and the version in which the object is read, where those are old.
    outdated: Option<(&'static str, u64)>,
    /// What the next writes come to; they succeed where nothing is said.
    writes: VecDeque<Fault>,
    /// Whether the watch tells of a write before the API server has answered it.
    is_told_first: bool,
    /// The release as the records say once they were read so often.
    later: Option<(usize, Option<Arc<Release>>)>,
    reads: usize,
    work: VecDeque<(WorkId, ApiWork)>,
    report: Option<LoopReport>,
    timer: Option<Timestamp>,
    told: Vec<LoopNotice>,
}

fn web() -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shop", "web")
}

fn release(status: ReleaseStatus, manifest: &str) -> Arc<Release> {
    Arc::new(assembled(SampleRecord { manifest, status, ..SampleRecord::default() }, None))
}

fn settings() -> LoopSettings {
    LoopSettings { key: SigningKey::new([7; 32]), read_only: false, dry_runs: false }
}

impl LoopScene {
    /// Everything is listed, and this replica leads.
    fn new(drift: DriftMode, settings: LoopSettings) -> Self {
        let policy = Arc::new(Policy::new(EditsMode::Warn, drift, Duration::from_secs(3600)));
        let mut scene = Self {
            machine: Reconciler::new(settings, SuspendedReleases::new()),
            now: "2026-05-01T12:30:00Z".parse().unwrap(),
            release: release(ReleaseStatus::Deployed, MANIFEST),
            manifest: MANIFEST,
            policy,
            value: Some("v"),
            version: 1,
            managed: None,
            outdated: None,
            writes: VecDeque::new(),
            is_told_first: false,
            later: None,
            reads: 0,
            work: VecDeque::new(),
            report: None,
            timer: None,
            told: Vec::new(),
        };
        let id = scene.release.id.clone();
        let ruled = scene.ruled();
        scene.tell(LoopEvent::Release(id, ruled));
        scene.tell(LoopEvent::Scopes { wanted: BTreeSet::from([scope()]), unserved: BTreeSet::new() });
        let live = Box::new(scene.live().unwrap());
        for news in [
            ObjectWatchEvent::ListStarted,
            ObjectWatchEvent::Object { live, is_listed: true },
            ObjectWatchEvent::ListCompleted,
        ] {
            scene.tell(LoopEvent::Watch(scope(), news));
        }
        scene.tell(LoopEvent::Leads(true));
        scene.work();
        scene
    }

    fn ruled(&self) -> Option<GovernedRelease> {
        Some(GovernedRelease { release: Arc::clone(&self.release), policy: Arc::clone(&self.policy) })
    }

    fn object(&self) -> Option<Value> {
        let value = self.value?;
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "1", "resourceVersion": self.version.to_string(),
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
            },
        });
        if self.manifest == KEPT {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
        }
        Some(object)
    }

    fn live(&self) -> Option<LiveObject> {
        let object = self.object()?;
        let managers = vec![HelmManager { name: "helm".to_owned(), applies: true }];
        let sighting = Sighting {
            id: web(),
            uid: "1".to_owned(),
            resource_version: self.version.to_string(),
            deleting: false,
            release: Some(self.release.id.clone()),
            managers,
            updaters: vec!["kubectl-edit".to_owned()],
            touched: None,
        };
        let managed = self.managed.as_ref().and_then(|managed| to_raw_value(managed).ok());
        Some(LiveObject { sighting, object: Some(object), managed })
    }

    fn tell(&mut self, event: LoopEvent) {
        for action in self.machine.handle(event, self.now) {
            match action {
                LoopAction::Do(errand, _, work) => self.work.push_back((errand, work)),
                LoopAction::Report(report) => self.report = Some(*report),
                LoopAction::SetTimer(at) => self.timer = at,
                LoopAction::Tell(told) => self.told.push(told),
                _ => {}
            }
        }
    }

    /// Helm's records now hold this release.
    fn record(&mut self, release: Arc<Release>) {
        self.release = release;
        let (id, ruled) = (self.release.id.clone(), self.ruled());
        self.tell(LoopEvent::Release(id, ruled));
    }

    /// Somebody sets `k`, or deletes the object, and the watch tells.
    fn change(&mut self, value: Option<&'static str>) {
        (self.value, self.version) = (value, self.version + 1);
        self.watch();
    }

    /// The watch tells what the object is now.
    fn watch(&mut self) {
        let news = match self.live() {
            Some(live) => ObjectWatchEvent::Object { live: Box::new(live), is_listed: false },
            None => ObjectWatchEvent::Gone { object: web(), version: self.version.to_string() },
        };
        self.tell(LoopEvent::Watch(scope(), news));
    }

    /// Does what is asked for until nothing is; gives its names.
    fn work(&mut self) -> String {
        let mut names = Vec::new();
        while let Some((errand, work)) = self.work.pop_front() {
            assert!(names.len() < 50, "hot: {names:?}");
            names.push(name(&work));
            let is_write = work.is_write();
            let outcome = self.outcome(work);
            if is_write && self.is_told_first {
                self.watch();
            }
            self.tell(LoopEvent::Outcome(errand, outcome));
        }
        names.join(" ")
    }

    fn outcome(&mut self, work: ApiWork) -> WorkOutcome {
        match work {
            ApiWork::ReadObject { .. } => {
                let now = (self.value, self.version);
                if let Some((value, version)) = self.outdated {
                    (self.value, self.version) = (Some(value), version);
                }
                let live = self.live().map(Box::new);
                (self.value, self.version) = now;
                WorkOutcome::Object { live, version: "v1".to_owned() }
            }
            ApiWork::ReadRecords { .. } => {
                self.reads += 1;
                if let Some((_, later)) = self.later.take_if(|(reads, _)| *reads <= self.reads) {
                    let Some(later) = later else { return WorkOutcome::Records(None) };
                    self.release = later;
                }
                WorkOutcome::Records(self.ruled())
            }
            ApiWork::ReadDocument { object, .. } => WorkOutcome::Document(ManifestDocument {
                status: self.release.state.status,
                apply_method: ApplyMethod::ServerSide,
                digest: self.release.state.digest,
                object: document(&self.release.id, self.manifest, &object, &Catalog::with_core()).map(Secret),
            }),
            ApiWork::ReadDefinition { .. } => WorkOutcome::Definition { deleting: false },
            ApiWork::Ask { .. } | ApiWork::Probe { .. } => WorkOutcome::Failed(WorkFailure::unanswered("no")),
            ApiWork::Write { write, .. } => {
                if let Some(fault) = self.writes.pop_front() {
                    return WorkOutcome::Failed(WorkFailure { fault, message: "refused".to_owned() });
                }
                self.version += 1;
                self.value = if matches!(write, Write::Delete { .. }) { None } else { Some("v") };
                if matches!(write, Write::Merge { .. }) {
                    // The only patches here return fields to Helm.
                    self.managed = None;
                }
                WorkOutcome::Written(Secret(self.object().unwrap_or_default()))
            }
        }
    }

    fn reason(&self) -> Option<HealthReason> {
        self.report.as_ref().map(|report| report.health().reason)
    }

    /// Time goes by until the timer is due.
    fn wait(&mut self) -> SignedDuration {
        let at = self.timer.expect("a timer is set");
        let waited = at.duration_since(self.now);
        self.now = self.now.max(at);
        self.tell(LoopEvent::Due);
        waited
    }
}

fn scope() -> WatchScope {
    WatchScope {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: None,
    }
}

fn name(work: &ApiWork) -> &'static str {
    match work {
        ApiWork::ReadObject { .. } => "object",
        ApiWork::ReadRecords { .. } => "records",
        ApiWork::ReadDocument { .. } => "document",
        ApiWork::ReadDefinition { .. } => "definition",
        ApiWork::Ask { .. } => "ask",
        ApiWork::Probe { .. } => "probe",
        ApiWork::Write { write: Write::Create { .. }, .. } => "CREATE",
        ApiWork::Write { write: Write::Apply { .. }, .. } => "APPLY",
        ApiWork::Write { write: Write::Merge { .. }, .. } => "MERGE",
        ApiWork::Write { write: Write::Delete { .. }, .. } => "DELETE",
    }
}

const RECREATED: &str = "object object records document APPLY records";
const RESTORED: &str = "object records document APPLY";

#[test]
fn drift_is_repaired_in_this_order_and_reported() {
    for (value, expected) in [(None, RECREATED), (Some("x"), RESTORED)] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        assert_eq!(scene.reason(), Some(HealthReason::InSync), "before {value:?}");
        scene.change(value);
        assert_eq!(scene.work(), expected, "{value:?}");
        assert_eq!((scene.reason(), scene.value), (Some(HealthReason::InSync), Some("v")), "{value:?}");
    }
}

/// What a change of the scene before the drift makes of both kinds of it.
#[track_caller]
fn check(before: impl Fn(&mut LoopScene), missing: &str, changed: &str) {
    for (value, expected) in [(None, missing), (Some("x"), changed)] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        before(&mut scene);
        scene.work();
        scene.change(value);
        assert_eq!(scene.work(), expected, "{value:?}");
    }
}

#[test]
fn nothing_is_written_that_may_not_be() {
    check(|scene| scene.tell(LoopEvent::Leads(false)), "object", "");
    check(|scene| scene.tell(LoopEvent::Stop), "", "");
    let suspended = |scene: &mut LoopScene| {
        let release = scene.release.id.clone();
        scene.tell(LoopEvent::Order(LoopOrder::Suspend(release, Some(Suspension::default()))));
    };
    check(suspended, "object", "");
    let underway = |scene: &mut LoopScene| {
        scene.record(release(ReleaseStatus::PendingUpgrade, MANIFEST));
    };
    check(underway, "", "");
    for (drift, read_only) in [(DriftMode::Report, false), (DriftMode::Repair, true)] {
        let mut scene = LoopScene::new(drift, LoopSettings { read_only, ..settings() });
        scene.change(None);
        assert_eq!(scene.work(), "object");
        assert!(scene.value.is_none() && scene.report.is_some_and(|report| report.drifted.len() == 1));
    }
}

#[test]
fn repair_starts_over_after_a_conflicting_write() {
    let recreated = "object object records document APPLY";
    for (faults, missing) in [
        (vec![Fault::Conflict], recreated),
        (vec![Fault::Conflict; 3], recreated),
        (vec![Fault::AlreadyExists], recreated),
        (vec![Fault::Terminating], recreated),
        // Of a write that nobody answered it is looked what it has made.
        (vec![Fault::Unanswered], "object object records document APPLY object"),
    ] {
        for (value, expected) in [(None, missing), (Some("x"), RESTORED)] {
            let mut scene = LoopScene::new(DriftMode::Repair, settings());
            scene.writes = faults.clone().into();
            scene.change(value);
            assert_eq!(scene.work(), expected, "{faults:?}");
            for _ in 0..9 {
                if scene.value != Some("v") && scene.timer.is_some() {
                    scene.wait();
                    scene.work();
                }
            }
            assert_eq!(scene.value, Some("v"), "{faults:?} {value:?}");
        }
    }
}

#[test]
fn recreated_object_is_deleted_when_helm_drops_it_meanwhile() {
    for later in [None, Some(release(ReleaseStatus::Uninstalling, MANIFEST))] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        // By a clock that is far ahead, the operation counts as dead.
        scene.now += SignedDuration::from_hours(9);
        scene.later = Some((2, later));
        scene.change(None);
        assert_eq!(scene.work(), format!("{RECREATED} DELETE"));
        assert_eq!(scene.value, None);
    }
}

#[test]
fn recreated_object_stays_where_helm_keeps_it_or_its_record_cannot_tell() {
    let mut unread = Release::clone(&release(ReleaseStatus::Deployed, MANIFEST));
    unread.drop_declarations("it is too large".to_owned());
    for (manifest, later) in [(KEPT, None), (MANIFEST, Some(Arc::new(unread)))] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        scene.manifest = manifest;
        scene.change(Some("v"));
        scene.record(Arc::new(second(ReleaseStatus::Deployed, manifest, MANIFEST)));
        scene.work();
        scene.later = Some((scene.reads + 2, later));
        scene.change(None);
        assert_eq!(scene.work(), RECREATED);
        assert_eq!(scene.value, Some("v"));
    }
}

#[test]
fn repairs_back_off_while_the_object_is_repeatedly_changed_back() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    let mut waits = Vec::new();
    for _ in 0..14 {
        scene.change(Some("x"));
        let mut waited = SignedDuration::ZERO;
        while scene.work().is_empty() {
            waited += scene.wait();
        }
        assert_eq!(scene.value, Some("v"));
        waits.push(waited.as_secs());
    }
    assert_eq!(waits[..3], [0, 0, 0], "{waits:?}");
    assert!(waits[4..].is_sorted() && waits[13] > 200 && waits[13] <= 300, "{waits:?}");
    let is_contested =
        |told: &LoopNotice| matches!(told, LoopNotice::Object { fate: ObjectOutcome::Contested, .. });
    assert!(scene.told.iter().any(is_contested));
}

#[test]
fn reads_back_off_while_the_server_returns_an_older_version() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    scene.outdated = Some(("v", 1));
    scene.change(None);
    let mut waits = Vec::new();
    for _ in 0..14 {
        assert_eq!(scene.work(), "object", "{waits:?}");
        waits.push(scene.wait().as_millis());
    }
    assert!(waits[0] <= 100 && waits.is_sorted(), "{waits:?}");
    assert!(waits[13] > 200_000 && waits[13] <= 300_000, "{waits:?}");
    scene.work();
    assert_eq!(scene.reason(), Some(HealthReason::Unwatched));
    scene.outdated = None;
    scene.wait();
    assert_eq!(scene.work(), RECREATED);
    assert_eq!(scene.reason(), Some(HealthReason::InSync));
}

#[test]
fn order_repairs_what_is_only_reported_and_is_answered_once() {
    let mut scene = LoopScene::new(DriftMode::Report, settings());
    scene.change(None);
    assert_eq!(scene.work(), "object");
    let order = |at: &str, scene: &mut LoopScene| {
        let (release, at) = (scene.release.id.clone(), at.to_owned());
        scene.tell(LoopEvent::Order(LoopOrder::Reconcile { release, at, ticket: None }));
        scene.work()
    };
    assert_eq!(order("1", &mut scene), RECREATED);
    let answer = |scene: &LoopScene| scene.report.as_ref().and_then(|report| report.answer.clone()).unwrap();
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
    let told_twice = |scene: &mut LoopScene| {
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
        let mut scene = LoopScene::new(DriftMode::Report, settings());
        scene.change(None);
        assert_eq!(scene.work(), "object");
        let tell = |scene: &mut LoopScene| {
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

#[test]
fn suspended_release_is_repaired_when_its_suspension_ends() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
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
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    let over = Suspension { until: Some(scene.now), reason: String::new() };
    scene.tell(LoopEvent::Order(LoopOrder::Suspend(scene.release.id.clone(), Some(over))));
    scene.work();
    scene.change(Some("x"));
    assert_eq!((scene.work().as_str(), scene.reason()), (RESTORED, Some(HealthReason::InSync)));
}

#[test]
fn object_from_before_a_failed_upgrade_is_judged_by_the_next() {
    let mut scene = LoopScene::new(DriftMode::Report, settings());
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
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
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
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
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
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
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
    let taken_again = |scene: &mut LoopScene| {
        scene.managed = Some(taken());
        scene.change(Some("v"));
        scene.work()
    };
    for is_told in [true, false] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
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

/// An apply does not take a field with its declared value from who owns it. The watch may tell of the apply before its
/// answer comes.
#[test]
fn fields_that_a_repair_leaves_to_others_return_to_helm_whichever_news_is_first() {
    for is_told_first in [true, false] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        (scene.is_told_first, scene.managed) = (is_told_first, Some(taken()));
        scene.change(Some("x"));
        let mut work = vec![scene.work()];
        if !is_told_first {
            scene.watch();
            work.push(scene.work());
        }
        assert_eq!(work.join(" "), format!("{RESTORED} object records MERGE"), "{is_told_first}");
        assert_eq!(scene.reason(), Some(HealthReason::InSync), "{is_told_first}");
    }
}

#[test]
fn order_returns_fields_to_helm_that_its_own_repair_leaves_to_others() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    let release = scene.release.id.clone();
    scene.tell(LoopEvent::Order(LoopOrder::Suspend(release.clone(), Some(Suspension::default()))));
    scene.work();
    (scene.is_told_first, scene.managed) = (true, Some(taken()));
    scene.change(Some("x"));
    assert_eq!(scene.work(), "", "its repairs are suspended");
    scene.tell(LoopEvent::Order(LoopOrder::Reconcile { release, at: "1".to_owned(), ticket: None }));
    scene.work();
    let answer = scene.report.as_ref().and_then(|report| report.answer.clone()).unwrap();
    assert_eq!((answer.message.as_str(), scene.managed), ("1 object is repaired", None));
}

/// The `managedFields` of the object after somebody has taken `k` from Helm.
fn taken() -> Value {
    let annotations = json!({"f:meta.helm.sh/release-name": {}, "f:meta.helm.sh/release-namespace": {}});
    json!([
        {"manager": "helm", "operation": "Apply", "apiVersion": "v1", "time": "2026-05-01T12:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:annotations": annotations}}},
        {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1", "time": "2026-05-01T12:10:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}},
    ])
}

#[test]
fn release_is_not_in_sync_before_changed_object_is_checked() {
    for value in [None, Some("x")] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        assert_eq!(scene.report.take().map(|report| report.health().reason), Some(HealthReason::InSync));
        scene.change(value);
        // Something else makes the guard say how the release stands.
        let (id, ruled) = (scene.release.id.clone(), scene.ruled());
        scene.tell(LoopEvent::Release(id, ruled));
        assert_ne!(scene.reason(), Some(HealthReason::InSync), "{value:?}");
        scene.work();
        assert_eq!(scene.reason(), Some(HealthReason::InSync), "{value:?}");
    }
}

#[test]
fn release_is_not_in_sync_after_outdated_api_server_answer() {
    for value in [None, Some("x")] {
        let mut scene = LoopScene::new(DriftMode::Report, settings());
        scene.outdated = Some(("v", 1));
        scene.report = None;
        scene.change(value);
        for _ in 0..5 {
            scene.work();
            assert_ne!(scene.reason(), Some(HealthReason::InSync), "{value:?}");
            if scene.timer.is_some() {
                scene.wait();
            }
        }
    }
}

#[test]
fn release_is_not_in_sync_before_the_watch_of_a_new_kind_has_listed() {
    let secrets = WatchScope { kind: "Secret".to_owned(), ..scope() };
    let manifest = format!("{MANIFEST}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: web}}\n");
    let wanted = || LoopEvent::Scopes {
        wanted: BTreeSet::from([scope(), secrets.clone()]),
        unserved: BTreeSet::new(),
    };
    let broken = ObjectWatchEvent::Failed(WorkFailure::unanswered("no"));
    for (news, expected) in [
        (vec![ObjectWatchEvent::ListStarted, ObjectWatchEvent::ListCompleted], None),
        (vec![broken], Some(HealthReason::Unwatched)),
    ] {
        let mut scene = LoopScene::new(DriftMode::Report, settings());
        scene.report = None;
        scene.record(Arc::new(second(ReleaseStatus::Deployed, &manifest, MANIFEST)));
        scene.work();
        assert_eq!(scene.reason(), None, "it is not watched yet");
        scene.tell(wanted());
        scene.work();
        assert_eq!(scene.reason(), None, "it is not listed yet");
        for news in news {
            scene.tell(LoopEvent::Watch(secrets.clone(), news));
        }
        if expected.is_none() {
            // It is looked for by its name.
            assert!(
                matches!(scene.work.front(), Some((_, ApiWork::ReadObject { object, .. })) if object.kind == "Secret")
            );
        }
        assert_eq!(scene.reason(), expected);
    }
}

#[test]
fn stopping_loop_reports_what_it_still_sees() {
    let changed = MANIFEST.replace("k: v", "k: w");
    for status in [ReleaseStatus::PendingUpgrade, ReleaseStatus::Deployed] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        scene.record(Arc::new(second(status, &changed, MANIFEST)));
        let before = scene.report.clone().unwrap();
        scene.tell(LoopEvent::Stop);
        scene.change(Some("w"));
        scene.work();
        let report = scene.report.clone().unwrap();
        assert_eq!((report.confirmed, report.records.revision), (1, 2), "{status}");
        assert_ne!(report.seen_alive, before.seen_alive, "{status}");
    }
}

#[test]
fn stopping_loop_reports_a_new_revision_of_which_it_has_left_a_drifting_object_unread() {
    let mut scene = LoopScene::new(DriftMode::Report, settings());
    scene.change(Some("mine"));
    scene.work();
    scene.tell(LoopEvent::Stop);
    scene.change(None);
    let changed = MANIFEST.replace("k: v", "k: w");
    scene.record(Arc::new(second(ReleaseStatus::Deployed, &changed, MANIFEST)));
    assert_eq!(scene.report.as_ref().map(|it| it.records.revision), Some(2));
}

#[test]
fn stopping_loop_does_not_say_in_sync_of_what_it_has_not_read() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    scene.tell(LoopEvent::Stop);
    scene.change(None);
    assert!(scene.work.is_empty(), "it reads nothing any more");
    assert_ne!(scene.report.as_ref().map(|it| it.health().reason), Some(HealthReason::InSync));
}

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

impl LoopScene {
    /// A watch shows the object of the other namespace, which names this release.
    fn show(&mut self, (namespace, name): (&str, &str), value: &str) {
        self.version += 1;
        let mut live = LoopScene::live(self).unwrap();
        live.sighting.id = theirs();
        live.sighting.release = Some(ReleaseId { namespace: namespace.into(), name: name.into() });
        let object = live.object.as_mut().unwrap();
        object["metadata"]["name"] = json!("theirs");
        object["metadata"]["namespace"] = json!("bank");
        object["metadata"]["annotations"] =
            json!({"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace});
        object["data"]["k"] = json!(value);
        let live = Box::new(live);
        self.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Object { live, is_listed: false }));
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
    let mut scene = LoopScene::new(DriftMode::Report, settings());
    scene.record(release(ReleaseStatus::Deployed, BOTH));
    scene.tell(LoopEvent::Scopes { wanted: BTreeSet::from([scope()]), unserved: BTreeSet::new() });
    assert_eq!(scene.work(), "");
    let both = (vec!["theirs".to_owned(), "bank".to_owned()], 0);
    assert_eq!(scene.outside(), both);
    // A listing that lacks it, another owner, and an order change nothing.
    for news in [
        ObjectWatchEvent::ListStarted,
        ObjectWatchEvent::Object { live: Box::new(scene.live().unwrap()), is_listed: true },
        ObjectWatchEvent::ListCompleted,
    ] {
        scene.tell(LoopEvent::Watch(scope(), news));
    }
    assert_eq!((scene.work().as_str(), scene.outside()), ("", both.clone()));
    scene.show(("bank", "other"), "x");
    assert_eq!((scene.work().as_str(), scene.outside()), ("", both.clone()));
    let health = scene.report.as_ref().unwrap().health();
    assert_eq!((health.counts.matching, health.counts.outside), (1, 2));
    assert_eq!(health.message, "1 of 3 objects match revision 1; 2 are outside the namespace, not checked");
    // Its own annotations make it the release's.
    scene.show(("shop", "web"), "x");
    scene.work();
    assert_eq!(scene.outside(), (vec!["bank".to_owned()], 1));
    assert_eq!(*scene.report.as_ref().unwrap().drifted[0].object, theirs());
}

#[test]
fn object_elsewhere_that_an_earlier_guard_saw_is_missed() {
    let mut scene = LoopScene::new(DriftMode::Report, settings());
    scene.record(release(ReleaseStatus::Deployed, BOTH));
    assert_eq!(scene.work(), "");
    scene.value = None;
    let seen = |object| ObservedObject { object: Arc::new(object), agreement: None, settled: None };
    let (id, state) = (scene.release.id.clone(), &scene.release.state);
    let first = FirstManifest { uid: None, revision: state.revision, digest: state.digest };
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
fn uninstalled_release_is_not_restored_from_memory() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    let (id, state) = (scene.release.id.clone(), scene.release.state.clone());
    scene.record(release(ReleaseStatus::Uninstalled, MANIFEST));
    scene.tell(LoopEvent::Order(LoopOrder::Remember {
        release: id,
        first: FirstManifest { uid: None, revision: state.revision, digest: state.digest },
        seen: vec![ObservedObject { object: Arc::new(web()), agreement: None, settled: None }],
        contested: Vec::new(),
        manager: None,
    }));
    assert_eq!(scene.machine.drifts.remembered().count(), 0);
}

#[test]
fn object_elsewhere_that_is_seen_before_its_record_is_judged_whoever_declares_it() {
    let mut scene = LoopScene::new(DriftMode::Report, settings());
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

/// An object that its release left behind is edited, and then its kind is not watched any more.
#[test]
fn objects_that_only_closed_watches_showed_are_forgotten() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
    let remembered = |scene: &LoopScene| scene.machine.drifts.remembered().count();
    scene.tell(LoopEvent::Release(scene.release.id.clone(), None));
    assert_eq!(remembered(&scene), 0);
    scene.change(Some("x"));
    assert_eq!(remembered(&scene), 1, "its record may be on its way");
    scene.tell(LoopEvent::Scopes { wanted: BTreeSet::new(), unserved: BTreeSet::new() });
    assert_eq!(remembered(&scene), 0);
}

#[test]
fn answers_about_objects_that_nobody_declares_are_ignored() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
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
    let mut scene = LoopScene::new(DriftMode::Report, settings());
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
    let drifted = |scene: &LoopScene| {
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
    let mut scene = LoopScene::new(DriftMode::Report, settings());
    let (id, later) = (scene.release.id.clone(), scene.now + Duration::from_secs(60));
    scene.machine.alarms.set(&(id.clone(), web()), Some(later));
    scene.tell(LoopEvent::Release(id, None));
    assert_eq!((scene.machine.alarms.next(), scene.timer), (None, None));
}

#[test]
fn nothing_is_done_for_a_release_that_went_during_a_repair() {
    for value in [None, Some("x")] {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
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

/// Repairs of the namespace stop.
fn brake(scene: &mut LoopScene) {
    let by_namespace = [("shop".to_owned(), 20)].into();
    let drifting = Drifting { by_namespace, declared: 30 };
    for seconds in 0..4 {
        scene.machine.repairs.brake.update_state("shop", &drifting, scene.now + Duration::from_secs(seconds));
    }
    assert!(scene.machine.repairs.brake.is_on("shop"));
}

#[test]
fn stopped_repairs_go_on_in_a_later_lead_and_in_a_later_namespace() {
    let ends: [fn(&mut LoopScene); 2] = [
        |scene| scene.tell(LoopEvent::Leads(false)),
        |scene| scene.tell(LoopEvent::Release(scene.release.id.clone(), None)),
    ];
    for end in ends {
        let mut scene = LoopScene::new(DriftMode::Repair, settings());
        brake(&mut scene);
        end(&mut scene);
        assert!(!scene.machine.repairs.brake.is_on("shop"));
        let is_told = |told: &LoopNotice| matches!(told, LoopNotice::Eased { namespace, by: None } if namespace.as_deref() == Some("shop"));
        assert!(scene.told.iter().any(is_told));
    }
}

#[test]
fn recreated_object_that_a_replica_without_the_lead_cannot_delete_is_told() {
    let mut scene = LoopScene::new(DriftMode::Repair, settings());
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
    let is_told =
        |told: &LoopNotice| matches!(told, LoopNotice::Object { fate: ObjectOutcome::CannotTakeBack(_), .. });
    assert!(scene.told.iter().any(is_told));
}

const WORKLOADS: [&str; 2] = ["one", "two"];
const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// The release with two Deployments, both as Helm made them.
struct Workloads {
    scene: LoopScene,
    manifest: String,
    live: [Value; 2],
}

impl Workloads {
    fn new() -> Self {
        let live = WORKLOADS.map(|name| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": 2, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
                    },
                },
            })
        });
        let manifest = live.each_ref().map(|object| format!("---\n{object}\n")).concat();
        let mut it = Self { scene: LoopScene::new(DriftMode::Repair, settings()), manifest, live };
        it.scene.record(Arc::new(second(ReleaseStatus::Deployed, &it.manifest, MANIFEST)));
        let wanted = BTreeSet::from([deployments()]);
        it.scene.tell(LoopEvent::Scopes { wanted, unserved: BTreeSet::new() });
        it.scene.tell(LoopEvent::Watch(deployments(), ObjectWatchEvent::ListStarted));
        for (number, name) in WORKLOADS.into_iter().enumerate() {
            let metadata = json!({
                "name": name, "namespace": "shop", "uid": "1", "generation": 1,
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "shop"},
            });
            let status = json!({"observedGeneration": 1, "updatedReplicas": 2, "replicas": 2});
            it.live[number]["metadata"] = metadata;
            it.change(number, "/status", status);
        }
        it.scene.tell(LoopEvent::Watch(deployments(), ObjectWatchEvent::ListCompleted));
        it.work();
        it
    }

    /// Somebody writes that, and the watch tells.
    fn change(&mut self, number: usize, pointer: &str, value: Value) {
        self.write(number, pointer, value);
        let live = Box::new(self.read(number));
        self.scene.tell(LoopEvent::Watch(deployments(), ObjectWatchEvent::Object { live, is_listed: false }));
    }

    fn write(&mut self, number: usize, pointer: &str, value: Value) {
        self.scene.version += 1;
        let object = &mut self.live[number];
        object["metadata"]["resourceVersion"] = json!(self.scene.version.to_string());
        if pointer == "/status" {
            object["status"] = value;
        } else {
            *object.pointer_mut(pointer).unwrap() = value;
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = json!(generation + 1);
        }
    }

    fn read(&self, number: usize) -> LiveObject {
        let mut live = self.scene.live().unwrap();
        live.sighting.id = ObjectId::namespaced("apps", "Deployment", "shop", WORKLOADS[number]);
        live.sighting.resource_version =
            self.live[number]["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        live.object = Some(self.live[number].clone());
        live
    }

    fn work(&mut self) {
        while let Some((errand, work)) = self.scene.work.pop_front() {
            let number = |object: &ObjectId| usize::from(object.name == WORKLOADS[1]);
            let outcome = match work {
                ApiWork::ReadObject { object, .. } => {
                    let live = Some(Box::new(self.read(number(&object))));
                    WorkOutcome::Object { live, version: "v1".to_owned() }
                }
                ApiWork::ReadDocument { object, .. } => WorkOutcome::Document(ManifestDocument {
                    status: ReleaseStatus::Deployed,
                    apply_method: ApplyMethod::ServerSide,
                    digest: self.scene.release.state.digest,
                    object: document(&self.scene.release.id, &self.manifest, &object, &Catalog::with_core())
                        .map(Secret),
                }),
                ApiWork::Write { object, write: Write::Apply { document: Secret(document), .. }, .. } => {
                    let spec = document["spec"].clone();
                    self.write(number(&object), "/spec", spec);
                    WorkOutcome::Written(Secret(self.live[number(&object)].clone()))
                }
                other => self.scene.outcome(other),
            };
            self.scene.tell(LoopEvent::Outcome(errand, outcome));
        }
    }

    fn images(&self) -> [&str; 2] {
        self.live.each_ref().map(|object| object.pointer(IMAGE).unwrap().as_str().unwrap())
    }
}

fn deployments() -> WatchScope {
    WatchScope { group: "apps".to_owned(), kind: "Deployment".to_owned(), ..scope() }
}

impl Workloads {
    /// These fields of both are changed while nobody leads, and then repaired.
    fn repaired(fields: [(&str, Value); 2]) -> Self {
        let mut it = Self::new();
        it.scene.tell(LoopEvent::Leads(false));
        for (number, (pointer, value)) in fields.into_iter().enumerate() {
            it.change(number, pointer, value);
        }
        it.work();
        it.scene.tell(LoopEvent::Leads(true));
        it.work();
        it
    }
}

#[test]
fn pod_template_repair_waits_while_another_workload_rolls_out() {
    let status = |updated: i64| json!({"observedGeneration": 3, "updatedReplicas": updated, "replicas": 2});
    let order = |it: &mut Workloads| {
        let (release, at) = (it.scene.release.id.clone(), "1".to_owned());
        it.scene.tell(LoopEvent::Order(LoopOrder::Reconcile { release, at, ticket: None }));
    };
    for (what, expected) in [
        ("a step of the rollout", "mine"),
        ("its end", "app:1"),
        ("30 seconds without a step", "app:1"),
        ("an order", "app:1"),
    ] {
        let mut it = Workloads::repaired([(IMAGE, json!("mine")), (IMAGE, json!("mine"))]);
        assert_eq!(it.images(), ["app:1", "mine"], "{what}");
        let drifted = &it.scene.report.as_ref().unwrap().drifted;
        let why = drifted[0].unrepaired_reason.as_deref().unwrap_or_default();
        assert!(why.contains("is still rolling out"), "{what}: {why}");
        match what {
            "a step of the rollout" => it.change(0, "/status", status(1)),
            "its end" => it.change(0, "/status", status(2)),
            "an order" => order(&mut it),
            _ => assert_eq!(it.scene.wait().as_secs(), 30),
        }
        it.work();
        assert_eq!(it.images(), ["app:1", expected], "{what}");
    }
}

#[test]
fn repair_without_new_pods_waits_for_no_rollout() {
    let replicas = "/spec/replicas";
    for fields in
        [[(IMAGE, json!("mine")), (replicas, json!(5))], [(replicas, json!(5)), (IMAGE, json!("mine"))]]
    {
        let it = Workloads::repaired(fields);
        assert_eq!(it.scene.reason(), Some(HealthReason::InSync));
        assert_eq!((it.images(), &it.live[1]["spec"]["replicas"]), (["app:1", "app:1"], &json!(2)));
    }
}
