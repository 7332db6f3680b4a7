//! Releases that Flux or Argo CD deploys without a mark in the manifest: what a denial tells to do.

use serde_json::{Value, json};

use crate::support::{SOON, Scene, charts, eventually};

/// Waits until a denied change is answered with these words. `touch` is done before each try, with its number. Each try
/// is another change: the first may pass before the API server sends the kind.
async fn wait_for_answer(scene: &Scene, says: &str, touch: impl AsyncFn(usize)) {
    let web = scene.deployment("web");
    let tries = std::sync::atomic::AtomicUsize::new(0);
    eventually(says, SOON, || async {
        let number = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        touch(number).await;
        let denied = scene.alice.merge(&web, &json!({"spec": {"replicas": 7 + number}})).await.refusal()?;
        if denied.contains(says) && !denied.contains("helm upgrade") { Ok(()) } else { Err(denied) }
    })
    .await;
}

fn annotated(number: usize) -> Value {
    let tracking = "site:apps/Deployment:shop/web";
    json!({"argocd.argoproj.io/tracking-id": tracking, "refreshed": number.to_string()})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn denial_names_the_argo_application_that_took_over() {
    let scene = Scene::policed().install("argo-owned", charts::DEPLOYMENT).await;
    let path = format!("{}?fieldManager=argocd-controller&force=true", scene.deployment("web"));
    wait_for_answer(&scene, "change the Helm values of Argo CD Application \"site\".", async |number| {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": annotated(number)},
        });
        scene.admin.apply(&path, &object).await.done().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denial_names_the_helm_release_of_flux_by_its_record() {
    let scene = Scene::policed().install("flux-owned", charts::DEPLOYMENT).await;
    let record = scene.core("secrets/sh.helm.release.v1.shop.v1");
    let says =
        "of the HelmRelease of release \"shop\" (kubectl get helmreleases -A): Flux upgrades the release.";
    wait_for_answer(&scene, says, async |number| {
        let touched = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
        let path = format!("{record}?fieldManager=helm-controller");
        scene.admin.merge(&path, &touched).await.done().unwrap();
    })
    .await;
}
