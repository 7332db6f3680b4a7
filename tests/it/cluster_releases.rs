//! The index of releases, fed by a real API server.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kubemoor::cluster::client::{Connection, connect};
use kubemoor::cluster::kinds::Kinds;
use kubemoor::cluster::releases::Releases;
use kubemoor::config::RecordDriver;
use kubemoor::helm::record::Status;
use kubemoor::helm::release::{Appearance, Release};
use kubemoor::metrics::{RecordMetrics, registry};
use kubemoor::model::{ObjectId, ReleaseId};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{Chart, ControlPlane, Helm, Identity, LaggingWatch, eventually};

pub(crate) const SOON: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_secs(5);

const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  color: {{ .Values.color }}
";

/// The releases of a cluster under watch, until this is dropped.
pub(crate) struct Watched {
    pub(crate) connection: Connection,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) releases: Arc<Releases>,
    metrics: Registry,
    stop: CancellationToken,
}

impl Watched {
    pub(crate) async fn start(kubeconfig: &Path, driver: RecordDriver, namespaces: &[&str]) -> Self {
        Self::prepare(kubeconfig, driver, namespaces).await.run()
    }

    /// Everything but the watch.
    pub(crate) async fn prepare(kubeconfig: &Path, driver: RecordDriver, namespaces: &[&str]) -> Self {
        let connection = connect(Some(kubeconfig)).await.unwrap();
        let client = connection.client.clone();
        let kinds = Kinds::read(client.clone()).await.unwrap();
        let mut metrics = registry();
        let counted = RecordMetrics::register(&mut metrics, Vec::<(&'static str, u64)>::new);
        let namespaces = namespaces.iter().map(|&namespace| namespace.to_owned()).collect();
        let releases = Releases::new(client, driver, namespaces, kinds.clone(), Arc::default(), counted);
        Self { connection, kinds, releases, metrics, stop: CancellationToken::new() }
    }

    /// Begins to watch.
    pub(crate) fn run(self) -> Self {
        tokio::spawn(self.releases.clone().run(self.stop.clone()));
        let (kinds, stop) = (self.kinds.clone(), self.stop.clone());
        tokio::spawn(async move { kinds.run(stop).await });
        self
    }

    pub(crate) async fn of(control_plane: &ControlPlane, namespace: &str) -> Self {
        let kubeconfig = control_plane.kubeconfig(Identity::Admin);
        let watched = Self::start(&kubeconfig, RecordDriver::Secret, &[namespace]).await;
        watched.until_indexed().await;
        watched
    }

    pub(crate) async fn until_indexed(&self) {
        let mut health = self.releases.health();
        let indexed = health.wait_for(|health| health.indexed);
        tokio::time::timeout(SOON, indexed).await.expect("the index is whole in time").unwrap();
    }

    pub(crate) fn release(&self, release: &ReleaseId) -> Option<Arc<Release>> {
        self.releases.index().read().release(release).cloned()
    }

    /// The latest revision in the index, with its status.
    pub(crate) fn state(&self, release: &ReleaseId) -> Option<(u64, Status)> {
        self.release(release).map(|release| (release.state.revision, release.state.status))
    }

    pub(crate) async fn until(&self, release: &ReleaseId, state: Option<(u64, Status)>) {
        eventually(&format!("release {release} is {state:?}"), SOON, || async {
            let seen = self.state(release);
            if seen == state { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }

    fn declares(&self, object: &ObjectId) -> bool {
        !self.releases.index().read().claims(object).is_empty()
    }

    /// How often a metric was counted, by the text of its line.
    fn counted(&self, line: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let count = text.lines().find_map(|found| found.strip_prefix(line));
        count.map_or(0, |count| count.trim().parse().unwrap())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn release_id(namespace: &str, name: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.to_owned(), name: name.to_owned() }
}

pub(crate) fn config_map(namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        group: String::new(),
        kind: "ConfigMap".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    }
}

pub(crate) fn settings(name: &str) -> Chart {
    Chart::new(name).template("settings.yaml", CONFIG_MAP)
}

/// Replaces what a record holds, and labels it with `status`.
async fn tamper(secrets: &Api<Secret>, name: &str, status: &str, release: &str) {
    let patch = json!({"metadata": {"labels": {"status": status}}, "stringData": {"release": release}});
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A control plane without a guard: these tests write what a guard refuses.
fn unguarded() -> &'static ControlPlane {
    static UNGUARDED: OnceLock<ControlPlane> = OnceLock::new();
    UNGUARDED.get_or_init(ControlPlane::start)
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_come_change_and_go() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("records").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let (old, new) = (release_id(&namespace, "old"), release_id(&namespace, "new"));
    let settings_of = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "old", &settings("old"), settings_of("red")).await.unwrap();

    let watched = Watched::of(control_plane, &namespace).await;
    assert_eq!(watched.state(&old), Some((1, Status::Deployed)));
    assert_eq!(watched.release(&old).unwrap().state.appearance, Appearance::Listed);
    assert!(watched.declares(&config_map(&namespace, "settings")));

    let other = Chart::new("new").template("other.yaml", &CONFIG_MAP.replace("settings", "other"));
    helm.install(&namespace, "new", &other, settings_of("red")).await.unwrap();
    watched.until(&new, Some((1, Status::Deployed))).await;
    let appeared = watched.release(&new).unwrap().state.appearance;
    assert_eq!(appeared, Appearance::Seen(Status::PendingInstall));
    assert!(watched.declares(&config_map(&namespace, "other")));

    helm.upgrade(&namespace, "new", &Chart::new("new"), settings_of("blue")).await.unwrap();
    watched.until(&new, Some((2, Status::Deployed))).await;
    assert!(!watched.declares(&config_map(&namespace, "other")), "the upgrade dropped it");
    helm.rollback(&namespace, "new", json!({})).await.unwrap();
    watched.until(&new, Some((3, Status::Deployed))).await;
    assert!(watched.declares(&config_map(&namespace, "other")));
    helm.uninstall(&namespace, "new", json!({})).await.unwrap();
    watched.until(&new, None).await;
    assert_eq!(watched.state(&old), Some((1, Status::Deployed)), "nothing else has changed");
    assert_eq!(watched.releases.count(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_are_told_of_every_release_and_of_each_change() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("changes").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), json!({"values": {"color": "red"}})).await.unwrap();
    let watched = Watched::of(control_plane, &namespace).await;
    let web = release_id(&namespace, "web");

    let changes = watched.releases.changes();
    assert_eq!(changes.next().await, web, "what is there already is told first");
    helm.uninstall(&namespace, "web", json!({})).await.unwrap();
    eventually("the end of the release is told", SOON, || async {
        let told = tokio::time::timeout(SOON, changes.next()).await.unwrap();
        told == web && watched.state(&web).is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_look_overtakes_a_lagging_watch() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("lag").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let web = release_id(&namespace, "web");
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    let lag = LaggingWatch::start(control_plane, Identity::Admin).await;
    let watched = Watched::start(lag.kubeconfig(), RecordDriver::Secret, &[&namespace]).await;
    watched.until_indexed().await;

    lag.hold();
    helm.upgrade(&namespace, "web", &settings("web"), values("blue")).await.unwrap();
    assert_eq!(watched.state(&web), Some((1, Status::Deployed)), "the watch lags");
    assert_eq!(watched.releases.fresh(&web, LOOK).await, Ok(true));
    assert_eq!(watched.state(&web), Some((2, Status::Deployed)));
    assert_eq!(watched.releases.fresh(&web, LOOK).await, Ok(false));

    let changes = watched.releases.changes();
    assert_eq!(changes.next().await, web);
    lag.release();
    helm.upgrade(&namespace, "web", &settings("web"), values("green")).await.unwrap();
    watched.until(&web, Some((3, Status::Deployed))).await;
    assert_eq!(watched.counted("kubemoor_fresh_looks_total{outcome=\"changed\"}"), 1);
    assert_eq!(watched.counted("kubemoor_fresh_looks_total{outcome=\"unchanged\"}"), 1);

    lag.hold();
    helm.uninstall(&namespace, "web", json!({})).await.unwrap();
    assert_eq!(watched.releases.fresh(&web, LOOK).await, Ok(true));
    assert_eq!(watched.state(&web), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_a_look_has_overtaken_change_nothing() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("overtaken").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let lag = LaggingWatch::start(control_plane, Identity::Admin).await;
    let watched = Watched::start(lag.kubeconfig(), RecordDriver::Secret, &[&namespace]).await;
    watched.until_indexed().await;
    let (web, marker) = (release_id(&namespace, "web"), release_id(&namespace, "marker"));

    lag.hold();
    let values = json!({"values": {"color": "red"}});
    helm.install(&namespace, "web", &settings("web"), values.clone()).await.unwrap();
    helm.upgrade(&namespace, "web", &settings("web"), values).await.unwrap();
    assert_eq!(watched.releases.fresh(&web, LOOK).await, Ok(true));
    assert_eq!(watched.state(&web), Some((2, Status::Deployed)));
    let changes = watched.releases.changes();
    assert_eq!(changes.next().await, web);

    lag.release();
    helm.install(&namespace, "marker", &Chart::new("marker"), json!({})).await.unwrap();
    watched.until(&marker, Some((1, Status::Deployed))).await;
    assert_eq!(watched.state(&web), Some((2, Status::Deployed)));
    let appeared = watched.release(&web).unwrap().state.appearance;
    assert_eq!(appeared, Appearance::Seen(Status::PendingUpgrade), "the late events told how it appeared");
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_at_one_release_are_shared() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("shared").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), json!({"values": {"color": "red"}})).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let web = release_id(&namespace, "web");
    let looks = || {
        let events = control_plane.audit_events();
        let uri = |event: &serde_json::Value| event["requestURI"].as_str().unwrap().contains("name%3Dweb");
        events.iter().filter(|event| uri(event)).count()
    };

    let asked = 50;
    let outcomes = futures::future::join_all((0..asked).map(|_| watched.releases.fresh(&web, LOOK))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(false)), "{outcomes:?}");
    eventually("the looks are in the audit log", SOON, || async { looks() > 0 }).await;
    assert!(looks() <= 3, "{} looks for {asked} questions at once", looks());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_helm_cannot_have_are_no_question_for_the_api_server() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("names").await;
    let watched = Watched::of(control_plane, &namespace).await;
    let cases = [
        (namespace.as_str(), "web,owner!=helm"),
        (namespace.as_str(), ""),
        (namespace.as_str(), "-web"),
        (namespace.as_str(), &"x".repeat(64)),
        ("../secrets", "web"),
        ("", "web"),
        ("a-namespace-that-is-not-watched", "web"),
        (namespace.as_str(), "no-such-release"),
    ];
    for (namespace, name) in cases {
        let outcome = watched.releases.fresh(&release_id(namespace, name), LOOK).await;
        assert_eq!(outcome, Ok(false), "{namespace}/{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_does_not_count_harms_its_own_release_alone() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("forged").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let values = json!({"values": {"color": "red"}});
    helm.install(&namespace, "web", &settings("web"), values.clone()).await.unwrap();
    let chart = Chart::new("db").template("db.yaml", &CONFIG_MAP.replace("settings", "db"));
    helm.install(&namespace, "db", &chart, values).await.unwrap();
    let watched = Watched::of(control_plane, &namespace).await;
    let (web, db) = (release_id(&namespace, "web"), release_id(&namespace, "db"));
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let good = secrets.get("sh.helm.release.v1.web.v1").await.unwrap();

    let forge = async |name: &str, labels: serde_json::Value, release: &[u8]| {
        let secret = json!({
            "metadata": {"name": name, "labels": labels}, "type": "helm.sh/release.v1",
            "stringData": {"release": String::from_utf8(release.to_vec()).unwrap()},
        });
        let secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    };
    let labels = |name: &str, version: &str, status: &str| json!({"owner": "helm", "name": name, "version": version, "status": status});
    let payload = &good.data.as_ref().unwrap()["release"].0;
    forge("sh.helm.release.v1.web.v2", labels("web", "2", "deployed"), b"no base64!").await;
    let invalid = async |what: &str| {
        eventually(what, SOON, || async {
            let release = watched.release(&web)?;
            (release.latest.revision > 1).then_some(())?;
            release.invalid.clone()
        })
        .await
    };
    let reason = invalid("a latest record that does not decode is noticed").await;
    assert_eq!(reason.secret, "sh.helm.release.v1.web.v2");
    assert_eq!(watched.state(&web), Some((1, Status::Deployed)), "the last good record stays");
    assert!(watched.declares(&config_map(&namespace, "settings")));

    // A guard that starts now has seen no good record before.
    let restarted = Watched::of(control_plane, &namespace).await;
    assert_eq!(restarted.state(&web), Some((1, Status::Deployed)));
    assert!(restarted.release(&web).unwrap().invalid.is_some());
    assert!(restarted.declares(&config_map(&namespace, "settings")));

    forge("sh.helm.release.v1.web.v3", labels("web", "3", "pending-upgrade"), payload).await;
    eventually("a payload of another revision is noticed", SOON, || async {
        watched.release(&web)?.invalid.clone().filter(|invalid| invalid.secret.ends_with(".v3"))
    })
    .await;
    forge("sh.helm.release.v1.web.v4", labels("web", "9", "deployed"), payload).await;
    eventually("labels that contradict the name are noticed", SOON, || async {
        watched.release(&web)?.invalid.clone().filter(|invalid| invalid.secret.ends_with(".v4"))
    })
    .await;
    forge("some-secret", json!({"owner": "helm"}), b"x").await;
    forge("sh.helm.release.v1.web.v5", labels("another", "5", "deployed"), payload).await;
    forge("sh.helm.release.v1.empty.v1", labels("empty", "1", "deployed"), b"").await;
    eventually("what is no record at all is counted", SOON, || async {
        watched.counted("kubemoor_records_undecodable_total{reason=\"disagrees\"}") == 4
    })
    .await;
    assert_eq!(watched.counted("kubemoor_records_undecodable_total{reason=\"encoding\"}"), 1);
    assert_eq!(watched.state(&db), Some((1, Status::Deployed)));
    assert_eq!(watched.release(&db).unwrap().invalid, None);

    let forged = ListParams::default().labels("name=web,version!=1");
    secrets.delete_collection(&DeleteParams::default(), &forged).await.unwrap();
    eventually("the release is good again", SOON, || async {
        watched.release(&web).is_some_and(|release| release.invalid.is_none())
    })
    .await;
    tamper(&secrets, "sh.helm.release.v1.web.v1", "deployed", "{}").await;
    eventually("a tampered record is noticed", SOON, || async { watched.release(&web)?.invalid.clone() })
        .await;
    assert!(watched.declares(&config_map(&namespace, "settings")), "what it said before stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_grows_without_end_is_left_alone() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("bomb").await;
    let watched = Watched::of(control_plane, &namespace).await;
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let megabyte = vec![b' '; 1 << 20];
    for _ in 0..100 {
        std::io::Write::write_all(&mut gzip, &megabyte).unwrap();
    }
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, gzip.finish().unwrap());
    let secret = json!({
        "metadata": {"name": "sh.helm.release.v1.bomb.v1", "labels":
            {"owner": "helm", "name": "bomb", "version": "1", "status": "deployed"}},
        "stringData": {"release": text},
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    eventually("the record is counted as too large", SOON, || async {
        watched.counted("kubemoor_records_undecodable_total{reason=\"too_large\"}") == 1
    })
    .await;
    let release = watched.release(&release_id(&namespace, "bomb")).unwrap();
    assert!(release.objects.is_empty() && release.invalid.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_old_revisions_reads_nothing_again() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("pruning").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    for color in ["blue", "green"] {
        helm.upgrade(&namespace, "web", &settings("web"), values(color)).await.unwrap();
    }
    let watched = Watched::of(&control_plane, &namespace).await;
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let reads = || {
        let events = control_plane.audit_events();
        let reads = |event: &&serde_json::Value| {
            event["verb"] == "get"
                && event["objectRef"]["resource"] == "secrets"
                && event["user"]["username"] == "admin"
        };
        events.iter().filter(reads).count()
    };
    eventually("the reading of the latest record is in the audit log", SOON, || async { reads() == 1 }).await;
    secrets.delete("sh.helm.release.v1.web.v1", &DeleteParams::default()).await.unwrap();
    secrets.delete("sh.helm.release.v1.web.v2", &DeleteParams::default()).await.unwrap();
    eventually("the old records are gone", SOON, || async { watched.releases.count() == (1, 1) }).await;
    assert_eq!(watched.releases.fresh(&release_id(&namespace, "web"), LOOK).await, Ok(false));
    assert_eq!(reads(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_in_config_maps_are_followed_as_well() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("configmaps").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), json!({"values": {"color": "red"}})).await.unwrap();
    let client = control_plane.client(Identity::Admin).await;
    // What Helm's ConfigMap driver stores of the same release.
    let secret =
        Api::<Secret>::namespaced(client.clone(), &namespace).get("sh.helm.release.v1.web.v1").await.unwrap();
    let release = String::from_utf8(secret.data.unwrap()["release"].0.clone()).unwrap();
    let record: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "sh.helm.release.v1.web.v1", "labels": secret.metadata.labels},
        "data": {"release": release},
    }))
    .unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    config_maps.create(&PostParams::default(), &record).await.unwrap();
    let kubeconfig = control_plane.kubeconfig(Identity::Admin);
    let watched = Watched::start(&kubeconfig, RecordDriver::Configmap, &[&namespace]).await;
    watched.until_indexed().await;
    assert_eq!(watched.state(&release_id(&namespace, "web")), Some((1, Status::Deployed)));
    assert!(watched.declares(&config_map(&namespace, "settings")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_is_read_again_when_it_is_needed() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("documents").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let values = |color: &str| json!({"values": {"color": color}});
    helm.install(&namespace, "web", &settings("web"), values("red")).await.unwrap();
    helm.upgrade(&namespace, "web", &settings("web"), values("blue")).await.unwrap();
    let watched = Watched::of(control_plane, &namespace).await;
    let web = release_id(&namespace, "web");
    for (revision, color) in [(1, "red"), (2, "blue")] {
        let documents = watched.releases.documents(&web, revision, LOOK).await.unwrap();
        assert_eq!(documents.revision, revision);
        let [(object, document)] = documents.objects.as_slice() else { panic!("one object") };
        assert_eq!(*object, config_map(&namespace, "settings"));
        assert_eq!(document["data"]["color"], color);
        assert_eq!(document["metadata"]["namespace"], namespace.as_str());
        assert_eq!(document["metadata"]["annotations"]["meta.helm.sh/release-name"], "web");
    }
    let error = watched.releases.documents(&web, 7, LOOK).await.err().unwrap();
    assert_eq!(error.to_string(), format!("release {namespace}/web has no record of revision 7"));
}
