//! The loop by tables of events: what it asks for and writes, one piece of work
//! after the other, given these answers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::super::event::{
    ApiWork, Fault, GovernedRelease, HelmManager, LiveObject, LoopOrder, ManifestDocument, ObjectNews,
    Secret, Sighting, WorkFailure, WorkId, WorkOutcome, Write,
};
use super::super::report::LoopReport;
use super::super::scopes::WatchScope;
use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId};
use kubemoor_helm::record::{ApplyMethod, ReleaseStatus};
use kubemoor_helm::release::{Release, document};
use kubemoor_policy::Policy;
use kubemoor_policy::guarded::Suspension;
use kubemoor_verdict::health::HealthReason;

mod endings;
mod leads;
mod orders;
mod outside;
mod put_right;
mod reports;
mod rest;
mod revisions;
mod suspensions;

const MANIFEST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {k: v}\n";

/// The release `shop/web` of one ConfigMap, a loop that has seen it as declared, and
/// the cluster as it answers.
struct Scene {
    machine: Reconciler,
    now: Timestamp,
    release: Arc<Release>,
    policy: Arc<Policy>,
    /// The value of `k` in the live object; none while it is missing.
    value: Option<&'static str>,
    version: u64,
    uid: &'static str,
    /// The release that the live object names as its own.
    owner: &'static str,
    /// Its `managedFields`.
    managed: Option<Value>,
    /// The value and the version in which the object is read, where those are old.
    outdated: Option<(&'static str, u64)>,
    /// What the next writes come to; they succeed where nothing is said.
    writes: VecDeque<Fault>,
    /// The release as the records say once they were read so often.
    later: Option<(usize, Option<Arc<Release>>)>,
    reads: usize,
    work: VecDeque<(WorkId, ApiWork)>,
    report: Option<LoopReport>,
    timer: Option<Timestamp>,
    told: Vec<Occurrence>,
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

impl Scene {
    /// Everything is listed, and this replica leads.
    fn new(drift: DriftMode, settings: LoopSettings) -> Self {
        let policy = Arc::new(Policy::new(EditsMode::Warn, drift, Duration::from_secs(3600)));
        let mut scene = Self {
            machine: Reconciler::new(settings, SuspendedReleases::new()),
            now: "2026-05-01T12:30:00Z".parse().unwrap(),
            release: release(ReleaseStatus::Deployed, MANIFEST),
            policy,
            value: Some("v"),
            version: 1,
            uid: "1",
            owner: "web",
            managed: None,
            outdated: None,
            writes: VecDeque::new(),
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
        for tidings in
            [ObjectNews::Relisting, ObjectNews::Object { live, is_listed: true }, ObjectNews::Listed]
        {
            scene.tell(LoopEvent::Watch(scope(), tidings));
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
        Some(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
            "metadata": {
                "name": "web", "namespace": "shop", "uid": self.uid, "resourceVersion": self.version.to_string(),
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": self.owner, "meta.helm.sh/release-namespace": "shop"},
            },
        }))
    }

    fn live(&self) -> Option<LiveObject> {
        let object = self.object()?;
        let managers = vec![HelmManager { name: "helm".to_owned(), applies: true }];
        let sighting = Sighting {
            id: web(),
            uid: self.uid.to_owned(),
            resource_version: self.version.to_string(),
            deleting: false,
            release: Some(ReleaseId { name: self.owner.into(), ..self.release.id.clone() }),
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
        let tidings = match self.live() {
            Some(live) => ObjectNews::Object { live: Box::new(live), is_listed: false },
            None => ObjectNews::Gone { object: web(), version: self.version.to_string() },
        };
        self.tell(LoopEvent::Watch(scope(), tidings));
    }

    /// Does what is asked for until nothing is; gives its names.
    fn work(&mut self) -> String {
        let mut names = Vec::new();
        while let Some((errand, work)) = self.work.pop_front() {
            assert!(names.len() < 50, "hot: {names:?}");
            names.push(name(&work));
            let outcome = self.outcome(work);
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
                object: document(&self.release.id, MANIFEST, &object, &Catalog::with_core()).map(Secret),
            }),
            ApiWork::ReadNamespace { .. } => WorkOutcome::Namespace { deleting: false },
            ApiWork::ReadDefinition { .. } => WorkOutcome::Definition { deleting: false },
            ApiWork::Ask { .. } | ApiWork::Probe { .. } => WorkOutcome::Failed(WorkFailure::unanswered("no")),
            ApiWork::Write { write, .. } => {
                if let Some(fault) = self.writes.pop_front() {
                    return WorkOutcome::Failed(WorkFailure { fault, message: "refused".to_owned() });
                }
                self.version += 1;
                self.value = if matches!(write, Write::Delete { .. }) { None } else { Some("v") };
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
        ApiWork::ReadNamespace { .. } => "namespace",
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
const RESTORED: &str = "object records namespace document APPLY";

#[test]
fn drift_is_repaired_in_this_order_and_reported() {
    for (value, expected) in [(None, RECREATED), (Some("x"), RESTORED)] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
        assert_eq!(scene.reason(), Some(HealthReason::InSync), "before {value:?}");
        scene.change(value);
        assert_eq!(scene.work(), expected, "{value:?}");
        assert_eq!((scene.reason(), scene.value), (Some(HealthReason::InSync), Some("v")), "{value:?}");
    }
}

/// What a change of the scene before the drift makes of both kinds of it.
#[track_caller]
fn check(before: impl Fn(&mut Scene), missing: &str, changed: &str) {
    for (value, expected) in [(None, missing), (Some("x"), changed)] {
        let mut scene = Scene::new(DriftMode::Repair, settings());
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
    let suspended = |scene: &mut Scene| {
        let release = scene.release.id.clone();
        scene.tell(LoopEvent::Order(LoopOrder::Suspend(release, Some(Suspension::default()))));
    };
    check(suspended, "object", "");
    let underway = |scene: &mut Scene| {
        scene.record(release(ReleaseStatus::PendingUpgrade, MANIFEST));
    };
    check(underway, "", "");
    for (drift, read_only) in [(DriftMode::Report, false), (DriftMode::Repair, true)] {
        let mut scene = Scene::new(drift, LoopSettings { read_only, ..settings() });
        scene.change(None);
        assert_eq!(scene.work(), "object");
        assert!(scene.value.is_none() && scene.report.is_some_and(|report| report.drifted.len() == 1));
    }
}

#[test]
fn repair_starts_over_after_a_conflicting_write() {
    let fails = |faults: &[Fault]| {
        let faults = VecDeque::from(faults.to_vec());
        move |scene: &mut Scene| scene.writes = faults.clone()
    };
    check(
        fails(&[Fault::Conflict]),
        "object object records document APPLY",
        &format!("{RESTORED} {RESTORED}"),
    );
    check(
        fails(&[Fault::Conflict, Fault::Conflict, Fault::Conflict]),
        "object object records document APPLY",
        &[RESTORED; 3].join(" "),
    );
    check(fails(&[Fault::AlreadyExists]), "object object records document APPLY", RESTORED);
    check(fails(&[Fault::Terminating]), "object object records document APPLY", RESTORED);
    // Of a write that nobody answered it is looked what it has made.
    check(fails(&[Fault::Unanswered]), "object object records document APPLY object", RESTORED);
}

#[test]
fn recreated_object_is_deleted_when_helm_drops_it_meanwhile() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
    scene.later = Some((2, None));
    scene.change(None);
    assert_eq!(scene.work(), format!("{RECREATED} DELETE"));
    assert_eq!(scene.value, None);
}

#[test]
fn repairs_back_off_while_the_object_is_repeatedly_changed_back() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
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
    let is_contested = |told: &Occurrence| {
        matches!(told, Occurrence::Object { fate: crate::event::ObjectFate::Contested, .. })
    };
    assert!(scene.told.iter().any(is_contested));
}

#[test]
fn reads_back_off_while_the_server_returns_an_older_version() {
    let mut scene = Scene::new(DriftMode::Repair, settings());
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
