//! Looks at the records of a release on a real API server: shared by those who ask at once, given up in time, and never
//! for a name that no release can have.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kubemoor_cluster::client::connection::connect;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::ReleaseId;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_runtime::metrics::{RecordMetrics, registry};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::{
    ControlPlane, Identity, LaggingWatch, SOON, Scene, charts, eventually, forged, soon, unguarded,
};

/// The releases of a namespace under watch, until this is dropped.
struct WatchedReleases {
    client: kube::Client,
    releases: Arc<Releases>,
    _running: DropGuard,
}

impl WatchedReleases {
    async fn start(kubeconfig: &Path, namespace: &str) -> Self {
        let client = connect(Some(kubeconfig)).await.unwrap().client;
        let kinds = ServedKinds::read(client.clone()).await.unwrap();
        let metrics = RecordMetrics::register(&mut registry(), Vec::<(&'static str, u64)>::new);
        let (driver, namespaces) = (RecordDriver::Secret, vec![namespace.to_owned()]);
        let releases = Releases::new(client.clone(), driver, namespaces, kinds, Arc::default(), metrics);
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&releases).run(stop.clone()));
        let mut health = releases.health();
        soon("the index is whole", health.wait_for(|health| health.indexed)).await.unwrap();
        Self { client, releases, _running: stop.drop_guard() }
    }

    fn revision(&self, release: &ReleaseId) -> Option<u64> {
        self.releases.index().read().release(release).map(|release| release.state.revision)
    }
}

fn release_id(namespace: &str, name: &str) -> ReleaseId {
    ReleaseId { namespace: namespace.into(), name: name.into() }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_look_that_is_given_up_leaves_the_release_to_the_index() {
    let scene = Scene::on(unguarded()).install("late", charts::SETTINGS).await;
    let lag = LaggingWatch::start(&scene.control_plane, Identity::Admin).await;
    let watched = WatchedReleases::start(lag.kubeconfig(), &scene.namespace).await;
    let shop = release_id(&scene.namespace, "shop");

    lag.hold();
    // Helm itself would write it twice, and the event of the first time would be news.
    let secrets: Api<Secret> = Api::namespaced(watched.client.clone(), &scene.namespace);
    let record = forged(&scene.namespace, "shop", 2, "deployed", "");
    secrets.create(&PostParams::default(), &record).await.unwrap();
    const READ: &str = "GET /secrets/sh.helm.release.v1.shop.v2";
    lag.stall(&[READ]);
    let look = watched.releases.refresh_release(&shop, Duration::from_secs(2)).await;
    assert!(look.is_err() && lag.stalled(READ) > 0, "the record is listed and not read: {look:?}");
    // The watch tells nothing that the look has not listed.
    lag.release();
    lag.stall(&[]);
    eventually("the record is read", SOON, || async { watched.revision(&shop) == Some(2) }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn looks_are_shared_and_ask_nothing_about_impossible_names() {
    let scene = Scene::on(ControlPlane::start()).install("shared", charts::SETTINGS).await;
    let namespace = scene.namespace.as_str();
    let watched = WatchedReleases::start(&scene.control_plane.kubeconfig(Identity::Admin), namespace).await;
    for (namespace, name) in [
        (namespace, "shop,owner!=helm"),
        (namespace, ""),
        (namespace, "-shop"),
        (namespace, &"x".repeat(64)),
        ("../secrets", "shop"),
        ("", "shop"),
        ("a-namespace-that-is-not-watched", "shop"),
        (namespace, "no-such-release"),
    ] {
        let outcome = watched.releases.refresh_release(&release_id(namespace, name), SOON).await;
        assert_eq!(outcome, Ok(false), "{namespace}/{name}");
    }
    let shop = release_id(namespace, "shop");
    // Helm asks for them as another user.
    let looks = || scene.control_plane.audit_events(&[r#""username":"admin""#, "name%3Dshop"]).len();
    let asked = 50;
    let outcomes =
        futures::future::join_all((0..asked).map(|_| watched.releases.refresh_release(&shop, SOON))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(false)), "{outcomes:?}");
    eventually("the looks are in the audit log", SOON, || async { looks() > 0 }).await;
    assert!(looks() <= 3, "{} looks for {asked} questions at once", looks());
}
