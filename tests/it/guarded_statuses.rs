//! What a GuardedRelease and events say of what the loop knows, on a real API server: nothing is written while nothing
//! changes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubemoor_cluster::client::events::Events;
use kubemoor_cluster::client::guarded::GuardedReleases;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId, ReleaseId};
use kubemoor_guard::guard::announce::EventPublisher;
use kubemoor_guard::guard::state::LoopState;
use kubemoor_guard::guard::status::Statuses;
use kubemoor_policy::Policy;
use kubemoor_policy::agreement::{LastAgreement, SeenAlive};
use kubemoor_policy::guarded::{OrderAnswer, OrderResult, SuspendedReleases, Suspension};
use kubemoor_policy::resolver::{Labels, PolicyResolver};
use kubemoor_policy::signing::SigningKey;
use kubemoor_reconcile::event::LoopOrder;
use kubemoor_reconcile::report::{DriftKind, Drifted, Happening, Incident, LoopReport};
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{NoticeMetrics, RecordMetrics, registry};
use kubemoor_verdict::health::{Control, HealthReason, RecordHealth, RecordState};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::guarded_releases::wait_until_present;
use crate::support::{Caller, Identity, RELEASE, SOON, Scene, charts, eventually, folder};

/// The parts that tell, with a loop played by the test.
struct Told {
    scene: Scene,
    release: ReleaseId,
    state: Arc<LoopState>,
    commands: mpsc::Receiver<LoopOrder>,
    guarded: GuardedReleases,
    stop: CancellationToken,
}

/// The kinds and the releases of a cluster, as a guard follows them until `stop`.
async fn followed(
    client: &kube::Client,
    registry: &mut Registry,
    stop: &CancellationToken,
) -> (Arc<ServedKinds>, Arc<Releases>) {
    let kinds = ServedKinds::read(client.clone()).await.unwrap();
    let following = Arc::clone(&kinds);
    let ending = stop.clone();
    tokio::spawn(async move { following.run(ending).await });
    let releases = Releases::new(
        client.clone(),
        RecordDriver::Secret,
        Vec::new(),
        Arc::clone(&kinds),
        Arc::default(),
        RecordMetrics::register(registry, || [("deployed", 1)]),
    );
    tokio::spawn(Arc::clone(&releases).run(stop.clone()));
    releases.health().wait_for(|health| health.indexed).await.unwrap();
    (kinds, releases)
}

impl Told {
    async fn new() -> Self {
        let scene = Scene::own().install("told", charts::SETTINGS).await;
        scene.control_plane.apply_deploy(&["namespace.yaml", "rbac.yaml"]).await;
        let client = scene.control_plane.client(Identity::Guard).await;
        let stop = CancellationToken::new();
        let mut registry = registry();
        let (kinds, releases) = followed(&client, &mut registry, &stop).await;
        let metrics = NoticeMetrics::register(&mut registry);
        let state = Arc::new(LoopState::default());
        let resolver = Arc::new(PolicyResolver::new(Policy::new(
            EditsMode::Deny,
            DriftMode::Repair,
            Duration::from_secs(3600),
        )));
        let in_force = InForce::new(resolver, Labels::new());
        let leadership = Leadership::alone();
        let (sender, commands) = mpsc::channel(16);
        let writes = 50.try_into().unwrap();
        let statuses = Statuses {
            guarded: GuardedReleases::new(client.clone(), leadership.clone(), writes),
            kinds: Arc::clone(&kinds),
            releases: Arc::clone(&releases),
            state: Arc::clone(&state),
            in_force: Arc::clone(&in_force),
            commands: sender,
            suspended: SuspendedReleases::new(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
            key: SigningKey::new([7; 32]),
            settled: Arc::default(),
            due: tokio::sync::watch::Sender::new(0),
            lease: None,
            // Nobody keeps a ledger here.
            seen: mpsc::channel(1).0,
        };
        tokio::spawn(statuses.run(stop.clone()));
        let announcer = EventPublisher {
            state: Arc::clone(&state),
            events: Events::new(client.clone(), leadership.clone(), "test".to_owned()),
            kinds,
            releases,
            objects: Objects::new(client.clone(), writes),
            leadership: leadership.clone(),
            metrics,
        };
        tokio::spawn(announcer.run(stop.clone()));
        let release = ReleaseId { namespace: scene.namespace.clone().into(), name: RELEASE.into() };
        wait_until_present(&scene, true).await;
        let guarded = GuardedReleases::new(client, leadership, writes);
        Self { scene, release, state, commands, guarded, stop }
    }

    fn drifted(&self) -> Drifted {
        Drifted {
            object: ObjectId {
                group: String::new().into(),
                kind: "ConfigMap".into(),
                namespace: Some(self.release.namespace.clone()),
                name: "settings".into(),
            }
            .into(),
            kind: DriftKind::Changed,
            findings: Vec::new(),
            by: Some("kubectl-edit".to_owned()),
            since: Timestamp::UNIX_EPOCH,
            repaired: None,
            kept: None,
            contested_by: None,
            unconfirmed: false,
            doubt: false,
            allowed: false,
        }
    }

    fn seen(&self) -> SeenAlive {
        let seal = "AAECAwQFBgcICQoLDA0ODw";
        let agreement = LastAgreement::read(seal, &["/data/open".to_owned()]);
        SeenAlive { object: self.drifted().object, agreement: Some(agreement.unwrap()), settled: None }
    }

    fn report(&self, reason: HealthReason) -> LoopReport {
        let drifted = if reason == HealthReason::InSync { Vec::new() } else { vec![self.drifted()] };
        LoopReport {
            release: self.release.clone(),
            record: Some("u7".to_owned()),
            digest: [7; 32],
            declared: 1,
            seen_alive: vec![self.seen()],
            confirmed: 1,
            unconfirmed: Vec::new(),
            drifted,
            flaws: Vec::new(),
            foreign: Vec::new(),
            unwatched: Vec::new(),
            excused: Vec::new(),
            records: RecordHealth { revision: 1, deployed: None, state: RecordState::Deployed },
            control: Control::by_mode(DriftMode::Repair),
            manager: None,
            leads: true,
            answer: None,
        }
    }

    async fn status(&self) -> Value {
        let object = self.scene.admin.get(&self.scene.guarded_release(RELEASE)).await.done().unwrap();
        object["status"].clone()
    }

    async fn wait_for_condition(&self, ready: &str, reason: &str) -> Value {
        eventually(&format!("Ready={ready} {reason}"), SOON, || async {
            let status = self.status().await;
            let condition = status["conditions"][0].clone();
            if condition["status"] == ready && condition["reason"] == reason {
                Ok(status)
            } else {
                Err(status.to_string())
            }
        })
        .await
    }

    /// Waits until the audit log, which comes after the answers, has so many writes of the status and no more.
    async fn wait_for_writes(&self, times: usize) {
        let is_write = |event: &Value| {
            event["user"]["username"] == Identity::Guard.user()
                && event["objectRef"]["subresource"] == "status"
                && event["objectRef"]["resource"] == "guardedreleases"
        };
        eventually(&format!("the status was written {times} times"), SOON, || async {
            let writes = self
                .scene
                .control_plane
                .audit_events(&[Identity::Guard.user(), "guardedreleases"])
                .iter()
                .filter(|event| is_write(event))
                .count();
            if writes == times { Ok(()) } else { Err(writes.to_string()) }
        })
        .await;
    }

    async fn assert_orders_are_handed_on_once_and_answered(&mut self) {
        let object = self.scene.guarded_release(RELEASE);
        self.scene
            .admin
            .merge(&object, &json!({"spec": {"suspend": true, "reconcileAt": "now"}}))
            .await
            .done()
            .unwrap();
        assert_eq!(
            self.commands.recv().await.unwrap(),
            LoopOrder::Suspend(self.release.clone(), Some(Suspension::default()))
        );
        let order =
            LoopOrder::Reconcile { release: self.release.clone(), at: "now".to_owned(), ticket: None };
        assert_eq!(self.commands.recv().await.unwrap(), order);
        let status = self.wait_for_condition("Unknown", "Suspended").await;
        assert_eq!(status["lastReconcileAt"], Value::Null, "the order is not carried out yet");
        assert_eq!(status["observedGeneration"], 2);
        self.wait_for_writes(3).await;
        self.scene.admin.merge(&object, &json!({"spec": {"suspend": null}})).await.done().unwrap();
        assert_eq!(self.commands.recv().await.unwrap(), LoopOrder::Suspend(self.release.clone(), None));
        self.wait_for_condition("False", "Drifted").await;
        let answer = OrderAnswer {
            at: "now".to_owned(),
            result: OrderResult::Refused,
            message: "1 object stays as it is".to_owned(),
        };
        self.state.publish(LoopReport { answer: Some(answer), ..self.report(HealthReason::Drifted) });
        eventually("the order is answered", SOON, || async {
            let status = self.status().await;
            let is_done = status["lastReconcileAt"] == "now" && status["order"]["result"] == "Refused";
            if is_done { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        assert!(self.commands.try_recv().is_err(), "an order is handed on twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn status_is_written_only_when_known_state_changes() {
    let mut told = Told::new().await;
    told.state.publish(told.report(HealthReason::InSync));
    let status = told.wait_for_condition("True", "InSync").await;
    assert_eq!(
        (&status["edits"], &status["drift"], &status["declared"]),
        (&json!("Deny"), &json!("Repair"), &json!(1))
    );
    assert_eq!(status["observedGeneration"], 1);
    // What kubectl remembers of the API is older than the definition.
    let cache = format!("--cache-dir={}", folder("kubectl-cache").display());
    let columns = told.scene.control_plane.kubectl(Identity::Admin, &["get", "gr", "-A", &cache]);
    let columns = String::from_utf8(columns.stdout).unwrap();
    let head: Vec<_> = columns.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        head,
        ["NAMESPACE", "NAME", "READY", "REASON", "REVISION", "DRIFTED", "EDITS", "DRIFT", "AGE"]
    );

    told.state.publish(told.report(HealthReason::Drifted));
    let status = told.wait_for_condition("False", "Drifted").await;
    assert_eq!(status["drifts"][0]["by"], "kubectl-edit");
    told.wait_for_writes(2).await;
    // The same again, and another release's noise: nothing is written.
    for _ in 0..3 {
        told.state.publish(told.report(HealthReason::Drifted));
        let touch = json!({"metadata": {"annotations": {"touched": Timestamp::now().to_string()}}});
        told.scene.admin.merge(&told.scene.guarded_release(RELEASE), &touch).await.done().unwrap();
    }

    told.assert_orders_are_handed_on_once_and_answered().await;

    // What a guard that starts anew reads.
    let remembered = told.guarded.remembered(&SigningKey::new([7; 32])).await.unwrap();
    let LoopOrder::Remember { first, seen, .. } = &remembered[0] else { panic!("{remembered:?}") };
    assert_eq!((first.revision, first.digest), (1, [7; 32]));
    assert_eq!(*seen, [told.seen()]);
    told.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn an_event_stands_on_the_object_and_on_its_release() {
    let told = Told::new().await;
    let incident = Incident { release: told.release.clone(), revision: 1, drifted: told.drifted() };
    told.state.tell(Happening::Object(Box::new(incident.clone())));
    told.state.tell(Happening::Object(Box::new(incident.clone())));
    let repaired = Drifted { repaired: Some(Ok(())), ..told.drifted() };
    told.state.tell(Happening::Object(Box::new(Incident { drifted: repaired, ..incident.clone() })));
    let list = format!("/apis/events.k8s.io/v1/namespaces/{}/events", told.release.namespace);
    let events = eventually("all events are there", SOON, || async {
        let events = told.scene.admin.get(&list).await.done()?;
        let ours: Vec<_> = events["items"].as_array().unwrap().clone();
        let ours: Vec<_> =
            ours.into_iter().filter(|it| it["reportingController"] == "kubemoor.dev/guard").collect();
        if ours.len() == 4 { Ok(ours) } else { Err(format!("{} events: {ours:?}", ours.len())) }
    })
    .await;
    for event in &events {
        assert!(event["regarding"]["uid"].is_string(), "{event}");
        assert!(event["note"].as_str().unwrap().contains("by kubectl-edit"), "{event}");
    }
    let mut said: Vec<_> = events
        .iter()
        .map(|event| {
            [&event["regarding"]["kind"], &event["type"], &event["reason"]].map(|it| it.as_str().unwrap())
        })
        .collect();
    said.sort_unstable();
    assert_eq!(
        said,
        [
            ["ConfigMap", "Normal", "Repaired"],
            ["ConfigMap", "Warning", "Drifted"],
            ["GuardedRelease", "Normal", "Repaired"],
            ["GuardedRelease", "Warning", "Drifted"],
        ]
    );
    // Said again and again it stays one event, which counts.
    eventually("the series is written", SOON, || async {
        told.state.tell(Happening::Object(Box::new(incident.clone())));
        let events = told.scene.admin.get(&list).await.done()?;
        let ours = events["items"].as_array().unwrap();
        let ours = ours.iter().filter(|it| it["reportingController"] == "kubemoor.dev/guard");
        let counts: Vec<_> = ours.map(|it| it["series"]["count"].as_u64().unwrap_or(1)).collect();
        assert_eq!(counts.len(), 4, "{events}");
        if counts.iter().filter(|count| **count > 1).count() == 2 {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
    told.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn statuses_are_written_again_after_the_api_server_was_away() {
    let mut told = Told::new().await;
    told.state.publish(told.report(HealthReason::InSync));
    told.wait_for_condition("True", "InSync").await;
    told.scene.control_plane.kill_apiserver();
    told.scene.control_plane.start_apiserver();
    told.scene.admin = Caller::new(&told.scene.control_plane, Identity::Admin).await;
    told.state.publish(told.report(HealthReason::Drifted));
    told.wait_for_condition("False", "Drifted").await;
    told.stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_loop_has_seen_is_written_before_the_guard_ends() {
    let told = Told::new().await;
    let report = |seal: &str| {
        let agreement = LastAgreement::read(seal, &[]).unwrap();
        let seen_alive = vec![SeenAlive { agreement: Some(agreement), ..told.seen() }];
        LoopReport { seen_alive, ..told.report(HealthReason::InSync) }
    };
    let agreed = async || told.status().await["seen"][0]["agreed"].clone();
    let seals = ["AQECAwQFBgcICQoLDA0ODw", "AgECAwQFBgcICQoLDA0ODw", "AwECAwQFBgcICQoLDA0ODw"];
    told.state.publish(report(seals[0]));
    told.wait_for_condition("True", "InSync").await;
    // Another status was written a moment ago.
    told.state.publish(report(seals[1]));
    eventually("the agreement is written", SOON, || async {
        let now = agreed().await;
        if now == seals[1] { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    told.state.publish(report(seals[2]));
    told.stop.cancel();
    eventually("the last agreement is written", SOON, || async {
        let now = agreed().await;
        if now == seals[2] { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
}
