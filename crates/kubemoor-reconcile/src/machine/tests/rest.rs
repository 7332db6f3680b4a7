//! What the loop does while nothing changes and much is not as declared: counts of actions and of
//! objects that it looks at, never time.

use std::fmt::Write as _;

use super::*;
use crate::EFFORT;

const RELEASES: usize = 2000;
const OBJECTS: usize = 10;
const NAMESPACES: usize = 50;

/// How the cluster answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    /// No object exists.
    Nothing,
    /// No object may be read.
    Forbidden,
    /// Nobody serves the kind.
    Unserved,
    /// No question is answered.
    Outage,
    /// What is read is as declared.
    Declared,
    /// What is read has another value, and no write is taken.
    Changed,
}

/// Releases of many objects, a loop that knows them, and the cluster as it answers.
struct Crowd {
    machine: Reconciler,
    now: Timestamp,
    releases: Vec<Arc<Release>>,
    policy: Arc<Policy>,
    answers: Answers,
    work: VecDeque<(WorkId, ApiWork)>,
    timer: Option<Timestamp>,
    actions: usize,
}

/// What so much time has cost.
#[derive(Debug)]
struct Cost {
    actions: usize,
    looks: usize,
}

impl Crowd {
    /// All releases are known, and this replica leads.
    fn new(drift: DriftMode, answers: Answers) -> Self {
        Self::with(RELEASES, drift, answers)
    }

    /// The same with so many releases.
    fn with(releases: usize, drift: DriftMode, answers: Answers) -> Self {
        let policy = Arc::new(Policy::new(EditsMode::Warn, drift, Duration::from_secs(3600)));
        let mut crowd = Self {
            machine: Reconciler::new(settings(), SuspendedReleases::new()),
            now: "2026-05-01T12:30:00Z".parse().unwrap(),
            releases: (0..releases).map(many).collect(),
            policy,
            answers,
            work: VecDeque::new(),
            timer: None,
            actions: 0,
        };
        for release in crowd.releases.clone() {
            let ruled = GovernedRelease { release: Arc::clone(&release), policy: Arc::clone(&crowd.policy) };
            crowd.tell(LoopEvent::Release(release.id.clone(), Some(ruled)));
        }
        crowd.tell(LoopEvent::Scopes { wanted: BTreeSet::from([scope()]), unserved: BTreeSet::new() });
        crowd.tell(LoopEvent::Leads(true));
        crowd
    }

    /// The watch lists these objects of each release.
    fn list(&mut self, objects: usize) {
        self.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::ListStarted));
        for release in self.releases.clone() {
            for number in 0..objects {
                let live = Box::new(self.live(&object(&release, number), &release, "v"));
                self.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Object { live, is_listed: true }));
            }
        }
        self.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::ListCompleted));
    }

    /// The watch is refused.
    fn refuse(&mut self) {
        let failure = WorkFailure { fault: Fault::Forbidden, message: "no right".to_owned() };
        self.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Failed(failure)));
    }

    fn live(&self, object: &ObjectId, release: &Release, value: &str) -> LiveObject {
        let annotations = json!({
            "meta.helm.sh/release-name": release.id.name, "meta.helm.sh/release-namespace": release.id.namespace,
        });
        let version = if value == "v" { "1" } else { "2" };
        let value = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
            "metadata": {
                "name": object.name, "namespace": object.namespace, "uid": "1", "resourceVersion": version,
                "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": annotations,
            },
        });
        let sighting = Sighting {
            id: object.clone(),
            uid: "1".to_owned(),
            resource_version: version.to_owned(),
            deleting: false,
            release: Some(release.id.clone()),
            managers: vec![HelmManager { name: "helm".to_owned(), applies: true }],
            updaters: Vec::new(),
            touched: None,
        };
        LiveObject { sighting, object: Some(value), managed: None }
    }

    fn tell(&mut self, event: LoopEvent) {
        for action in self.machine.handle(event, self.now) {
            self.actions += 1;
            match action {
                LoopAction::Do(errand, _, work) => self.work.push_back((errand, work)),
                LoopAction::SetTimer(at) => self.timer = at,
                _ => {}
            }
        }
    }

    fn release(&self, id: &ReleaseId) -> Arc<Release> {
        let number = id.name.trim_start_matches("r").parse::<usize>().unwrap();
        Arc::clone(&self.releases[number])
    }

    fn outcome(&self, work: ApiWork) -> WorkOutcome {
        let failed = |fault| WorkOutcome::Failed(WorkFailure { fault, message: "no".to_owned() });
        let fault = match self.answers {
            Answers::Forbidden => Some(Fault::Forbidden),
            Answers::Unserved => Some(Fault::Unserved),
            Answers::Outage => Some(Fault::Unanswered),
            _ => None,
        };
        match (work, fault) {
            (ApiWork::ReadRecords { release }, _) => {
                let release = self.release(&release);
                WorkOutcome::Records(Some(GovernedRelease { release, policy: Arc::clone(&self.policy) }))
            }
            (_, Some(fault)) => failed(fault),
            (ApiWork::ReadObject { object, .. }, _) => {
                let of = object.name.split_once('-').unwrap().0;
                let release = self.release(&ReleaseId { namespace: "".into(), name: of.into() });
                let value = match self.answers {
                    Answers::Declared => Some("v"),
                    Answers::Changed => Some("x"),
                    _ => None,
                };
                let live = value.map(|value| Box::new(self.live(&object, &release, value)));
                WorkOutcome::Object { live, version: "v1".to_owned() }
            }
            (ApiWork::ReadDocument { object, .. }, _) => {
                let of = object.name.split_once('-').unwrap().0;
                let release = self.release(&ReleaseId { namespace: "".into(), name: of.into() });
                WorkOutcome::Document(ManifestDocument {
                    status: release.state.status,
                    apply_method: ApplyMethod::ServerSide,
                    digest: release.state.digest,
                    object: document(&release.id, &manifest(of), &object, &Catalog::with_core()).map(Secret),
                })
            }
            _ => failed(Fault::Forbidden),
        }
    }

    /// Lets so much time go by, doing all that is asked for; what it costs.
    fn rest(&mut self, time: SignedDuration) -> Cost {
        let (end, actions, before) = (self.now + time, self.actions, EFFORT.get());
        loop {
            if let Some((errand, work)) = self.work.pop_front() {
                let outcome = self.outcome(work);
                self.tell(LoopEvent::Outcome(errand, outcome));
            } else if let Some(at) = self.timer.filter(|at| *at <= end) {
                self.now = self.now.max(at);
                self.timer = None;
                self.tell(LoopEvent::Due);
            } else {
                break;
            }
        }
        self.now = end;
        Cost { actions: self.actions - actions, looks: EFFORT.get() - before }
    }
}

fn manifest(release: &str) -> String {
    let mut text = String::new();
    for number in 0..OBJECTS {
        write!(
            text,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {release}-{number}}}\ndata: {{k: v}}\n"
        )
        .unwrap();
    }
    text
}

fn many(number: usize) -> Arc<Release> {
    let (name, namespace) = (format!("r{number}"), format!("n{}", number % NAMESPACES));
    let manifest = manifest(&name);
    let given =
        SampleRecord { manifest: &manifest, name: &name, namespace: &namespace, ..SampleRecord::default() };
    Arc::new(assembled(given, None))
}

fn object(release: &Release, number: usize) -> ObjectId {
    let namespace = Some(release.id.namespace.clone());
    ObjectId { namespace, name: format!("{}-{number}", release.id.name).into(), ..web() }
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// What an hour costs after another one in which all was found and told.
#[track_caller]
fn check(mut crowd: Crowd, told: (usize, usize), quiet: (usize, usize)) {
    for (name, (actions, looks)) in [("first", told), ("quiet", quiet)] {
        let cost = crowd.rest(HOUR);
        let is_within = cost.actions <= actions && cost.looks <= looks;
        assert!(is_within, "{:?}: the {name} hour costs {cost:?}", crowd.answers);
    }
}

const ALL: usize = RELEASES * OBJECTS;

/// Fewer releases where every object goes on costing something: enough for the brake, or to tell one from all.
const SEEN: usize = 200;

#[test]
fn missing_objects_are_reported_once_and_cost_nothing_more() {
    for drift in [DriftMode::Report, DriftMode::Repair] {
        let mut crowd = Crowd::new(drift, Answers::Nothing);
        crowd.list(0);
        check(crowd, (6 * ALL, 30 * ALL), (0, 0));
    }
}

#[test]
fn forbidden_objects_cause_no_requests_until_access_is_granted() {
    let mut crowd = Crowd::new(DriftMode::Repair, Answers::Forbidden);
    crowd.list(0);
    crowd.rest(HOUR);
    crowd.refuse();
    crowd.rest(HOUR);
    let quiet = crowd.rest(HOUR);
    assert_eq!((quiet.actions, quiet.looks), (0, 0), "a watch that is refused tells when it is not");
    crowd.answers = Answers::Nothing;
    crowd.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Established));
    let cost = crowd.rest(SignedDuration::from_secs(1));
    assert!(cost.actions > ALL, "the right has come, and only so much is done: {cost:?}");
}

#[test]
fn reads_that_fail_are_tried_ever_more_seldom() {
    for answers in [Answers::Forbidden, Answers::Outage] {
        let mut crowd = Crowd::with(SEEN, DriftMode::Repair, answers);
        crowd.list(0);
        let all = SEEN * OBJECTS;
        check(crowd, (60 * all, 250 * all), (20 * all, 120 * all));
    }
}

#[test]
fn objects_of_a_kind_that_goes_are_reported_once() {
    let mut crowd = Crowd::new(DriftMode::Repair, Answers::Unserved);
    crowd.list(0);
    check(crowd, (10 * ALL, 40 * ALL), (0, 0));
}

/// Releases whose objects the loop has seen as declared.
fn seen() -> Crowd {
    let mut crowd = Crowd::with(SEEN, DriftMode::Repair, Answers::Declared);
    crowd.list(OBJECTS);
    crowd.rest(HOUR);
    crowd
}

#[test]
fn stopped_repairs_cost_nothing_until_somebody_orders_one() {
    let mut crowd = seen();
    crowd.answers = Answers::Nothing;
    crowd.list(0);
    check(crowd, (10 * SEEN * OBJECTS, 80 * SEEN * OBJECTS), (0, 0));
}

#[test]
fn repairs_that_fail_are_tried_every_few_minutes() {
    let mut crowd = seen();
    crowd.answers = Answers::Changed;
    // Too few for the brake.
    let few = SEEN / 2;
    for place in 0..few {
        let release = Arc::clone(&crowd.releases[place]);
        let live = Box::new(crowd.live(&object(&release, 0), &release, "x"));
        crowd.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Object { live, is_listed: false }));
    }
    let attempts = 3600 / 225;
    check(crowd, (300 * few, 600 * few), (attempts * 9 * few, attempts * 8 * OBJECTS * few));
}

#[test]
fn one_event_costs_its_release_however_many_objects_drift() {
    let mut crowd = Crowd::new(DriftMode::Report, Answers::Nothing);
    crowd.list(OBJECTS);
    crowd.rest(HOUR);
    crowd.list(0);
    crowd.rest(HOUR);
    let release = Arc::clone(&crowd.releases[7]);
    let live = Box::new(crowd.live(&object(&release, 0), &release, "v"));
    let before = EFFORT.get();
    crowd.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Object { live, is_listed: false }));
    let cost = EFFORT.get() - before;
    assert!(cost > 0 && cost <= 10 * OBJECTS, "one object came back: {cost} objects looked at");
}

#[test]
fn objects_that_are_listed_again_as_they_were_cost_nothing() {
    let mut crowd = seen();
    crowd.answers = Answers::Nothing;
    // Half of them go.
    for _ in 0..2 {
        crowd.list(OBJECTS / 2);
        crowd.rest(HOUR);
    }
    crowd.list(OBJECTS / 2);
    assert!(crowd.work.is_empty(), "{:?}", crowd.work);
    let cost = crowd.rest(HOUR);
    assert_eq!(cost.actions, 0, "{cost:?}");
}

#[test]
fn change_that_no_event_told_of_is_found_by_the_next_listing() {
    let mut crowd = seen();
    let release = Arc::clone(&crowd.releases[7]);
    for (value, is_news) in [("v", false), ("x", true)] {
        let live = Box::new(crowd.live(&object(&release, 0), &release, value));
        crowd.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::ListStarted));
        crowd.tell(LoopEvent::Watch(scope(), ObjectWatchEvent::Object { live, is_listed: true }));
        assert_eq!(!crowd.work.is_empty(), is_news, "{value}");
    }
}
