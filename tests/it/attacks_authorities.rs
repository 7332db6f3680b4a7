//! Attempts to have the API server trust a forged authority: by the Lease, which tells clients of the guard's own one, or
//! by the webhook configurations.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::support::{HOME, House, Member, RbacRule, SOON, eventually};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubemoor";

fn right(verbs: &[&str], resource: &str, group: &str) -> RbacRule {
    let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
    RbacRule { verbs, resource: resource.to_owned(), group: group.to_owned() }
}

/// The authorities that each webhook trusts, as PEM.
fn bundles(configuration: &Value) -> Vec<String> {
    let decoded = |webhook: &Value| STANDARD.decode(webhook["clientConfig"]["caBundle"].as_str().unwrap());
    let webhooks = configuration["webhooks"].as_array().unwrap();
    webhooks.iter().map(|webhook| String::from_utf8(decoded(webhook).unwrap()).unwrap()).collect()
}

/// The certificate of an authority of the attacker, as PEM.
fn self_signed() -> String {
    let certificate = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
    certificate.pem().replace("\r", "")
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_authority_on_lease_or_webhooks_is_not_trusted() {
    let house = House::shared().await;
    let chart = &house.chart;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/kubemoor");
    let own = eventually("the webhooks are registered", SOON, || async {
        Ok::<_, String>(bundles(&chart.admin.get(WEBHOOKS).await.done()?).remove(0))
    })
    .await;

    let member = Member::new(house.control_plane).await;
    let rights = [
        right(&["get", "patch"], "leases", "coordination.k8s.io"),
        right(&["get", "patch"], "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ];
    member.may(&rights, None).await;
    let attacker = member.caller().await;
    let forged = self_signed();

    let change = json!({"metadata": {"annotations": {"kubemoor.dev/ca-bundle": forged}}});
    attacker.merge(&lease, &change).await.done().unwrap();
    eventually("the leader takes the forged one away", SOON, || async {
        let lease = chart.admin.get(&lease).await.done()?;
        let text = lease["metadata"]["annotations"].to_string();
        let is_there = text.contains(&json!(forged).to_string());
        if is_there { Err(text) } else { Ok(()) }
    })
    .await;
    let trusted = bundles(&chart.admin.get(WEBHOOKS).await.done().unwrap());
    assert!(trusted.iter().all(|bundle| *bundle == own), "{trusted:?}");

    // The leader takes nothing from what it finds there.
    let mut configuration = attacker.get(WEBHOOKS).await.done().unwrap();
    let both = STANDARD.encode(format!("{own}{forged}"));
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        webhook["clientConfig"]["caBundle"] = json!(both);
    }
    attacker.merge(WEBHOOKS, &json!({"webhooks": configuration["webhooks"]})).await.done().unwrap();
    eventually("the webhooks trust the guard's authority alone", SOON, || async {
        let bundles = bundles(&chart.admin.get(WEBHOOKS).await.done()?);
        if bundles.iter().all(|bundle| *bundle == own) { Ok(()) } else { Err(format!("{bundles:?}")) }
    })
    .await;
    assert!(house.pod.leads().await);
}
