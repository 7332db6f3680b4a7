//! The web page in a real browser: it loads, keeps to its window, keeps nobody out, and works by keyboard.

use serde_json::json;

use crate::support::{Browser, ENTER, Identity, Look, Page, Scene, charts};

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "registry.example/shop/web:1.4.2"}"#),
    "---",
    charts::config_map!("settings", "{mode: fast, level: info}"),
    "---",
    charts::config_map!("extra", "{color: blue}"),
);

/// What is pasted into the form of a replay.
const POLICY: &str = "
apiVersion: kubemoor.dev/v1alpha1
kind: DriftPolicy
metadata: {name: stricter}
spec: {edits: Deny}
";

#[tokio::test(flavor = "multi_thread")]
async fn each_page_fits_its_window_and_keeps_nobody_out() {
    let scene = Scene::own().install("browser", TEMPLATES).await;
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(3).await;
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 5}})).await;
    scene.data("settings", json!({"level": "debug"})).await.done().unwrap();
    let allow =
        ["allow", "configmap/extra", "--path=/data/color", "--for=2h", "--reason=INC-7: try another colour"];
    assert_eq!(scene.moor(&allow).code, 0);
    scene.status("two objects drift", |status| status["drifted"] == json!(2)).await;
    scene
        .policy("calm", json!({"priority": 5, "ignore": [{"target": {"kind": "Job"}, "paths": ["/spec"]}]}))
        .await;
    scene.policy("strict", json!({"edits": "Deny"})).await;
    let level = json!({"data": {"level": "trace"}});
    let denied = scene.alice.merge(&scene.config_map("settings"), &level).await.refusal().unwrap();
    let asked = guard.asked();
    let flags: Vec<_> = asked.iter().map(String::as_str).collect();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let of_release = format!("namespace={}&name=shop", scene.namespace);
    for look in Look::ALL {
        let browser = Browser::start(look).await;
        browser.go(&page.address).await;
        browser.wait_for("Fields that drift most").await;
        for (name, path, words) in [
            ("overview", String::new(), "Fields that drift most"),
            ("releases", "releases".to_owned(), "1 release"),
            ("release", format!("release?{of_release}"), "/spec/replicas"),
            ("exceptions", "exceptions".to_owned(), "INC-7"),
            ("repair", format!("act?do=reconcile&{of_release}"), "becomes"),
            (
                "exception",
                format!("allow?namespace={}&object=deployment/web", scene.namespace),
                "For how long",
            ),
            ("ledger", "ledger".to_owned(), "/spec/replicas"),
            ("policies", "policies".to_owned(), "calm"),
            (
                "explain",
                format!("explain?object=deployment/web&namespace={}", scene.namespace),
                "What you can do",
            ),
            ("pause", format!("act?do=suspend&{of_release}"), "Pause repairs"),
            ("resume", format!("act?do=resume&{of_release}"), "Resume repairs"),
            ("end", format!("act?do=revoke&{of_release}"), "End an exception"),
            (
                "permission",
                format!("act?do=allow&namespace={}&object=deployment/web&path=/spec&for=2h", scene.namespace),
                "This object is made",
            ),
            ("missing", "release?name=none&namespace=none".to_owned(), "Not available"),
        ] {
            browser.go(&format!("{}{path}", page.base)).await;
            browser.wait_for(words).await;
            browser.inspect(name).await;
        }
        for (name, path, field, text, words) in [
            ("pasted-denial", "explain", "text", denied.as_str(), "What you can do"),
            ("pasted-policies", "replay", "policies", POLICY, "By stricter."),
        ] {
            browser.go(&format!("{}{path}", page.base)).await;
            // As a person pastes it, and sends the form.
            let paste = format!(
                "const field = document.querySelector('textarea[name={field}]'); field.value = {}; field.form.requestSubmit()",
                json!(text)
            );
            browser.evaluate(&paste).await;
            browser.wait_for(words).await;
            browser.inspect(name).await;
        }
        browser.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_are_ordered_by_keyboard_alone_and_open_pages_follow() {
    let scene = Scene::own().install("keyboard", TEMPLATES).await;
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(3).await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("In sync").await;
    // The page that is open learns of it by itself.
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 5}})).await;
    browser.wait_for("Drifted").await;
    browser.tab_to("Exceptions").await;
    browser.press(ENTER).await;
    browser.wait_for("There are no exceptions").await;
    let allow = ["allow", "configmap/extra", "--path=/data/color", "--for=2h", "--reason=INC-9"];
    assert_eq!(scene.moor(&allow).code, 0);
    browser.wait_for("INC-9").await;
    browser.tab_to("Releases").await;
    browser.press(ENTER).await;
    browser.wait_for("1 release").await;
    browser.tab_to("shop").await;
    browser.press(ENTER).await;
    browser.wait_for("/spec/replicas").await;
    browser.tab_to("Repair now").await;
    browser.press(ENTER).await;
    browser.wait_for("becomes").await;
    // The button that confirms has the focus.
    browser.press(ENTER).await;
    scene.wait_for_value(&scene.deployment("web"), "/spec/replicas", &json!(2)).await;
    browser.wait_for("Back").await;
    browser.end().await;
}
