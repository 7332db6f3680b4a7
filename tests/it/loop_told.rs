//! What the loop tells of a drift: events on the object and on its GuardedRelease, and messages to a receiver that is not
//! always there.

use std::fs;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::drifts::UNREGISTERED;
use crate::support::{SOON, Scene, charts, eventually, folder};

const TEMPLATES: &str = concat!(
    charts::config_map!("settings", "{level: info}"),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {password: hunter2}\n",
);

/// The note about a missing object. Its event names no uid.
const MISSING: &str = "is missing";

/// A receiver of messages that refuses the first ones.
#[derive(Clone, Default)]
struct RefusingInbox {
    got: Arc<Mutex<Vec<Value>>>,
    refuses: Arc<Mutex<usize>>,
}

async fn receive(State(inbox): State<RefusingInbox>, body: String) -> StatusCode {
    let mut refuses = inbox.refuses.lock().unwrap();
    if *refuses > 0 {
        *refuses -= 1;
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    inbox.got.lock().unwrap().push(serde_json::from_str(&body).unwrap());
    StatusCode::NO_CONTENT
}

impl RefusingInbox {
    /// Opens it; gives the file that names it.
    async fn open(refuses: usize) -> (Self, String) {
        let inbox = Self { refuses: Arc::new(Mutex::new(refuses)), ..Self::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().route("/", axum::routing::post(receive)).with_state(inbox.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let file = folder("notifiers").join("notifiers.yaml");
        fs::write(&file, format!("notifiers:\n- name: oncall\n  url: {url}\n")).unwrap();
        (inbox, format!("--notifiers={}", file.display()))
    }

    /// Waits for a message of this type about this object.
    async fn wait_for_message(&self, r#type: &str, subject: &str) -> Value {
        eventually(&format!("{type} of {subject} comes"), SOON, || async {
            let got = self.got.lock().unwrap().clone();
            let wanted = format!("dev.kubemoor.drift.{type}");
            let found = got.iter().find(|it| it["type"] == *wanted && it["subject"] == subject).cloned();
            found.ok_or_else(|| format!("{got:?}"))
        })
        .await
    }
}

impl Scene {
    /// Waits for the guard's events with this reason about objects of a kind; gives the note of the first one.
    async fn note(&self, kind: &str, reason: &str, holds: &str) -> String {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.namespace);
        eventually(&format!("an event {reason} about the {kind} says {holds}"), SOON, || async {
            let events = self.alice.get(&path).await.done()?;
            let ours = events["items"].as_array().unwrap().iter().filter(|event| {
                event["reportingController"] == "kubemoor.dev/guard"
                    && event["regarding"]["uid"].is_string() != (holds == MISSING)
                    && event["regarding"]["kind"] == kind
                    && event["reason"] == reason
            });
            let notes: Vec<String> = ours.map(|event| event["note"].as_str().unwrap().to_owned()).collect();
            let found = notes.iter().find(|note| note.contains(holds)).cloned();
            found.ok_or_else(|| format!("{notes:?}"))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repair_is_reported_with_changed_fields_and_field_manager() {
    let scene = Scene::on_cluster(&UNREGISTERED).install("told", TEMPLATES).await;
    scene.wait_for_confirmed(2).await;
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "x".repeat(600)}})).await;
    scene.wait_for_value(&settings, "/data/level", json!("info")).await;
    let patch = r#"[{"op":"replace","path":"/data/level","value":"info"}]"#;
    for kind in ["ConfigMap", "GuardedRelease"] {
        let note = scene.note(kind, "Repaired", patch).await;
        assert!(note.contains("by kubectl-edit") && note.ends_with("; repaired"), "{note}");
    }
    let row = eventually("the repair is in the ledger", SOON, || async {
        scene.rows(&["--verdict", "Restored"]).pop()
    })
    .await;
    assert_eq!(row["detail"], "changed by field manager kubectl-edit", "{row}");

    let secret = scene.core("secrets/password");
    scene.edit(&secret, json!({"stringData": {"password": "hunter3"}})).await;
    let note = scene.note("Secret", "Repaired", "/data/password").await;
    for said in [note, scene.log()] {
        assert_silent(&said);
    }
}

/// It holds no value of the Secret, before the edit or after it.
fn assert_silent(said: &str) {
    for value in ["hunter", "aHVudGVyM"] {
        assert!(!said.contains(value), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repair_is_told_to_receiver_that_refused_it_at_first() {
    let scene = Scene::own().install("sent", TEMPLATES).await;
    let (inbox, notifiers) = RefusingInbox::open(2).await;
    let _guard = scene.start_guard(&["--drift", "Repair", &notifiers]).await;
    scene.wait_for_confirmed(2).await;
    scene.edit(&scene.config_map("settings"), json!({"data": {"level": "mine"}})).await;
    let subject = format!("ConfigMap/{}/settings", scene.namespace);
    let message = inbox.wait_for_message("repaired", &subject).await;
    assert_eq!(message["data"]["by"], "kubectl-edit", "{message}");
    assert_eq!(*inbox.refuses.lock().unwrap(), 0, "it was refused, and sent again");
    scene.edit(&scene.core("secrets/password"), json!({"stringData": {"password": "hunter3"}})).await;
    let message = inbox.wait_for_message("repaired", &format!("Secret/{}/password", scene.namespace)).await;
    assert_silent(&message.to_string());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn unrepaired_drift_is_reported_with_the_reason() {
    let scene = Scene::own().install("kept", TEMPLATES).await;
    let (inbox, notifiers) = RefusingInbox::open(0).await;
    let _guard = scene.start_guard(&["--drift", "Report", &notifiers]).await;
    scene.wait_for_confirmed(2).await;
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    let note = scene.note("ConfigMap", "Drifted", "drift is only reported").await;
    assert!(note.contains("by kubectl-edit"), "{note}");
    scene.note("GuardedRelease", "Drifted", "drift is only reported").await;
    let subject = format!("ConfigMap/{}/settings", scene.namespace);
    let message = inbox.wait_for_message("detected", &subject).await;
    assert!(message["data"].to_string().contains("drift is only reported"), "{message}");
    scene.alice.delete(&settings).await.done().unwrap();
    scene.note("ConfigMap", "Drifted", MISSING).await;
}
