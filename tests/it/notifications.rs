//! What people are told, by receivers that take and refuse messages as their services document it, and by a real
//! Alertmanager.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    Alertmanager, Guard, Identity, ROUTING_KEY, SECRET, SOON, Scene, Service, ServiceFault, ServiceKind,
    charts, eventually, folder, moor,
};

/// What would be read as markup, were it not text.
const REASON: &str = "<!channel> hotfix for @here";

/// What a template makes of a message, for the tests to read.
const TEMPLATE: &str =
    "'{\"event\": {{ event }}, \"by\": {{ by }}, \"detail\": {{ detail }}, \"text\": {{ text }}}'";

/// One that tells of emergencies alone.
const EMERGENCIES: &str = "'{% if topic == \"emergency\" %}{\"event\": {{ event }}}{% endif %}'";

/// A file of receivers, each with a name and further fields; gives the flag.
fn receivers(receivers: &[(&str, String)]) -> String {
    let folder = folder("receivers");
    let key = folder.join("key");
    fs::write(&key, ROUTING_KEY).unwrap();
    let lines = receivers.iter().map(|(name, fields)| {
        let fields = fields.replace("KEY", key.to_str().unwrap());
        format!("- {{name: {name}, timeout: 1s, {fields}}}\n")
    });
    let path = folder.join("notifiers.yaml");
    fs::write(&path, format!("notifiers:\n{}", lines.collect::<String>())).unwrap();
    format!("--notifiers={}", path.display())
}

fn is(event: &'static str) -> impl Fn(&Value) -> bool {
    move |message| message["event"] == event
}

/// However often somebody tries, there is one message, and the rest is counted.
async fn assert_denials_are_limited(scene: &Scene, guard: &Guard, any: &Service) {
    let settings = scene.config_map("settings");
    for number in 0..30 {
        let edit = json!({"data": {"level": format!("debug-{number}")}});
        scene.admin.merge(&settings, &edit).await.refusal().unwrap();
    }
    let of_admin = |it: &Value| it["event"] == "changes.denied" && it["by"] == "admin";
    let denied = any.wait_for("a denial", of_admin).await;
    assert!(denied["text"].as_str().unwrap().contains("ConfigMap/settings"), "{denied}");
    assert_eq!(any.taken().iter().filter(|it| of_admin(it)).count(), 1, "{:?}", any.taken());
    let metrics = guard.metrics().await;
    assert!(metrics.contains("kubemoor_notifications_total{outcome=\"repeated\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_exceptions_and_emergency_reach_each_receiver_in_its_format() {
    let [chat, card, page, any] =
        [ServiceKind::Slack, ServiceKind::Teams, ServiceKind::PagerDuty, ServiceKind::Json];
    let (chat, card) = (Service::open(chat, &[]).await, Service::open(card, &[]).await);
    let (page, urgent) = (Service::open(page, &[]).await, Service::open(any, &[]).await);
    let any = Service::open(any, &[]).await;
    let notifiers = receivers(&[
        ("chat", format!("format: slack, url: '{}'", chat.url)),
        ("card", format!("format: teams, url: '{}'", card.url)),
        ("urgent", format!("format: template, url: '{}', template: {EMERGENCIES}", urgent.url)),
        ("page", format!("format: pagerduty, url: '{}', routingKeyFile: KEY", page.url)),
        ("any", format!("format: template, url: '{}', template: {TEMPLATE}", any.url)),
    ]);
    let scene = Scene::own().install("told", charts::SETTINGS).await;
    let guard = scene.start_guard(&["--register", "--edits", "Deny", &notifiers]).await;
    let settings = scene.config_map("settings");
    scene.wait_until_guarded(&settings).await;

    assert_denials_are_limited(&scene, &guard, &any).await;
    chat.wait_for("denials", |it| it["text"].as_str().unwrap().contains("denied in Helm release")).await;

    let allowed = scene.moor(&[
        "allow",
        "configmap/settings",
        "--path",
        "/data/level",
        "--for",
        "1h",
        "--reason",
        REASON,
    ]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let opened = any.wait_for("an exception", is("exception.opened")).await;
    assert_eq!(opened["detail"], REASON, "{opened}");
    let said = chat.wait_for("an exception", |it| it["text"].as_str().unwrap().contains("exception")).await;
    assert!(!said["text"].as_str().unwrap().contains("<!"), "{said}");

    let emergency =
        |switch: &[&str]| moor(&scene.control_plane, Identity::Admin, &[&["emergency"], switch].concat());
    assert_eq!(emergency(&["open", "--reason", REASON]).code, 0);
    let opened = any.wait_for("an emergency", is("emergency.opened")).await;
    assert_eq!(opened["detail"], REASON, "{opened}");
    let trigger = page.wait_for("an emergency", |it| it["payload"]["severity"] == "critical").await;
    card.wait_for("an emergency", |it| it.to_string().contains("Emergency")).await;
    assert_eq!(emergency(&["close"]).code, 0);
    any.wait_for("its end", is("emergency.closed")).await;
    let resolves = |it: &Value| it["event_action"] == "resolve" && it["dedup_key"] == trigger["dedup_key"];
    page.wait_for("its end", resolves).await;
    card.wait_for("its end", |it| it.to_string().contains("emergency is over")).await;
    urgent.wait_for("its end", is("emergency.closed")).await;
    // A template prints nothing for the rest, and nobody is paged for a denial.
    assert_eq!(urgent.taken().len(), 2, "{:?}", urgent.taken());
    assert!(page.taken().iter().all(|it| it["dedup_key"] == trigger["dedup_key"]), "{:?}", page.taken());
    for secret in [SECRET, ROUTING_KEY] {
        assert!(!guard.log().contains(secret) && !guard.metrics().await.contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn drift_alert_fires_and_resolves_despite_receiver_faults() {
    // What Alertmanager tells others.
    let told = Service::open(ServiceKind::Json, &[]).await;
    let alertmanager = Alertmanager::start(&told.url).await;
    let page = Service::open(
        ServiceKind::PagerDuty,
        &[ServiceFault::Busy(2), ServiceFault::Code(503), ServiceFault::Silent],
    )
    .await;
    let chat = Service::open(ServiceKind::Slack, &[ServiceFault::Code(404)]).await;
    let notifiers = receivers(&[
        ("alerts", format!("format: alertmanager, url: '{}/'", alertmanager.url)),
        ("page", format!("format: pagerduty, url: '{}', routingKeyFile: KEY", page.url)),
        ("chat", format!("format: slack, url: '{}'", chat.url)),
    ]);
    let scene = Scene::own().install("fires", charts::SETTINGS).await;
    let guard = scene.start_guard(&["--drift", "Report", &notifiers]).await;
    scene.wait_for_confirmed(1).await;
    let settings = scene.config_map("settings");
    scene.edit(&settings, json!({"data": {"level": "mine"}})).await;
    let firing = |alerts: &[Value]| {
        let is_ours = |it: &&Value| {
            let labels = &it["labels"];
            labels["alertname"] == "KubemoorDrift"
                && labels["object_name"] == "settings"
                && labels["namespace"] == scene.namespace.as_str()
        };
        alerts.iter().filter(is_ours).count()
    };
    let count = async |wanted: usize| {
        eventually(&format!("{wanted} alerts fire"), SOON, || async {
            let alerts = alertmanager.alerts().await;
            if firing(&alerts) == wanted { Ok(()) } else { Err(format!("{alerts:?}")) }
        })
        .await;
    };
    count(1).await;
    told.wait_for("an alert", |it| it["status"] == "firing" && firing(it["alerts"].as_array().unwrap()) == 1)
        .await;
    let trigger = page.wait_for("drift", |it| it["event_action"] == "trigger").await;
    assert!(page.requests() >= 4, "it is tried again after each fault: {}", page.requests());
    guard.wait_for_log("failed to notify a receiver: it answers 404: no /(redacted)/(redacted)").await;

    // Somebody sets it back by hand.
    scene.edit(&settings, json!({"data": {"level": "info"}})).await;
    count(0).await;
    told.wait_for("its end", |it| {
        it["status"] == "resolved" && firing(it["alerts"].as_array().unwrap()) == 1
    })
    .await;
    let resolves = |it: &Value| it["event_action"] == "resolve" && it["dedup_key"] == trigger["dedup_key"];
    page.wait_for("its end", resolves).await;
    // What is refused for good holds up nothing else.
    chat.wait_for("its end", |it| it["text"].as_str().unwrap().contains("matches Helm release")).await;
    guard.wait_for_metric("kubemoor_notifications_total{outcome=\"failed\"} 1").await;
    assert!(!guard.log().contains(SECRET) && !guard.log().contains(ROUTING_KEY));
}
