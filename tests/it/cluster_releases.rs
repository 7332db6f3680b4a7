//! The index of releases, fed by a real API server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kubemoor_cluster::client::connection::{ClusterConnection, connect};
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::ReleaseStatus;
use kubemoor_helm::release::{Appearance, Release};
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{RecordMetrics, registry};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Chart, ControlPlane, Helm, Identity, LaggingWatch, SOON, eventually, forged, soon, unguarded,
};

pub(crate) const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  color: {{ .Values.color }}
";

/// The releases of a cluster under watch, until this is dropped.
pub(crate) struct Watched {
    pub(crate) connection: ClusterConnection,
    pub(crate) kinds: Arc<ServedKinds>,
    pub(crate) releases: Arc<Releases>,
    metrics: Registry,
    stop: CancellationToken,
}

/// A release `web` whose color is red, under a watch that may lag.
struct Lagging {
    namespace: String,
    helm: Helm,
    lag: LaggingWatch,
    watched: Watched,
    web: ReleaseId,
}

impl Watched {
    pub(crate) async fn start(kubeconfig: &Path, driver: RecordDriver, namespaces: &[&str]) -> Self {
        Self::prepare(kubeconfig, driver, namespaces).await.run()
    }

    /// Everything but the watch.
    pub(crate) async fn prepare(kubeconfig: &Path, driver: RecordDriver, namespaces: &[&str]) -> Self {
        let connection = connect(Some(kubeconfig)).await.unwrap();
        let client = connection.client.clone();
        let kinds = ServedKinds::read(client.clone()).await.unwrap();
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
        soon("the index is whole", indexed).await.unwrap();
    }

    pub(crate) fn release(&self, release: &ReleaseId) -> Option<Arc<Release>> {
        self.releases.index().read().release(release).cloned()
    }

    /// The latest revision in the index, with its status.
    pub(crate) fn state(&self, release: &ReleaseId) -> Option<(u64, ReleaseStatus)> {
        self.release(release).map(|release| (release.state.revision, release.state.status))
    }

    pub(crate) async fn until(&self, release: &ReleaseId, state: Option<(u64, ReleaseStatus)>) {
        eventually(&format!("release {release} is {state:?}"), SOON, || async {
            let seen = self.state(release);
            if seen == state { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }

    pub(crate) fn declares(&self, object: &ObjectId) -> bool {
        !self.releases.index().read().claims(object).is_empty()
    }

    /// How often a metric was counted, by the text of its line.
    pub(crate) fn counted(&self, line: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let count = text.lines().find_map(|found| found.strip_prefix(line));
        count.map_or(0, |count| count.trim().parse().unwrap())
    }
}

impl Lagging {
    async fn of(prefix: &str) -> Self {
        let control_plane = unguarded();
        let namespace = control_plane.namespace(prefix).await;
        let helm = Helm::start(control_plane, Identity::Deployer);
        helm.install(&namespace, "web", &settings("web"), color("red")).await.unwrap();
        let lag = LaggingWatch::start(control_plane, Identity::Admin).await;
        let watched = Watched::start(lag.kubeconfig(), RecordDriver::Secret, &[&namespace]).await;
        watched.until_indexed().await;
        let web = release_id(&namespace, "web");
        Self { namespace, helm, lag, watched, web }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn release_id(namespace: &str, name: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: name.into() }
}

pub(crate) fn config_map(namespace: &str, name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", namespace, name)
}

fn color(color: &str) -> Value {
    json!({"values": {"color": color}})
}

pub(crate) fn settings(name: &str) -> Chart {
    Chart::new(name).template("settings.yaml", CONFIG_MAP)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn releases_come_change_and_go() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("records").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let (old, new) = (release_id(&namespace, "old"), release_id(&namespace, "new"));
    helm.install(&namespace, "old", &settings("old"), color("red")).await.unwrap();

    let watched = Watched::of(control_plane, &namespace).await;
    assert_eq!(watched.state(&old), Some((1, ReleaseStatus::Deployed)));
    assert_eq!(watched.release(&old).unwrap().state.appearance, Appearance::Listed);
    assert!(watched.declares(&config_map(&namespace, "settings")));

    let other = Chart::new("new").template("other.yaml", &CONFIG_MAP.replace("settings", "other"));
    helm.install(&namespace, "new", &other, color("red")).await.unwrap();
    watched.until(&new, Some((1, ReleaseStatus::Deployed))).await;
    let appeared = watched.release(&new).unwrap().state.appearance;
    assert_eq!(appeared, Appearance::Seen(ReleaseStatus::PendingInstall));
    assert!(watched.declares(&config_map(&namespace, "other")));

    helm.upgrade(&namespace, "new", &Chart::new("new"), color("blue")).await.unwrap();
    watched.until(&new, Some((2, ReleaseStatus::Deployed))).await;
    assert!(!watched.declares(&config_map(&namespace, "other")), "the upgrade dropped it");
    helm.rollback(&namespace, "new", json!({})).await.unwrap();
    watched.until(&new, Some((3, ReleaseStatus::Deployed))).await;
    assert!(watched.declares(&config_map(&namespace, "other")));
    helm.uninstall(&namespace, "new", json!({})).await.unwrap();
    watched.until(&new, None).await;
    assert_eq!(watched.state(&old), Some((1, ReleaseStatus::Deployed)), "nothing else has changed");
    assert_eq!(watched.releases.count(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_fresh_look_overtakes_a_lagging_watch() {
    let Lagging { namespace, helm, lag, watched, web } = Lagging::of("lag").await;

    lag.hold();
    helm.upgrade(&namespace, "web", &settings("web"), color("blue")).await.unwrap();
    assert_eq!(watched.state(&web), Some((1, ReleaseStatus::Deployed)), "the watch lags");
    assert_eq!(watched.releases.fresh(&web, SOON).await, Ok(true));
    assert_eq!(watched.state(&web), Some((2, ReleaseStatus::Deployed)));
    assert_eq!(watched.releases.fresh(&web, SOON).await, Ok(false));

    let changes = watched.releases.changes();
    assert_eq!(changes.next().await, web);
    lag.release();
    helm.upgrade(&namespace, "web", &settings("web"), color("green")).await.unwrap();
    watched.until(&web, Some((3, ReleaseStatus::Deployed))).await;
    assert_eq!(watched.counted("kubemoor_fresh_looks_total{outcome=\"changed\"}"), 1);
    assert_eq!(watched.counted("kubemoor_fresh_looks_total{outcome=\"unchanged\"}"), 1);

    lag.hold();
    helm.uninstall(&namespace, "web", json!({})).await.unwrap();
    assert_eq!(watched.releases.fresh(&web, SOON).await, Ok(true));
    assert_eq!(watched.state(&web), None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_look_that_is_given_up_leaves_the_release_to_the_index() {
    let Lagging { namespace, lag, watched, web, .. } = Lagging::of("late").await;

    lag.hold();
    // Helm itself would write it twice, and the event of the first time would be news.
    let secrets: Api<Secret> = Api::namespaced(watched.connection.client.clone(), &namespace);
    let record = forged(&namespace, "web", 2, "deployed", "");
    secrets.create(&PostParams::default(), &record).await.unwrap();
    const READ: &str = "GET /secrets/sh.helm.release.v1.web.v2";
    lag.stall(&[READ]);
    let look = watched.releases.fresh(&web, Duration::from_secs(2)).await;
    assert!(look.is_err() && lag.stalled(READ) > 0, "the record is listed and not read: {look:?}");
    // The watch tells nothing that the look has not listed.
    lag.release();
    lag.stall(&[]);
    watched.until(&web, Some((2, ReleaseStatus::Deployed))).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn events_that_a_look_has_overtaken_change_nothing() {
    let control_plane = unguarded();
    let namespace = control_plane.namespace("overtaken").await;
    let helm = Helm::start(control_plane, Identity::Deployer);
    let lag = LaggingWatch::start(control_plane, Identity::Admin).await;
    let watched = Watched::start(lag.kubeconfig(), RecordDriver::Secret, &[&namespace]).await;
    watched.until_indexed().await;
    let (web, marker) = (release_id(&namespace, "web"), release_id(&namespace, "marker"));

    lag.hold();
    let values = color("red");
    helm.install(&namespace, "web", &settings("web"), values.clone()).await.unwrap();
    helm.upgrade(&namespace, "web", &settings("web"), values).await.unwrap();
    assert_eq!(watched.releases.fresh(&web, SOON).await, Ok(true));
    assert_eq!(watched.state(&web), Some((2, ReleaseStatus::Deployed)));
    let changes = watched.releases.changes();
    assert_eq!(changes.next().await, web);

    lag.release();
    helm.install(&namespace, "marker", &Chart::new("marker"), json!({})).await.unwrap();
    watched.until(&marker, Some((1, ReleaseStatus::Deployed))).await;
    assert_eq!(watched.state(&web), Some((2, ReleaseStatus::Deployed)));
    let appeared = watched.release(&web).unwrap().state.appearance;
    assert_eq!(
        appeared,
        Appearance::Seen(ReleaseStatus::PendingUpgrade),
        "the late events told how it appeared"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn looks_at_one_release_are_shared() {
    let control_plane = ControlPlane::start();
    let namespace = control_plane.namespace("shared").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    helm.install(&namespace, "web", &settings("web"), color("red")).await.unwrap();
    let watched = Watched::of(&control_plane, &namespace).await;
    let web = release_id(&namespace, "web");
    let looks = || {
        let events = control_plane.audit_events(&["name%3Dweb"]);
        let uri = |event: &serde_json::Value| event["requestURI"].as_str().unwrap().contains("name%3Dweb");
        events.iter().filter(|event| uri(event)).count()
    };

    let asked = 50;
    let outcomes = futures::future::join_all((0..asked).map(|_| watched.releases.fresh(&web, SOON))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(false)), "{outcomes:?}");
    eventually("the looks are in the audit log", SOON, || async { looks() > 0 }).await;
    assert!(looks() <= 3, "{} looks for {asked} questions at once", looks());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn lookup_of_invalid_or_unknown_release_reports_no_change() {
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
        let outcome = watched.releases.fresh(&release_id(namespace, name), SOON).await;
        assert_eq!(outcome, Ok(false), "{namespace}/{name}");
    }
}
