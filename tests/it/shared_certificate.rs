//! The certificate that a replica makes and all serve: one for all, and renewed with its authority while
//! every edit is judged.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Caller, Chart, ControlPlane, Guard, Helm, Identity, Installed, Pod, RELEASE, SOON, edit, eventually,
    moor, wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";

const SECRET: &str = "/api/v1/namespaces/kubemoor-system/secrets/kubemoor-certificate";

/// The authorities that all webhooks trust, as PEM, once they are there and agree.
async fn registered(admin: &Caller) -> Option<String> {
    let configuration = admin.get(CONFIGURATION).await.done().ok()?;
    let bundle = |webhook: &Value| webhook["clientConfig"]["caBundle"].as_str().unwrap().to_owned();
    let mut bundles: Vec<_> = configuration["webhooks"].as_array().unwrap().iter().map(bundle).collect();
    bundles.dedup();
    let [bundle] = &*bundles else { return None };
    Some(String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap())
}

fn authorities(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// Both replicas show one certificate, which `bundle` verifies.
async fn show_one_certificate(pods: &[Pod], bundle: &str) -> Result<(), String> {
    let [first, second] = [pods[0].certificate(bundle).await?, pods[1].certificate(bundle).await?];
    if first == second { Ok(()) } else { Err("they show two certificates".to_owned()) }
}

/// The content of the Secret that the replicas share.
async fn content(admin: &Caller) -> Value {
    admin.get(SECRET).await.done().unwrap()["data"].take()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn restored_certificate_that_webhooks_do_not_trust_is_not_served() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    // Replicas look at the Secret every 9 seconds.
    chart.install(json!({"edits": "Deny", "certificates": {"age": "6m"}})).await.unwrap();
    // Another installation's certificate of before.
    let pods = chart.start(1).await;
    let restored = content(&chart.admin).await;
    eventually("the webhooks are registered", SOON, || async {
        registered(&chart.admin).await.ok_or("they differ")
    })
    .await;
    drop(pods);
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}/kubemoor");
        chart.admin.delete(&path).await.done().unwrap();
    }
    let emptied = json!({"data": null});
    chart.admin.merge(SECRET, &emptied).await.done().unwrap();
    let pods = chart.start(2).await;
    let in_use = content(&chart.admin).await;
    assert_ne!(in_use, restored);
    let bundle = eventually("the webhooks are registered", SOON, || async {
        registered(&chart.admin).await.ok_or("they differ")
    })
    .await;
    eventually("both show one certificate", SOON, || show_one_certificate(&pods, &bundle)).await;

    chart.admin.merge(SECRET, &json!({"data": restored})).await.done().unwrap();
    eventually("the leader writes the certificate in use back", SOON, || async {
        // Both show what the API server trusts, at any time.
        show_one_certificate(&pods, &bundle).await.unwrap();
        let now = content(&chart.admin).await;
        if now == in_use { Ok(()) } else { Err("the restored one is there") }
    })
    .await;
    assert_eq!(registered(&chart.admin).await.unwrap(), bundle);
    assert!(pods.iter().any(|pod| pod.log().contains("keeping the certificate in use")), "{}", pods[0].log());
}

/// Waits until the authority is renewed. At any time the API server trusts what each replica shows, and one that knows the
/// authority from before trusts what they show after.
async fn watch_renewal(admin: &Caller, pods: &[Pod], first: &str) {
    // An authority of this test lives for 80 seconds, and is renewed when 53 of them are over.
    let next = eventually("the authority is renewed", SOON * 5, || async {
        let bundle = registered(admin).await.ok_or("its webhooks differ while it is written")?;
        for pod in pods {
            pod.certificate(&bundle).await.unwrap_or_else(|error| panic!("{error}: {}", pod.log()));
        }
        if bundle == first { Err("the first one stays") } else { Ok(bundle) }
    })
    .await;
    assert_eq!(authorities(&next), 1, "{next}");
    eventually("both show one certificate", SOON, || show_one_certificate(pods, &next)).await;
    show_one_certificate(pods, first).await.unwrap();
}

async fn wait_for_renewal(admin: &Caller, pod: &Pod) {
    let bundle = registered(admin).await.unwrap();
    let before = pod.certificate(&bundle).await.unwrap();
    eventually("the other replica renews", SOON, || async {
        let bundle = registered(admin).await.ok_or("it is being written")?;
        let now = pod.certificate(&bundle).await?;
        if now == before { Err("the same certificate".to_owned()) } else { Ok(()) }
    })
    .await;
}

/// The ledger has a row for each renewal, but no row for the guard's own registration of its authorities.
async fn assert_renewals_are_rows(control_plane: &ControlPlane, admin: &Caller, pod: &Pod) {
    let authority = tempfile::NamedTempFile::new().unwrap();
    let acts = eventually("the renewal is in the ledger", SOON, || async {
        let bundle = registered(admin).await.ok_or("it is being written")?;
        std::fs::write(authority.path(), bundle).unwrap();
        let (server, authority) = (pod.admin_url(), authority.path().to_str().unwrap());
        let audit = ["audit", "-A", "-o", "json", "--server", &server, "--certificate-authority", authority];
        let ran = moor(control_plane, Identity::Admin, &audit);
        // A new leader tells of what the test changed shortly before.
        let is_own = |row: &Value| row["detail"].as_str().unwrap().starts_with("failurePolicy Ignore → Fail");
        let is_told = |row: &Value| row["kind"] == "act" && row["verdict"] != "Start" && !is_own(row);
        let acts: Vec<_> = ran.items().into_iter().filter(is_told).collect();
        if acts.is_empty() { Err(format!("{ran:?}")) } else { Ok(acts) }
    })
    .await;
    for act in &acts {
        assert_eq!(
            (&act["verdict"], &act["object"]["kind"], &act["user"]),
            (&json!("RenewCertificate"), &json!("Secret"), &json!("")),
            "{acts:#?}"
        );
        assert_ne!(act["detail"], "", "{acts:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn edits_are_refused_throughout_certificate_and_authority_renewal() {
    let control_plane = ControlPlane::start();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({"edits": "Deny", "certificates": {"age": "20s"}})).await.unwrap();
    let pods = chart.start(2).await;
    let namespace = control_plane.namespace("shop").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let release = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    helm.install(&namespace, RELEASE, &release, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Arc::new(Caller::new(&control_plane, Identity::Alice).await);
    wait_until_guarded(&alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;

    let first = registered(&chart.admin).await.unwrap();
    assert_eq!(authorities(&first), 1, "{first}");
    eventually("both show one certificate", SOON, || show_one_certificate(&pods, &first)).await;
    let stop = CancellationToken::new();
    let edits = tokio::spawn(edit(Arc::clone(&alice), settings.clone(), stop.clone()));
    watch_renewal(&chart.admin, &pods, &first).await;
    stop.cancel();
    edits.await.unwrap().assert_all_served();
    for pod in &pods {
        let log = pod.log();
        for words in ["PRIVATE KEY", "failed to maintain", "failed to reconcile"] {
            assert!(!log.contains(words), "{log}");
        }
    }
    // The leader goes, and the other renews.
    let leader = if pods[0].leads().await { 0 } else { 1 };
    let mut pods = pods;
    pods.remove(leader).kill();
    chart.route(&pods.iter().collect::<Vec<_>>()).await;
    wait_for_renewal(&chart.admin, &pods[0]).await;
    alice.merge(&settings, &json!({"data": {"mode": "last"}})).await.refused(RELEASE).unwrap();
    assert_renewals_are_rows(&control_plane, &chart.admin, &pods[0]).await;
}
