//! The certificate that the leader makes and all replicas serve: one for all, and renewed with its authority while
//! every edit is judged.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    Caller, Chart, ControlPlane, Guard, Helm, Identity, Installed, Pod, RELEASE, SOON, eventually, moor,
    wait_until_guarded,
};

const SETTINGS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";

/// An authority of the certificates of this test lives for 80 seconds.
const AUTHORITIES: Duration = Duration::from_secs(180);

/// The authorities that all webhooks trust, as PEM.
async fn registered(admin: &Caller) -> Option<String> {
    let configuration = admin.get(CONFIGURATION).await.done().unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_refused_throughout_certificate_and_authority_renewal() {
    let control_plane = ControlPlane::start_routing();
    let chart = Installed::new(&control_plane).await;
    chart.install(json!({"edits": "Deny", "certificates": {"age": "20s"}})).await.unwrap();
    let pods = chart.start(2).await;
    let namespace = control_plane.namespace("shop").await;
    let helm = Helm::start(&control_plane, Identity::Deployer);
    let release = Chart::new(RELEASE).template("all.yaml", SETTINGS);
    helm.install(&namespace, RELEASE, &release, json!({})).await.unwrap();
    let settings = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
    let alice = Caller::new(&control_plane, Identity::Alice).await;
    wait_until_guarded(&alice, RELEASE, &settings).await;
    Guard::extend_webhook_timeouts(&control_plane, "Fail").await;

    let first = registered(&chart.admin).await.unwrap();
    assert_eq!(authorities(&first), 1, "{first}");
    eventually("both show one certificate", SOON, || show_one_certificate(&pods, &first)).await;
    let until = Instant::now() + AUTHORITIES;
    let (mut edits, mut overlapped) = (0, false);
    loop {
        assert!(Instant::now() < until, "the authority stays, overlap: {overlapped}, {}", pods[0].log());
        for _ in 0..5 {
            edits += 1;
            let edit = json!({"data": {"mode": format!("slow-{edits}")}});
            alice.merge(&settings, &edit).await.refused(RELEASE).unwrap();
        }
        // While it is written, its webhooks may differ.
        let Some(bundle) = registered(&chart.admin).await else { continue };
        for pod in &pods {
            pod.certificate(&bundle).await.unwrap_or_else(|error| panic!("{error}: {}", pod.log()));
        }
        if authorities(&bundle) == 2 {
            assert!(overlapped || bundle.contains(&first), "the first authority is gone");
            overlapped = true;
        } else if bundle != first {
            break;
        }
    }
    assert!(overlapped, "two authorities were never trusted at once");
    for pod in &pods {
        let log = pod.log();
        assert!(!log.contains("PRIVATE KEY") && !log.contains("is not kept"), "{log}");
    }
    // The leader goes, and the other renews.
    let leader = if pods[0].leads().await { 0 } else { 1 };
    let mut pods = pods;
    pods.remove(leader).kill();
    chart.route(&pods.iter().collect::<Vec<_>>()).await;
    let bundle = registered(&chart.admin).await.unwrap();
    let before = pods[0].certificate(&bundle).await.unwrap();
    eventually("the other replica renews", SOON, || async {
        let bundle = registered(&chart.admin).await.ok_or("it is being written")?;
        let now = pods[0].certificate(&bundle).await?;
        if now == before { Err("the same certificate".to_owned()) } else { Ok(()) }
    })
    .await;
    alice.merge(&settings, &json!({"data": {"mode": "last"}})).await.refused(RELEASE).unwrap();

    // The ledger has a row for each renewal, but no row for the guard's own registration of its authorities.
    let authority = tempfile::NamedTempFile::new().unwrap();
    let acts = eventually("the renewal is in the ledger", SOON, || async {
        let bundle = registered(&chart.admin).await.ok_or("it is being written")?;
        std::fs::write(authority.path(), bundle).unwrap();
        let (server, authority) = (pods[0].admin_url(), authority.path().to_str().unwrap());
        let audit = ["audit", "-A", "-o", "json", "--server", &server, "--certificate-authority", authority];
        let ran = moor(&control_plane, Identity::Admin, &audit);
        let acts: Vec<_> =
            ran.items().into_iter().filter(|row| row["kind"] == "act" && row["verdict"] != "Start").collect();
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
