//! No value of a Secret stands on a page, in a stream or in a log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::{ClusterPage, Identity, Page, SOON, Scene, WARNING, charts, eventually, soon};
use crate::web_markup::{routes, token};

/// Values of a Secret, as its chart, its values and people write them.
const PLANTED: [&str; 5] = [
    "planted-data-51c2",
    "planted-string-8a07",
    "planted-note-77de",
    "planted-value-3b9f",
    "planted-live-c4e1",
];

const WITH_SECRET: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---",
    charts::config_map!("settings", "{mode: fast}"),
    "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: key\n  annotations: {note: planted-note-77de}\n",
    "data: {token: {{ \"planted-data-51c2\" | b64enc }}}\n",
    "stringData: {password: planted-string-8a07, chosen: {{ .Values.password }}}\n",
);

fn assert_silent(what: &str, text: &str) {
    for word in PLANTED {
        for form in [word.to_owned(), STANDARD.encode(word)] {
            assert!(!text.contains(form.trim_end_matches('=')), "{what}: {word} is in {text}");
        }
    }
}

/// Reads a stream until it tells of a change.
async fn read_change(stream: &mut reqwest::Response) -> String {
    let mut told = String::new();
    while !told.contains("event: change") {
        told.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
    }
    told
}

/// The pages of a namespace, and those of the fields of the Secret.
fn routes_with_fields(namespace: &str) -> Vec<String> {
    let mut routes = routes(namespace);
    for path in ["/data/password", "/data", "/metadata/annotations/note"] {
        routes.push(format!("explain?namespace={namespace}&object=secret/key&path={path}"));
        routes.push(format!("act?do=allow&namespace={namespace}&object=secret/key&path={path}&for=1h"));
    }
    routes
}

async fn assert_stream_is_silent(scene: &Scene, page: &Page) {
    let mut stream = page.request("stream").send().await.unwrap();
    let touched = json!({"metadata": {"annotations": {"note": PLANTED[2]}}});
    scene.alice.merge(&scene.core("secrets/key"), &touched).await.done().unwrap();
    let told = soon("the page is told of a change", read_change(&mut stream)).await;
    assert_silent("stream", &told);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_secrets_stand_on_no_page() {
    let options = json!({"values": {"password": PLANTED[3]}});
    let scene = Scene::on_cluster(&WARNING).options(options).install("silent", WITH_SECRET).await;
    let guard = scene.guard();
    scene.wait_for_confirmed(3).await;
    let secret = scene.core("secrets/key");
    let live = STANDARD.encode(PLANTED[4]);
    let edit = json!({
        "data": {"password": live, "token": live, "chosen": live},
        "metadata": {"annotations": {"note": PLANTED[4]}},
    });
    scene.edit(&secret, edit).await;
    scene.status("the Secret drifts", |status| status["drifted"] == json!(1)).await;
    scene.policy("strict", json!({"edits": "Deny"})).await;
    let denied = json!({"data": {"password": STANDARD.encode(PLANTED[0])}});
    let denied = scene.alice.merge(&secret, &denied).await.refusal().unwrap();
    let flags = guard.asked();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let ledger = format!("ledger?namespace={}&verdict=Deny", scene.namespace);
    eventually("the ledger has the rows", SOON, || async {
        let text = page.text(&ledger).await;
        if text.contains("Secret/key") { Ok(()) } else { Err(text) }
    })
    .await;
    let here = scene.namespace.as_str();
    let in_cluster = ClusterPage::start(&scene.control_plane, &flags).await;
    for route in &routes_with_fields(here) {
        assert_silent(route, &page.get(route).await.text);
        let shown = in_cluster.proxied(Identity::Alice.token(), route).await;
        assert_silent(route, &shown.text);
    }
    let repair = page.text(&format!("act?do=reconcile&namespace={here}&name=shop")).await;
    assert!(repair.contains("Secret/key") && repair.contains("becomes"), "{repair}");
    let token = token(&page).await;
    let policy =
        "apiVersion: kubemoor.dev/v1alpha1\nkind: DriftPolicy\nmetadata: {name: p}\nspec: {edits: Deny}\n";
    for (path, name, text) in [("explain", "text", denied.as_str()), ("replay", "policies", policy)] {
        let fields = [("token", token.as_str()), ("since", "1h"), ("namespace", here), (name, text)];
        assert_silent(path, &page.post(path, &fields).await.text);
    }
    assert_stream_is_silent(&scene, &page).await;
    for order in [
        format!("act?do=allow&namespace={here}&object=secret/key&path=/data/password&for=1h"),
        format!("act?do=reconcile&namespace={here}&name=shop"),
    ] {
        assert_silent(&order, &page.confirm(&order).await.text);
    }
    for (what, log) in
        [("the page", page.log()), ("the page in the cluster", in_cluster.log()), ("the guard", guard.log())]
    {
        assert_silent(what, &log);
    }
}
