//! The emergency switch under a running guard. It is one for the whole cluster, hence a control plane of its own.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use kubemoor::webhook::registration::NAME;
use kubemoor::webhook::registration::emergency::MARKER;

use crate::support::{ControlPlane, Guard, Identity, SOON, Scene, eventually, moor};

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

/// What `/readyz` says of the switch.
async fn emergency_line(guard: &Guard) -> String {
    let text = guard.https().get(guard.admin_url("/readyz")).send().await.unwrap().text().await.unwrap();
    text.lines().find(|line| line.contains("emergency")).unwrap_or_default().to_owned()
}

async fn wait_until_off(guard: &Guard) {
    eventually("the guard says that it is off", SOON, || async {
        emergency_line(guard).await.starts_with("[!]emergency: open")
    })
    .await;
}

/// Gives each webhook a timeout of the admin's own.
async fn set_timeouts(configurations: &Api<ValidatingWebhookConfiguration>, seconds: i32) {
    let live = configurations.get(NAME).await.unwrap();
    let webhooks = live.webhooks.iter().flatten();
    let knobs: Vec<_> =
        webhooks.map(|webhook| json!({"name": webhook.name, "timeoutSeconds": seconds})).collect();
    let patch = Patch::Strategic(json!({"webhooks": knobs}));
    let by = PatchParams { field_manager: Some("oncall".to_owned()), ..PatchParams::default() };
    configurations.patch(NAME, &by, &patch).await.unwrap();
}

/// Waits until each webhook has this timeout.
async fn wait_for_timeouts(configurations: &Api<ValidatingWebhookConfiguration>, seconds: i32) {
    eventually("the configuration is as it was", SOON, || async {
        let live = configurations.get_opt(NAME).await.unwrap();
        live.is_some_and(|live| {
            live.webhooks.iter().flatten().all(|webhook| webhook.timeout_seconds == Some(seconds))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_emergency_permits_everything_until_closed_across_guard_restarts() {
    let scene = Scene::on(ControlPlane::start()).install("emergency", CONFIG).await;
    let mut guard = scene.start_guard(&["--register", "--edits", "Deny", "--drift", "Repair"]).await;
    let settings = scene.config_map("settings");
    let edit = |mode: &str| json!({"data": {"mode": mode}});
    scene.wait_until_guarded(&settings).await;

    // The admin's own settings are to come back as well.
    let configurations: Api<ValidatingWebhookConfiguration> =
        Api::all(scene.control_plane.client(Identity::Admin).await);
    set_timeouts(&configurations, 9).await;

    let emergency = |switch: &str| moor(&scene.control_plane, Identity::Alice, &["emergency", switch]);
    assert!(emergency("close").out.contains("No emergency was open"));
    let status = emergency("status");
    assert!(status.code == 0 && status.out.contains("No emergency is open"), "{status:?}");
    let open =
        moor(&scene.control_plane, Identity::Alice, &["emergency", "open", "--reason", "upgrades are stuck"]);
    assert!(
        open.code == 0
            && open.out.contains("2 webhook configurations")
            && open.out.contains("emergency close"),
        "{open:?}"
    );
    let status = emergency("status");
    assert!(status.code == 1 && status.out.contains("The emergency is open"), "{status:?}");
    assert!(configurations.get_opt(NAME).await.unwrap().is_none());
    scene.alice.merge(&settings, &edit("slow")).await.done().unwrap();
    wait_until_off(&guard).await;
    assert!(guard.is_ready().await, "a guard that is off is still well");
    guard.wait_for_metric("kubemoor_emergency 1").await;
    guard.wait_for_log("the emergency is open").await;

    // What was only reported while everything was open is repaired as soon as it is not.
    eventually("the guard reports the edit", SOON, || async {
        let log = guard.log();
        let said =
            |line: &str| line.contains("ConfigMap/settings") && line.contains("drift is only reported");
        log.lines().any(said).then_some(()).ok_or(log)
    })
    .await;
    assert_eq!(scene.get(&settings).await["data"]["mode"], "slow");
    // The names of before work as well.
    assert_eq!(emergency("on").code, 0);
    eventually("the edit is repaired", SOON, || async {
        let live = scene.alice.get(&settings).await.done()?;
        if live["data"]["mode"] == "fast" { Ok(()) } else { Err(live.to_string()) }
    })
    .await;
    assert_eq!(emergency("off").code, 0);
    wait_until_off(&guard).await;

    // A restart changes nothing, and nothing is repaired.
    assert!(guard.terminate().success());
    guard.start_again().await;
    wait_until_off(&guard).await;
    scene.alice.delete(&settings).await.done().unwrap();
    eventually("the guard has seen the deletion", SOON, || async {
        let metrics = guard.metrics().await;
        let mut repairs = metrics.lines().filter(|line| line.starts_with("kubemoor_repairs_total{"));
        repairs
            .any(|line| line.contains("\"missing\"") && line.contains("\"reported\"") && line.ends_with(" 1"))
    })
    .await;
    assert_eq!(scene.alice.get(&settings).await.code, 404);
    assert!(configurations.get_opt(NAME).await.unwrap().is_none(), "it registered again");
    // To repeat it is no harm, and loses nothing.
    assert_eq!(emergency("open").code, 0);

    let close = emergency("close");
    assert!(close.code == 0 && close.out.contains("are restored"), "{close:?}");
    assert!(configurations.get_opt(MARKER).await.unwrap().is_none());
    eventually("the guard says so", SOON, || async { emergency_line(&guard).await == "[+]emergency ok" })
        .await;
    wait_for_timeouts(&configurations, 9).await;
    scene.upgrade(json!({})).await.unwrap();
    scene.wait_until_guarded(&settings).await;

    // Each turn is a row, with who made it and why; a restart in between makes no other.
    let database = format!("--ledger=sqlite:{}", guard.ledger().display());
    let acts = |count: usize| {
        let database = &database;
        eventually("the acts are in the ledger", SOON, move || async move {
            let ran = crate::support::run(&["audit", database, "-A", "-o", "json"], "");
            let is_of_guard = |row: &Value| row["verdict"] == "Start" || row["verdict"] == "Stop";
            let acts = ran.items().into_iter().filter(|row| row["kind"] == "act" && !is_of_guard(row));
            let acts: Vec<_> = acts.collect();
            if acts.len() >= count { Ok(acts) } else { Err(format!("{ran:?}")) }
        })
    };
    let is_turn = |row: &Value| ["Open", "Close"].contains(&row["verdict"].as_str().unwrap());
    let (turns, changes): (Vec<_>, Vec<_>) = acts(5).await.into_iter().partition(is_turn);
    let mut told: Vec<_> = turns.iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    // Rows of one second that several guards may write have no order.
    told.sort_unstable();
    assert_eq!(told, ["Close", "Close", "Open", "Open"], "{turns:#?}");
    // Below 1.26 the API server tells nobody their own name.
    let alice = if scene.control_plane.minor() >= 26 { "alice" } else { "" };
    assert!(turns.iter().all(|row| row["user"] == alice), "{turns:#?}");
    assert_eq!(turns[0]["detail"], "upgrades are stuck");

    // The ledger has a row for a manual change of the configuration, but not for changes by the switch or the guard.
    let told = |row: &Value| {
        let field = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (field("verdict"), field("detail"), row["object"]["kind"].clone())
    };
    let [(verdict, detail, kind)] = &*changes.iter().map(told).collect::<Vec<_>>() else {
        panic!("{changes:#?}")
    };
    assert_eq!((&**verdict, kind), ("ChangeWebhooks", &json!("ValidatingWebhookConfiguration")));
    assert!(
        detail.starts_with("timeoutSeconds 3 → 9 (") && detail.ends_with("; by field manager oncall"),
        "{detail}"
    );
    configurations.delete(NAME, &DeleteParams::default()).await.unwrap();
    let deletion =
        acts(6).await.into_iter().map(|row| told(&row)).find(|it| it.0 == "DeleteWebhooks").unwrap();
    assert_eq!(deletion.1, "deleted");
    // It comes back as the admin had it.
    wait_for_timeouts(&configurations, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emergency_switch_without_permission_is_refused_with_the_reason() {
    let control_plane = ControlPlane::get();
    for switch in ["open", "close", "status"] {
        let carol = moor(control_plane, Identity::Admin, &["emergency", switch, "--as", "carol"]);
        carol.assert_failed(&["webhook configurations", "no permission", "forbidden"]);
    }
    let nothing = tempfile::tempdir().unwrap();
    let missing = nothing.path().join("config");
    crate::support::run(&["emergency", "open", "--kubeconfig", missing.to_str().unwrap()], "")
        .assert_failed(&["config"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn emergency_is_obeyed_in_a_cluster_that_was_restored() {
    let mut scene = Scene::on(ControlPlane::start()).install("restored", CONFIG).await;
    let guard = scene.start_guard(&["--register", "--edits", "Deny"]).await;
    let settings = scene.config_map("settings");
    scene.wait_until_guarded(&settings).await;
    let snapshot = scene.control_plane.snapshot_etcd();
    // What comes after the restoration has lower versions than the guard has seen.
    let busy = scene.config_map("busy");
    scene
        .admin
        .post(
            &format!("/api/v1/namespaces/{}/configmaps", scene.namespace),
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "busy"}}),
        )
        .await
        .done()
        .unwrap();
    for number in 0..400 {
        let change = json!({"data": {"number": number.to_string()}});
        scene.admin.merge(&busy, &change).await.done().unwrap();
    }
    let configurations: Api<ValidatingWebhookConfiguration> =
        Api::all(scene.control_plane.client(Identity::Admin).await);
    set_timeouts(&configurations, 9).await;
    scene.control_plane.restore_etcd(&snapshot);
    let open = moor(&scene.control_plane, Identity::Alice, &["emergency", "open", "--reason", "restored"]);
    assert_eq!(open.code, 0, "{open:?}");
    guard.wait_for_metric("kubemoor_emergency 1").await;
    wait_until_off(&guard).await;
    assert_eq!(moor(&scene.control_plane, Identity::Alice, &["emergency", "close"]).code, 0);
    guard.wait_for_metric("kubemoor_emergency 0").await;
    eventually("the webhooks are registered again", SOON, || async {
        configurations.get_opt(NAME).await.is_ok_and(|live| live.is_some())
    })
    .await;
}
