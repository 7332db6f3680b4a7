//! Who may write Secrets makes a release declare other values, and the guard writes none of them: it has never seen
//! the live objects agree with them, and nobody who may update the objects asked for it.

use serde_json::{Value, json};

use crate::support::{
    Caller, Chart, Guard, Identity, Member, RELEASE, RbacRule, SOON, Scene, eventually, forged, holding,
    opened, record_name, sealed,
};

/// A quota and a ConfigMap.
const LIMITED: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: limits}
spec: {hard: {pods: '3'}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
";

/// Another quota.
const BANK: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: bank}
spec: {hard: {pods: '3'}}
";

/// The annotation that holds the ticket of an order.
const TICKET: &str = "kubemoor.dev/confirmed-by";

const REGISTERED: [&str; 5] = ["--register", "--edits", "Deny", "--drift", "Repair"];

/// One of several behind a Service.
const REPLICA: [&str; 2] = ["--service=kubemoor-system/kubemoor", "--drift=Repair"];

/// What the quota allows by the forged revision.
const FORGED: &str = "50";

async fn limited(prefix: &str) -> Scene {
    Scene::own().install(prefix, LIMITED).await
}

/// A user who may do this in the scene's namespace and nothing else.
async fn member(scene: &Scene, rights: &[&str]) -> Member {
    let member = Member::new(&scene.control_plane).await;
    let rights: Vec<RbacRule> = rights.iter().map(|right| RbacRule::parse(right)).collect();
    member.may(&rights, Some(&scene.namespace)).await;
    member
}

impl Scene {
    fn quota(&self) -> String {
        self.core("resourcequotas/limits")
    }

    async fn pods(&self) -> Option<Value> {
        self.alice.get(&self.quota()).await.done().ok().map(|quota| quota["spec"]["hard"]["pods"].clone())
    }

    /// Makes a revision as Helm does, by somebody who may write nothing but Secrets.
    async fn forge(&self, revision: u32, templates: &str) {
        self.forge_release(RELEASE, revision, templates).await;
    }

    /// The same of any release.
    async fn forge_release(&self, release: &str, revision: u32, templates: &str) {
        let mallory = member(self, &["create,get,update secrets"]).await.caller().await;
        let secrets = self.core("secrets");
        let record = |status| {
            serde_json::to_value(forged(&self.namespace, release, revision, status, templates)).unwrap()
        };
        mallory.post(&secrets, &record("pending-upgrade")).await.done().unwrap();
        let path = format!("{secrets}/{}", record_name(release, revision));
        // Not before the guard has seen the operation: what appears as deployed is left alone for a while anyway.
        self.status_of(release, "the pending revision", |status| status["revision"] == revision).await;
        mallory.put(&path, &record("deployed")).await.done().unwrap();
    }

    /// Forges the second revision with another quota.
    async fn forge_quota(&self) {
        self.forge(2, &LIMITED.replace("'3'", &format!("'{FORGED}'"))).await;
    }

    /// Waits until the status names the quota as unconfirmed; it must not have been written.
    async fn wait_until_unconfirmed(&self) -> Value {
        let status = self.wait_for_reason("Unconfirmed").await;
        assert_eq!(status["conditions"][0]["status"], "False");
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert!(
            message.contains("ResourceQuota/limits") && message.contains("kubemoor reconcile"),
            "{message}"
        );
        status
    }

    /// The guard has written no quota.
    async fn assert_untouched(&self) {
        assert_eq!(self.pods().await, Some(json!("3")));
        assert_eq!(self.writes("resourcequotas"), 0);
    }
}

/// Waits until this process has said that it leaves the quota alone.
async fn wait_for_report(guard: &Guard, outcome: &str) {
    guard.wait_for_metric(&format!("outcome=\"{outcome}\"}} 1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_values_are_reported_and_never_written() {
    let scene = limited("forged").await;
    let mut guard = scene.start_guard(&REGISTERED).await;
    scene.wait_for_confirmed(2).await;
    scene.forge_quota().await;
    scene.wait_until_unconfirmed().await;
    // Whatever happens to the object meanwhile.
    scene.alice.merge(&scene.quota(), &json!({"metadata": {"labels": {"a": "b"}}})).await.done().unwrap();
    // What it declares as before is repaired as before.
    let settings = scene.config_map("settings");
    let controller = Caller::new(&scene.control_plane, Identity::NamespaceController).await;
    controller.delete(&settings).await.done().unwrap();
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    scene.wait_until_unconfirmed().await;
    scene.assert_untouched().await;

    guard.kill();
    guard.start_again().await;
    wait_for_report(&guard, "reported").await;
    scene.wait_until_unconfirmed().await;
    scene.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn forged_values_stay_unwritten_when_another_replica_leads() {
    let scene = limited("inherited").await;
    let mut leader = scene.start_guard(&REPLICA).await;
    scene.wait_for_confirmed(2).await;
    let follower = scene.start_guard(&REPLICA).await;
    scene.forge_quota().await;
    scene.wait_until_unconfirmed().await;
    leader.kill();
    wait_for_report(&follower, "reported").await;
    scene.wait_until_unconfirmed().await;
    scene.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn deleted_object_is_not_recreated_with_forged_values() {
    let scene = limited("deleted").await;
    let mut guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    scene.forge_quota().await;
    scene.wait_until_unconfirmed().await;
    scene.alice.delete(&scene.quota()).await.done().unwrap();
    scene.status("the missing quota", |status| status["drifts"][0]["type"] == "missing").await;
    scene.wait_until_unconfirmed().await;
    guard.kill();
    guard.start_again().await;
    wait_for_report(&guard, "reported").await;
    scene.wait_until_unconfirmed().await;
    assert_eq!((scene.pods().await, scene.writes("resourcequotas")), (None, 0));
    // Without the forged record it is the honest one that counts again.
    let secrets = scene.core("secrets");
    scene.alice.delete(&format!("{secrets}/{}", record_name(RELEASE, 2))).await.done().unwrap();
    scene.wait_for_reason("InSync").await;
    scene.wait_for_value(&scene.quota(), "/spec/hard/pods", json!("3")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_writes_forged_values_only_for_who_may_update() {
    let scene = Scene::shared().install("ordered", LIMITED).await;
    scene.wait_for_confirmed(2).await;
    scene.forge_quota().await;
    scene.wait_until_unconfirmed().await;
    let orders = "get,patch guardedreleases.kubemoor.dev";
    let mallory = member(&scene, &[orders, "get,update configmaps"]).await;
    let ordered = mallory.moor(&["reconcile", RELEASE, "-n", &scene.namespace], "");
    assert_eq!(ordered.code, 1, "it stays as it is: {ordered:?}");
    assert!(ordered.error.contains("ResourceQuota \"limits\""), "{ordered:?}");
    scene.status("the order", |status| status["lastReconcileAt"].is_string()).await;
    scene.wait_until_unconfirmed().await;
    scene.assert_untouched().await;

    let operator = member(&scene, &[orders, "update resourcequotas"]).await;
    // Somebody who tries it out first leaves no trace.
    let path = format!("{}?dryRun=All", scene.guarded_release(RELEASE));
    let order = json!({"spec": {"reconcileAt": "tried"}});
    let tried = operator.caller().await.merge(&path, &order).await.done().unwrap();
    assert_eq!(tried["metadata"]["annotations"], Value::Null);
    scene.assert_untouched().await;
    let ordered = operator.moor(&["reconcile", RELEASE, "-n", &scene.namespace], "");
    assert_eq!(ordered.code, 0, "{ordered:?}");
    assert!(!ordered.error.contains("ResourceQuota \"limits\""), "{ordered:?}");
    scene.wait_for_value(&scene.quota(), "/spec/hard/pods", json!(FORGED)).await;
    scene.wait_for_reason("InSync").await;
    eventually("the ledger names who confirmed it", SOON, || async {
        let rows = json!(scene.rows(&["--release", RELEASE])).to_string();
        if rows.contains("confirmed by system:serviceaccount:default:member-") { Ok(()) } else { Err(rows) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn order_says_that_the_guard_may_not_ask_about_its_user() {
    let scene = limited("unasked").await;
    let _guard = scene.start_guard(&REGISTERED).await;
    scene.wait_for_confirmed(2).await;
    scene.forge_quota().await;
    scene.wait_until_unconfirmed().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kubemoor-cluster";
    let mut role = scene.admin.get(path).await.done().unwrap();
    let is_needed = |rule: &Value| rule["resources"] != json!(["subjectaccessreviews"]);
    role["rules"].as_array_mut().unwrap().retain(is_needed);
    scene.admin.put(path, &role).await.done().unwrap();
    let mallory = member(&scene, &["get,patch guardedreleases.kubemoor.dev"]).await;
    eventually("the answer names the reason", SOON, || async {
        let ordered = mallory.moor(&["reconcile", RELEASE, "-n", &scene.namespace], "");
        let is_named = ordered.error.contains("the guard may not check if");
        if ordered.code == 1 && is_named { Ok(()) } else { Err(format!("{ordered:?}")) }
    })
    .await;
    scene.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn forged_or_replayed_ticket_confirms_nothing() {
    let scene = limited("ticket").await;
    let bank = Chart::new("bank").template("all.yaml", BANK);
    scene.helm.install(&scene.namespace, "bank", &bank, json!({})).await.unwrap();
    let guard = scene.start_guard(&REGISTERED).await;
    scene.wait_for_confirmed(2).await;
    scene.forge_quota().await;
    scene.wait_until_unconfirmed().await;
    scene.forge_release("bank", 2, &BANK.replace("'3'", &format!("'{FORGED}'"))).await;
    // A ticket of somebody who may update every quota.
    let shop = scene.guarded_release(RELEASE);
    scene.alice.merge(&shop, &json!({"spec": {"reconcileAt": "first"}})).await.done().unwrap();
    scene.wait_for_value(&scene.quota(), "/spec/hard/pods", json!(FORGED)).await;
    let ticket = scene.get(&shop).await["metadata"]["annotations"][TICKET].clone();
    assert!(ticket.is_string(), "{ticket}");
    scene.wait_for_reason("InSync").await;
    scene.forge(3, &LIMITED.replace("'3'", "'60'")).await;
    scene.wait_until_unconfirmed().await;

    // Where the API server asks no webhook, an order has the ticket that its author writes.
    let mallory = member(&scene, &["get,patch guardedreleases.kubemoor.dev"]).await.caller().await;
    let api = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kubemoor";
    let nowhere = json!({"matchLabels": {"nowhere": "at-all"}});
    let selector = [json!({"op": "add", "path": "/webhooks/0/namespaceSelector", "value": nowhere})];
    let admin = &scene.admin;
    admin.patch_all(api, &json!(selector)).await.done().unwrap();
    let order = |at: &str, ticket: &Value| json!({"metadata": {"annotations": {TICKET: ticket}}, "spec": {"reconcileAt": at}});
    eventually("no webhook is asked", SOON, || async {
        let tried =
            mallory.merge(&format!("{shop}?dryRun=All"), &order("tried", &json!("mine"))).await.done()?;
        let kept = tried["metadata"]["annotations"][TICKET].clone();
        if kept == "mine" { Ok(()) } else { Err(kept.to_string()) }
    })
    .await;
    let forged = ticket.as_str().unwrap().replace("\"revision\":2", "\"revision\":3");
    for (at, ticket) in
        [("second", &ticket), ("first", &ticket), ("third", &json!(forged)), ("fourth", &json!("{}"))]
    {
        mallory.merge(&shop, &order(at, ticket)).await.done().unwrap();
        scene.status("the order", |status| status["lastReconcileAt"] == at).await;
        scene.wait_until_unconfirmed().await;
    }
    let other = scene.guarded_release("bank");
    mallory.merge(&other, &order("first", &ticket)).await.done().unwrap();
    scene
        .status_of("bank", "the order", |status| {
            status["lastReconcileAt"] == "first" && status["conditions"][0]["reason"] == "Unconfirmed"
        })
        .await;
    let bank = scene.core("resourcequotas/bank");
    assert_eq!(scene.get(&bank).await["spec"]["hard"]["pods"], "3");
    assert_eq!(scene.pods().await, Some(json!(FORGED)), "what was confirmed stays");
    guard.wait_for_log("has no effect").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn field_that_a_forged_record_drops_is_not_taken_away() {
    let both = LIMITED.replace("{pods: '3'}", "{pods: '3', services: '2'}");
    let scene = Scene::own().install("dropped", &both).await;
    let guard = scene.start_guard(&["--drift", "Repair"]).await;
    scene.wait_for_confirmed(2).await;
    let mallory = member(&scene, &["create,get,update secrets"]).await.caller().await;
    let secrets = scene.core("secrets");
    let first = scene.get(&format!("{secrets}/{}", record_name(RELEASE, 1))).await;
    let mut release = opened(&serde_json::from_value(first).unwrap());
    assert_eq!(release["apply_method"], "ssa");
    release["version"] = json!(2);
    release["manifest"] = json!(LIMITED);
    for (status, revision) in [("pending-upgrade", 1), ("deployed", 2)] {
        release["info"]["status"] = json!(status);
        let record = holding(&scene.namespace, RELEASE, 2, status, sealed(&release));
        let record = serde_json::to_value(record).unwrap();
        let path = format!("{secrets}/{}", record_name(RELEASE, 2));
        let written = match revision {
            1 => mallory.post(&secrets, &record).await,
            _ => mallory.put(&path, &record).await,
        };
        written.done().unwrap();
        scene.status("the forged revision", |status| status["revision"] == 2).await;
    }
    scene.wait_for_reason("InSync").await;
    // Somebody changes what the forged record still declares.
    scene.edit(&scene.quota(), json!({"spec": {"hard": {"pods": "9"}}})).await;
    scene.wait_until_unconfirmed().await;
    let quota = scene.get(&scene.quota()).await;
    assert_eq!(quota["spec"]["hard"], json!({"pods": "9", "services": "2"}));
    assert_eq!(scene.writes("resourcequotas"), 0, "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn object_deleted_right_after_an_upgrade_comes_back_new() {
    let scene = limited("honest").await;
    let _guard = scene.start_guard(&REGISTERED).await;
    scene.wait_for_confirmed(2).await;
    scene.upgrade_to(&LIMITED.replace("'3'", "'5'").replace("info", "debug"), json!({})).await.unwrap();
    let controller = Caller::new(&scene.control_plane, Identity::NamespaceController).await;
    controller.delete(&scene.config_map("settings")).await.done().unwrap();
    controller.delete(&scene.quota()).await.done().unwrap();
    scene.wait_for_value(&scene.quota(), "/spec/hard/pods", json!("5")).await;
    scene.wait_for_value(&scene.config_map("settings"), "/data/level", json!("debug")).await;
    scene.wait_for_reason("InSync").await;
}
