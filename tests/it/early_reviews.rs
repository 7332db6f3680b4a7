//! Reviews that come while the guard still reads the records of the first listing.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{
    Chart, Guard, Identity, LaggingWatch, RELEASE, Reply, SOON, Scene, charts, eventually, forged,
    record_name, reply,
};

/// Records that are read many at once.
const PAGES: &str = "GET status%3Ddeployed";

/// A release whose objects lie in another namespace.
const ABROAD: &str = "abroad";

/// Write one record at the same time, so that it hardly ever stays as it was read.
const WRITERS: usize = 8;

/// A guard that has listed which records there are, and waits for the pages of them.
struct Early {
    scene: Scene,
    /// Holds many records, also of the release [`ABROAD`].
    many: String,
    /// Holds what that release declares.
    elsewhere: String,
    proxy: LaggingWatch,
    guard: Guard,
}

impl Early {
    async fn begin(stalled: &'static [&'static str]) -> Self {
        let scene = Scene::own().install("early", charts::WORKLOAD).await;
        let many = scene.control_plane.namespace("many").await;
        let elsewhere = scene.control_plane.namespace("elsewhere").await;
        let workload = charts::WORKLOAD.split("---").next().unwrap();
        let abroad = format!("{workload}---\n{}", charts::MANIFEST)
            .replace("metadata: {name:", &format!("metadata: {{namespace: {elsewhere}, name:"));
        scene
            .helm
            .install(&many, ABROAD, &Chart::new("abroad").template("all.yaml", &abroad), json!({}))
            .await
            .unwrap();
        let secrets = Api::<Secret>::namespaced(scene.control_plane.client(Identity::Admin).await, &many);
        for number in 0..30 {
            let record = forged(&many, &format!("r{number}"), 1, "deployed", "");
            secrets.create(&PostParams::default(), &record).await.unwrap();
        }
        let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
        proxy.stall(stalled);
        let guard = Guard::begin_through(&scene.control_plane, proxy.kubeconfig(), &["--edits=Deny"]).await;
        eventually("the pages are asked for", SOON, || async { proxy.stalled(PAGES) > 0 }).await;
        eventually("the guard is ready", SOON, || async { guard.is_ready().await }).await;
        let report = guard.report().await.unwrap();
        assert!(report.contains("[!]records: "), "{report}");
        Self { scene, many, elsewhere, proxy, guard }
    }

    /// The answer to a request within the time.
    async fn ask(&self, request: &Value, within: &str) -> Reply {
        let mut review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "posted", "operation": "UPDATE", "userInfo": {"username": "alice"}, "dryRun": false,
                "options": null,
            },
        });
        let fields = request.as_object().unwrap().clone();
        review["request"].as_object_mut().unwrap().extend(fields);
        let url = format!("{}?timeout={within}", self.guard.review_url());
        reply(self.guard.https().post(url).json(&review)).await
    }

    async fn check(&self, what: &str, request: Value, is_denied: bool) {
        let answer = self.ask(&request, "10s").await;
        assert_eq!(!answer.passes(), is_denied, "{what}: {answer:?}");
    }

    fn deletion_of_namespace(&self) -> Value {
        let name = &self.scene.namespace;
        let old = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        json!({
            "kind": named("kind", "", "Namespace"), "resource": named("resource", "", "namespaces"), "operation": "DELETE",
            "namespace": name, "name": name, "object": null, "oldObject": old,
        })
    }
}

/// An edit of the ConfigMap `settings`, which names the release.
fn edit(namespace: &str, (release, of): (&str, &str)) -> Value {
    let object = |image: &str, level: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": namespace, "annotations": {
                "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": of,
            }},
            "data": {"image": image, "level": level},
        })
    };
    json!({
        "kind": named("kind", "", "ConfigMap"), "resource": named("resource", "", "configmaps"),
        "namespace": namespace, "name": "settings", "object": object("mine", "mine"), "oldObject": object("a", "info"),
    })
}

/// Scales the Deployment `web`.
fn scaling(namespace: &str) -> Value {
    let scale = |replicas: u32| {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "web", "namespace": namespace}, "spec": {"replicas": replicas},
        })
    };
    json!({
        "kind": named("kind", "autoscaling", "Scale"), "resource": named("resource", "apps", "deployments"),
        "subResource": "scale", "namespace": namespace, "name": "web",
        "object": scale(5), "oldObject": scale(2),
    })
}

/// A kind or a resource.
fn named(what: &str, group: &str, name: &str) -> Value {
    json!({"group": group, "version": "v1", what: name})
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_judged_while_records_are_still_read() {
    let early = Early::begin(&[PAGES]).await;
    let (namespace, many, elsewhere) = (&*early.scene.namespace, &*early.many, &*early.elsewhere);

    early.check("a release of the namespace", edit(namespace, (RELEASE, namespace)), true).await;
    early.check("a release of another namespace", edit(elsewhere, (ABROAD, many)), true).await;
    early.check("a release that declares nothing", edit(elsewhere, ("r1", many)), false).await;
    early.check("no release", edit(elsewhere, ("none", "none")), false).await;
    early.check("scaling", scaling(namespace), true).await;

    let record = record_name(RELEASE, 1);
    let held = early.scene.secrets().await.get(&record).await.unwrap();
    let mut held = serde_json::to_value(held).unwrap();
    held["apiVersion"] = "v1".into();
    held["kind"] = "Secret".into();
    let deletion = json!({
        "kind": named("kind", "", "Secret"), "resource": named("resource", "", "secrets"), "operation": "DELETE",
        "namespace": namespace, "name": record, "object": null, "oldObject": held,
    });
    early.check("the last deployed record", deletion, true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn the_owner_of_a_scaled_object_is_looked_up_while_records_are_still_read() {
    let early = Early::begin(&[PAGES]).await;
    early.check("scaling", scaling(&early.elsewhere), true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn deletion_of_a_namespace_waits_until_all_records_are_read() {
    let mut early = Early::begin(&[PAGES]).await;
    let deletion = early.deletion_of_namespace();
    let answer = early.ask(&deletion, "2s").await;
    assert_eq!(answer.code, 500, "{answer:?}");
    assert!(answer.body.to_string().contains("the records of all releases"), "{answer:?}");

    early.proxy.stall(&[]);
    early.guard.ready().await;
    early.check("the namespace of a release", deletion, true).await;
    let report = early.guard.report().await.unwrap();
    assert!(report.contains("[+]records ok"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_record_that_cannot_be_read_yet_leaves_other_edits_to_be_judged() {
    const OWN: &str = "GET /secrets/sh.helm.release.v1.shop.v1";
    let mut early = Early::begin(&[PAGES, OWN]).await;
    let abroad = edit(&early.elsewhere, (ABROAD, &early.many));
    early.check("another release", abroad, true).await;
    let edit = edit(&early.scene.namespace, (RELEASE, &early.scene.namespace));
    let answer = early.ask(&edit, "2s").await;
    assert_eq!(answer.code, 500, "{answer:?}");
    assert!(early.proxy.stalled(OWN) > 0);

    early.proxy.stall(&[]);
    early.guard.ready().await;
    early.check("once it is read", edit, true).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_record_that_is_written_all_the_time_does_not_delay_the_others() {
    let scene = Scene::own().install("early", charts::WORKLOAD).await;
    let busy = scene.control_plane.namespace("busy").await;
    let secrets = Api::<Secret>::namespaced(scene.control_plane.client(Identity::Admin).await, &busy);
    let record = forged(&busy, "busy", 1, "deployed", "");
    let name = record.metadata.name.clone().unwrap();
    secrets.create(&PostParams::default(), &record).await.unwrap();
    let write = async |writer: usize| {
        for number in 0u64.. {
            let patch =
                json!({"metadata": {"annotations": {format!("writer-{writer}"): number.to_string()}}});
            secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
    };
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    proxy.slow("GET /secrets/sh.helm.release.v1.busy");
    let all_read = async {
        let guard = Guard::begin_through(&scene.control_plane, proxy.kubeconfig(), &["--edits=Deny"]).await;
        let is_whole = async || guard.report().await.is_ok_and(|report| report.contains("[+]records ok"));
        eventually("all records are read", SOON, is_whole).await;
    };
    tokio::select! {
        _ = join_all((0..WRITERS).map(write)) => {}
        () = all_read => {}
    }
}
