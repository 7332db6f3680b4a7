//! The emergency switch under a running guard. It is one for the whole cluster, hence a control plane of its own.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use kubemoor_guard::webhook::registration::NAME;
use kubemoor_guard::webhook::registration::emergency::MARKER;

use crate::support::{ControlPlane, Guard, Identity, LaggingWatch, Ran, SOON, Scene, eventually, moor};

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

/// A guarded release, whose guard registers webhooks with timeouts of the admin's own.
struct Switched {
    scene: Scene,
    guard: Guard,
    settings: String,
    configurations: Api<ValidatingWebhookConfiguration>,
}

impl Switched {
    async fn start() -> Self {
        let scene = Scene::on(ControlPlane::start()).install("emergency", CONFIG).await;
        let guard = scene.start_guard(&["--register", "--edits", "Deny", "--drift", "Repair"]).await;
        let settings = scene.config_map("settings");
        scene.wait_until_guarded(&settings).await;
        let configurations = Api::all(scene.control_plane.client(Identity::Admin).await);
        set_timeouts(&configurations, 9).await;
        Self { scene, guard, settings, configurations }
    }

    fn emergency(&self, arguments: &[&str]) -> Ran {
        moor(&self.scene.control_plane, Identity::Alice, &[&["emergency"], arguments].concat())
    }

    async fn is_registered(&self) -> bool {
        self.configurations.get_opt(NAME).await.unwrap().is_some()
    }

    async fn assert_opens(&self) {
        assert!(self.emergency(&["close"]).out.contains("No emergency was open"));
        let status = self.emergency(&["status"]);
        assert!(status.code == 0 && status.out.contains("No emergency is open"), "{status:?}");
        let open = self.emergency(&["open", "--reason", "upgrades are stuck"]);
        assert!(
            open.code == 0
                && open.out.contains("2 webhook configurations")
                && open.out.contains("emergency close"),
            "{open:?}"
        );
        let status = self.emergency(&["status"]);
        assert!(status.code == 1 && status.out.contains("The emergency is open"), "{status:?}");
        assert!(!self.is_registered().await);
        let edit = json!({"data": {"mode": "slow"}});
        self.scene.alice.merge(&self.settings, &edit).await.done().unwrap();
        wait_until_off(&self.guard).await;
        assert!(self.guard.is_ready().await, "a guard that is off is still well");
        self.guard.wait_for_metric("kubemoor_emergency 1").await;
        self.guard.wait_for_log("the emergency is open").await;
    }

    /// What was only reported while everything was open is repaired as soon as it is not.
    async fn assert_reported_drift_is_repaired_once_closed(&self) {
        eventually("the guard reports the edit", SOON, || async {
            let log = self.guard.log();
            let said =
                |line: &str| line.contains("ConfigMap/settings") && line.contains("drift is only reported");
            log.lines().any(said).then_some(()).ok_or(log)
        })
        .await;
        assert_eq!(self.scene.get(&self.settings).await["data"]["mode"], "slow");
        // The names of before work as well.
        assert_eq!(self.emergency(&["on"]).code, 0);
        eventually("the edit is repaired", SOON, || async {
            let live = self.scene.alice.get(&self.settings).await.done()?;
            if live["data"]["mode"] == "fast" { Ok(()) } else { Err(live.to_string()) }
        })
        .await;
        assert_eq!(self.emergency(&["off"]).code, 0);
        wait_until_off(&self.guard).await;
    }

    /// A restart changes nothing, and nothing is repaired.
    async fn assert_stays_open_over_a_restart(&mut self) {
        assert!(self.guard.terminate().success());
        self.guard.start_again().await;
        wait_until_off(&self.guard).await;
        self.scene.alice.delete(&self.settings).await.done().unwrap();
        eventually("the guard has seen the deletion", SOON, || async {
            let metrics = self.guard.metrics().await;
            let mut repairs = metrics.lines().filter(|line| line.starts_with("kubemoor_repairs_total{"));
            repairs.any(|line| {
                line.contains("\"missing\"") && line.contains("\"reported\"") && line.ends_with(" 1")
            })
        })
        .await;
        assert_eq!(self.scene.alice.get(&self.settings).await.code, 404);
        assert!(!self.is_registered().await, "it registered again");
        // To repeat it is no harm, and loses nothing.
        assert_eq!(self.emergency(&["open"]).code, 0);
    }

    async fn assert_close_restores_everything(&self) {
        let close = self.emergency(&["close"]);
        assert!(close.code == 0 && close.out.contains("are restored"), "{close:?}");
        assert!(self.configurations.get_opt(MARKER).await.unwrap().is_none());
        eventually("the guard says so", SOON, || async {
            emergency_line(&self.guard).await == "[+]emergency ok"
        })
        .await;
        wait_for_timeouts(&self.configurations, 9).await;
        self.scene.upgrade(json!({})).await.unwrap();
        self.scene.wait_until_guarded(&self.settings).await;
    }

    /// So many acts or more, as the ledger has them, but for starts and stops of the guard.
    async fn acts(&self, count: usize) -> Vec<Value> {
        eventually("the acts are in the ledger", SOON, || async {
            let is_of_guard = |row: &Value| row["verdict"] == "Start" || row["verdict"] == "Stop";
            let mut acts = self.guard.rows(&["-A"]);
            acts.retain(|row| row["kind"] == "act" && !is_of_guard(row));
            if acts.len() >= count { Ok(acts) } else { Err(format!("{acts:?}")) }
        })
        .await
    }

    /// Each turn is a row, with who made it and why; a restart in between makes no other.
    fn assert_turns(&self, turns: &[Value]) {
        let mut told: Vec<_> = turns.iter().map(|row| row["verdict"].as_str().unwrap()).collect();
        // Rows of one second that several guards may write have no order.
        told.sort_unstable();
        assert_eq!(told, ["Close", "Close", "Open", "Open"], "{turns:#?}");
        // Below 1.26 the API server tells nobody their own name.
        let alice = if self.scene.control_plane.minor() >= 26 { "alice" } else { "" };
        assert!(turns.iter().all(|row| row["user"] == alice), "{turns:#?}");
        assert_eq!(turns[0]["detail"], "upgrades are stuck");
    }

    /// The ledger has a row for a manual change of the configuration, but not for changes by the switch or the guard.
    async fn assert_manual_changes(&self, changes: &[Value]) {
        let [change] = changes else { panic!("{changes:#?}") };
        assert_eq!(change["verdict"], "ChangeWebhooks");
        assert_eq!(change["object"]["kind"], "ValidatingWebhookConfiguration");
        let detail = change["detail"].as_str().unwrap();
        assert!(
            detail.starts_with("timeoutSeconds 3 → 9 (") && detail.ends_with("; by field manager oncall"),
            "{detail}"
        );
        self.configurations.delete(NAME, &DeleteParams::default()).await.unwrap();
        let acts = self.acts(6).await;
        let deletion = acts.iter().find(|row| row["verdict"] == "DeleteWebhooks").unwrap();
        assert_eq!(deletion["detail"], "deleted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_emergency_permits_everything_until_closed_across_guard_restarts() {
    let mut switched = Switched::start().await;
    switched.assert_opens().await;
    switched.assert_reported_drift_is_repaired_once_closed().await;
    switched.assert_stays_open_over_a_restart().await;
    switched.assert_close_restores_everything().await;
    let is_turn = |row: &Value| ["Open", "Close"].contains(&row["verdict"].as_str().unwrap());
    let (turns, changes): (Vec<_>, Vec<_>) = switched.acts(5).await.into_iter().partition(is_turn);
    switched.assert_turns(&turns);
    switched.assert_manual_changes(&changes).await;
    // It comes back as the admin had it.
    wait_for_timeouts(&switched.configurations, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn configurations_recreated_before_marker_is_seen_are_deleted_again() {
    let scene = Scene::on(ControlPlane::start()).install("late", CONFIG).await;
    let proxy = LaggingWatch::start(&scene.control_plane, Identity::Guard).await;
    let flags = ["--register", "--edits", "Deny"];
    let guard = Guard::start_through(&scene.control_plane, proxy.kubeconfig(), &flags).await;
    let settings = scene.config_map("settings");
    scene.wait_until_guarded(&settings).await;

    // The guard is not told of the marker, but of all else.
    proxy.stall(&["GET kubemoor-emergency"]);
    proxy.expire();
    eventually("the guard asks for the marker again", SOON, || async {
        proxy.stalled("GET kubemoor-emergency") > 0
    })
    .await;
    // The commands of docs/operations.md for people without the program.
    let path = |kind: &str| format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    let annotations = json!({"kubemoor.dev/emergency": "off"});
    let marker = json!({"metadata": {"name": MARKER, "annotations": annotations}});
    scene.admin.post(&path("validating"), &marker).await.done().unwrap();
    let kept = ["validating", "mutating"].map(|kind| format!("{}/{NAME}", path(kind)));
    for path in &kept {
        scene.admin.delete(path).await.done().unwrap();
    }
    for path in &kept {
        eventually("the guard registers again", SOON, || async { scene.admin.get(path).await.done() }).await;
    }
    proxy.stall(&[]);
    wait_until_off(&guard).await;
    for path in &kept {
        eventually("the guard deletes what it registered", SOON, || async {
            let answer = scene.admin.get(path).await;
            if answer.code == 404 { Ok(()) } else { Err(answer.to_string()) }
        })
        .await;
    }
    scene.alice.merge(&settings, &json!({"data": {"mode": "slow"}})).await.done().unwrap();
    let close = moor(&scene.control_plane, Identity::Alice, &["emergency", "close"]);
    assert_eq!(close.code, 0, "{close:?}");
    scene.wait_until_guarded(&settings).await;
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
#[ignore = "slow: make test-all"]
async fn emergency_is_obeyed_in_a_cluster_that_was_restored() {
    let mut scene = Scene::on(ControlPlane::start()).install("restored", CONFIG).await;
    let guard = scene.start_guard(&["--register", "--edits", "Deny"]).await;
    let settings = scene.config_map("settings");
    scene.wait_until_guarded(&settings).await;
    let snapshot = scene.control_plane.snapshot_etcd();
    let configurations: Api<ValidatingWebhookConfiguration> =
        Api::all(scene.control_plane.client(Identity::Admin).await);
    set_timeouts(&configurations, 9).await;
    drop(guard);
    scene.control_plane.restore_etcd(&snapshot);
    let guard = scene.start_guard(&["--register", "--edits", "Deny"]).await;
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
