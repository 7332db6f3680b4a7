//! Nothing that the cluster holds, and nothing in an address or a form, becomes markup of a page.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{
    Browser, DRIFT_POLICIES, Guard, Identity, Look, Page, PageResponse, SOON, Scene, charts, drift_policy,
    eventually, form, form_token,
};

/// What a browser would run if it were written as it is: it ends an attribute, a field and a text.
pub(crate) const MARKUP: &str = "\"><img src=x onerror=alert(1)><script>alert(1)</script>";

/// The release `shop`, whose chart value and annotations are markup.
const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  annotations:\n",
    "    note: {{ .Values.mode | toJson }}\n    kubemoor.dev/allow: {{ .Values.mode | toJson }}\n",
    "    kubemoor.dev/allow-reason: {{ .Values.mode | toJson }}\ndata:\n  mode: {{ .Values.mode | toJson }}\n",
);

/// Every page that is asked for with GET, for the release `shop` of a namespace.
pub(crate) fn routes(namespace: &str) -> Vec<String> {
    let release = format!("namespace={namespace}&name=shop");
    let object = |object: &str| format!("namespace={namespace}&object={object}");
    let mut routes = vec![String::new(), format!("?namespace={namespace}&fields=all&cluster=test")];
    routes.extend(["releases", "exceptions", "ledger", "policies", "replay", "explain"].map(str::to_owned));
    routes.extend([
        "releases?cluster=test".to_owned(),
        "releases?q=shop".to_owned(),
        "releases?field=ConfigMap%20%2Fdata%2Fmode".to_owned(),
        "releases?policy=strict&sort=-drifted".to_owned(),
        format!("releases?namespace={namespace}"),
        format!("release?{release}"),
        format!("exceptions?namespace={namespace}"),
        format!("ledger?namespace={namespace}"),
        format!("ledger?namespace={namespace}&release=shop&since=30d"),
        format!("ledger.csv?namespace={namespace}"),
        format!("ledger.json?namespace={namespace}"),
        format!("replay?namespace={namespace}&since=1h&edits=Deny"),
        format!("replay?namespace={namespace}&release=shop&since=1h"),
    ]);
    for name in ["deployment/web", "configmap/settings", "secret/key"] {
        routes.push(format!("explain?{}", object(name)));
        routes.push(format!("allow?{}&path=/data", object(name)));
        routes.push(format!("act?do=allow&{}&path=*&for=2h&reason=INC-7", object(name)));
    }
    routes.extend(["reconcile", "suspend", "resume", "revoke"].map(|it| format!("act?do={it}&{release}")));
    routes
}

/// Asserts that nothing of the markup is more than text.
pub(crate) fn assert_text(what: &str, shown: &PageResponse) {
    let kind = shown.headers["content-type"].to_str().unwrap();
    if !kind.starts_with("text/html") {
        // A file to save is no page, whatever it holds.
        assert_eq!(shown.headers["x-content-type-options"], "nosniff", "{what}");
        assert!(shown.headers["content-disposition"].to_str().unwrap().starts_with("attachment"), "{what}");
        return;
    }
    for tag in ["<img", "<script>", "</textarea>\""] {
        assert!(!shown.text.contains(tag), "{what}: {tag}: {}", shown.text);
    }
}

pub(crate) async fn token(page: &Page) -> String {
    form_token(&page.text("explain").await)
}

/// The base of a resource of Kubemoor's, with more fields.
fn resource(kind: &str, rest: Value) -> Value {
    let mut resource = json!({"apiVersion": "kubemoor.dev/v1alpha1", "kind": kind});
    resource.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    resource
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn condition() -> Value {
    json!({
        "type": "Ready", "status": "False", "reason": MARKUP, "message": MARKUP,
        "lastTransitionTime": seconds(Timestamp::now()),
    })
}

async fn make(scene: &Scene, path: &str, object: Value) {
    eventually(path, SOON, || async { scene.admin.post(path, &object).await.done() }).await;
}

async fn plant_releases(scene: &Scene) {
    let object = json!({"kind": MARKUP, "name": MARKUP, "namespace": MARKUP});
    let releases = scene.at("apis/kubemoor.dev/v1alpha1", "guardedreleases");
    for name in ["shop", "odd"] {
        let metadata = json!({"name": name, "namespace": scene.namespace});
        let spec = json!({"suspend": true, "suspendReason": MARKUP, "reconcileAt": MARKUP});
        let release = resource("GuardedRelease", json!({"metadata": metadata, "spec": spec}));
        make(scene, &releases, release).await;
        let status = json!({
            "conditions": [condition()], "revision": 1, "declared": 2, "drifted": 1, "edits": MARKUP, "drift": MARKUP,
            "order": {"at": MARKUP, "message": MARKUP, "result": "Refused"},
            "drifts": [{
                "object": object, "since": Timestamp::now().to_string(), "type": MARKUP, "message": MARKUP,
                "by": MARKUP, "fields": [{"path": MARKUP, "declared": MARKUP, "live": MARKUP}],
            }],
        });
        let path = format!("{releases}/{name}/status");
        scene.admin.merge(&path, &json!({"status": status})).await.done().unwrap();
    }
}

async fn plant_policy(scene: &Scene) {
    let subject = json!({"kind": "Group", "name": MARKUP});
    let spec = json!({
        "exempt": [subject], "operators": [subject], "notify": [MARKUP],
        "allow": [{"name": MARKUP, "paths": [format!("/data/{MARKUP}")], "subjects": [subject]}],
    });
    make(scene, DRIFT_POLICIES, drift_policy("odd", spec)).await;
    let mut accepted = condition();
    (accepted["type"], accepted["observedGeneration"]) = (json!("Accepted"), json!(1));
    let status = json!({"status": {"observedGeneration": 1, "conditions": [accepted, condition()]}});
    scene.admin.merge(&format!("{DRIFT_POLICIES}/odd/status"), &status).await.done().unwrap();
}

/// Plants the markup in all that the API server accepts, as nobody's guard would.
async fn plant(scene: &Scene) {
    let metadata = json!({"name": "odd", "namespace": scene.namespace});
    plant_releases(scene).await;
    let soon = seconds(Timestamp::now() + SignedDuration::from_hours(2));
    let spec = json!({
        "object": {"kind": "ConfigMap", "name": "settings"}, "until": soon, "reason": MARKUP,
        "paths": ["/data/mode", format!("/metadata/annotations/{MARKUP}")],
        "requestedBy": {"user": MARKUP, "groups": [MARKUP]},
    });
    let allowances = scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    make(scene, &allowances, resource("DriftAllowance", json!({"metadata": metadata, "spec": spec}))).await;
    plant_policy(scene).await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": metadata, "type": "Warning", "reason": MARKUP,
        "message": MARKUP, "count": 2, "lastTimestamp": seconds(Timestamp::now()),
        "involvedObject": {
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "name": "shop",
            "namespace": scene.namespace,
        },
    });
    make(scene, &scene.core("events"), event).await;
    plant_records(scene).await;
    let manager = percent_encoding::utf8_percent_encode(MARKUP, percent_encoding::NON_ALPHANUMERIC);
    let path = format!("{}?fieldManager={manager}", scene.config_map("settings"));
    let edit = json!({"data": {"mode": format!("{MARKUP}!")}, "metadata": {"annotations": {"note": format!("{MARKUP}!")}}});
    scene.alice.merge(&path, &edit).await.done().unwrap();
}

/// Helm's record of `shop` with markup, and one of a release whose state nobody knows.
async fn plant_records(scene: &Scene) {
    let secrets = scene.secrets().await;
    let name = crate::support::record_name("shop", 1);
    let mut record = secrets.get(&name).await.unwrap();
    let mut content = crate::support::opened(&record);
    content["info"]["description"] = json!(MARKUP);
    content["info"]["notes"] = json!(MARKUP);
    content["chart"]["metadata"]["name"] = json!(MARKUP);
    content["chart"]["metadata"]["version"] = json!(MARKUP);
    content["chart"]["metadata"]["description"] = json!(MARKUP);
    let payload = k8s_openapi::ByteString(crate::support::sealed(&content));
    record.data.as_mut().unwrap().insert("release".to_owned(), payload);
    secrets.replace(&name, &kube::api::PostParams::default(), &record).await.unwrap();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\n";
    let mut odd =
        crate::support::opened(&crate::support::forged(&scene.namespace, "odd", 1, "deployed", manifest));
    odd["info"]["status"] = json!(MARKUP);
    let odd = crate::support::sealed(&odd);
    let odd = crate::support::holding(&scene.namespace, "odd", 1, "deployed", odd);
    secrets.create(&kube::api::PostParams::default(), &odd).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn whatever_the_cluster_holds_is_text_on_every_page() {
    let options = json!({"values": {"mode": MARKUP}});
    let scene = Scene::own().options(options).install("markup", TEMPLATES).await;
    plant(&scene).await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let listed = || async {
        let text = page.text("releases").await;
        if text.contains("2 releases") { Ok(text) } else { Err(text) }
    };
    let list = eventually("both releases are listed", SOON, listed).await;
    let mut routes = routes(&scene.namespace);
    routes.push(format!("release?namespace={}&name=odd", scene.namespace));
    // It is shown where it was planted.
    for (path, part) in [
        ("releases".to_owned(), "alert(1)"),
        (format!("release?namespace={}&name=shop", scene.namespace), "&lt;img src=x"),
        ("exceptions".to_owned(), "&lt;img src=x"),
        ("policies".to_owned(), "&lt;img src=x"),
        (format!("explain?namespace={}&object=configmap/settings", scene.namespace), "&lt;img src=x"),
    ] {
        let text = page.text(&path).await;
        assert!(text.contains(part), "{path}: {text}");
    }
    assert!(list.contains("&lt;script&gt;"), "{list}");
    for route in &routes {
        assert_text(route, &page.get(route).await);
    }
    assert_reflected(&page, &scene.namespace).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    for route in routes.iter().filter(|it| !it.starts_with("ledger.")) {
        browser.go(&format!("{}{route}", page.base)).await;
        browser.wait_for("Kubemoor").await;
        // An open dialog would fail this call as well.
        let found = "return [document.images.length, document.scripts.length, document.querySelectorAll('[onerror]').length]";
        assert_eq!(browser.evaluate(found).await, json!([0, 1, 0]), "{route}");
    }
    browser.end().await;
}

/// The names of the fields of all forms and addresses.
const NAMES: [&str; 25] = [
    "q",
    "namespace",
    "name",
    "sort",
    "field",
    "fields",
    "policy",
    "state",
    "page",
    "cluster",
    "object",
    "path",
    "for",
    "until",
    "since",
    "reason",
    "by",
    "verdict",
    "operation",
    "release",
    "edits",
    "before",
    "text",
    "policies",
    "do",
];

/// Asserts that what is asked for comes back as text: one name after the other, and in forms.
async fn assert_reflected(page: &Page, namespace: &str) {
    let pages =
        ["", "releases", "release", "exceptions", "ledger", "policies", "replay", "explain", "allow", "act"];
    let orders = ["reconcile", "suspend", "resume", "allow", "revoke"];
    let whole: Vec<_> = NAMES.iter().map(|name| (*name, MARKUP)).collect();
    for path in pages {
        assert_text(path, &page.get(&format!("{path}?{}", form(&whole))).await);
        for name in NAMES {
            let known = [("namespace", namespace), ("name", "shop"), ("since", "1h"), (name, MARKUP)];
            let asked: Vec<_> =
                known.into_iter().filter(|(it, value)| *it != name || *value == MARKUP).collect();
            assert_text(&format!("{path}?{name}"), &page.get(&format!("{path}?{}", form(&asked))).await);
        }
    }
    for order in orders {
        let asked = [
            ("do", order),
            ("namespace", namespace),
            ("name", MARKUP),
            ("object", "configmap/settings"),
            ("for", "2h"),
            ("path", "/data/mode"),
            ("reason", MARKUP),
            ("cluster", ""),
        ];
        assert_text(order, &page.get(&format!("act?{}", form(&asked))).await);
    }
    let (token, text) = (token(page).await, format!("</textarea>{MARKUP}"));
    for (path, name) in
        [("explain", "text"), ("replay", "policies"), ("act", "do"), ("act", "name"), ("act", "reason")]
    {
        let fields = [("token", token.as_str()), ("since", "1h"), (name, text.as_str())];
        assert_text(path, &page.post(path, &fields).await);
    }
    assert_text("act", &page.post("act", &[("token", &text), ("do", &text)]).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn whatever_the_ledger_holds_is_text_on_every_page() {
    let (scene, guard) = recorded().await;
    let flags = guard.asked();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let rows = format!("ledger?namespace={}", scene.namespace);
    eventually("the rows are written", SOON, || async {
        let text = page.text(&format!("{rows}&verdict=Warn")).await;
        if text.contains("onerror=alert(1)") { Ok(()) } else { Err(text) }
    })
    .await;
    for route in routes(&scene.namespace) {
        assert_text(&route, &page.get(&route).await);
    }
    let overview = page.text("").await;
    assert!(overview.contains("&lt;img src=x"), "{overview}");
    let replay = page.text(&format!("replay?namespace={}&since=1h&edits=Deny", scene.namespace)).await;
    assert!(replay.contains("&lt;img src=x"), "{replay}");
}

/// A guard that records who edits what, and why it was allowed.
async fn recorded() -> (Scene, Guard) {
    let options = json!({"values": {"mode": "fast"}});
    let scene = Scene::own().options(options).install("recorded", TEMPLATES).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(2).await;
    // A user, a group and a field manager, and the value that they write.
    let (manager, patch) =
        (format!("--field-manager={MARKUP}"), json!({"data": {"mode": MARKUP}}).to_string());
    let patch = ["patch", "configmap/settings", "--type=merge", "-p", &patch, &manager];
    scene.kubectl_as(MARKUP, MARKUP, &patch).unwrap();
    let reason = format!("--reason={MARKUP}");
    let allow = ["allow", "deployment/web", "--path=/spec/paused", "--for=2h", reason.as_str()];
    assert_eq!(scene.moor(&allow).code, 0);
    scene.kubectl_as(MARKUP, MARKUP, &["scale", "deployment/web", "--replicas=7"]).unwrap();
    scene.policy("strict", json!({"edits": "Deny"})).await;
    scene.kubectl_as(MARKUP, MARKUP, &["scale", "deployment/web", "--replicas=9"]).unwrap_err();
    (scene, guard)
}
