//! The web page in a real browser: it loads, keeps to its window, keeps nobody out, and works by keyboard.

use serde_json::json;

use crate::support::{Browser, ENTER, Guard, Identity, Look, Member, Page, Scene, charts, contexts};

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

/// The pages of a release of this namespace: their names, their addresses, and words that they show once they are whole.
fn pages(namespace: &str, exception: &str) -> Vec<(&'static str, String, &'static str)> {
    let of_release = format!("namespace={namespace}&name=shop");
    vec![
        ("overview", String::new(), "Fields that drift most"),
        ("releases", "releases".to_owned(), "1 release"),
        ("release", format!("release?{of_release}"), "/spec/replicas"),
        ("exceptions", "exceptions".to_owned(), "INC-7"),
        ("repair", format!("act?do=reconcile&{of_release}"), "becomes"),
        ("exception", format!("allow?namespace={namespace}&object=deployment/web"), "For how long"),
        ("ledger", "ledger".to_owned(), "/spec/replicas"),
        ("policies", "policies".to_owned(), "calm"),
        ("explain", format!("explain?object=deployment/web&namespace={namespace}"), "What you can do"),
        ("pause", format!("act?do=suspend&{of_release}"), "Pause repairs"),
        ("resume", format!("act?do=resume&{of_release}"), "Resume repairs"),
        ("end", format!("act?do=revoke&namespace={namespace}&name={exception}"), "/data/color"),
        (
            "permission",
            format!("act?do=allow&namespace={namespace}&object=deployment/web&path=/spec&for=2h"),
            "This object is created",
        ),
        ("missing", "release?name=none&namespace=none".to_owned(), "Not available"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
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
    let flags = guard.asked();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let exceptions = scene.get(&scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances")).await;
    let exception = exceptions["items"][0]["metadata"]["name"].as_str().unwrap();
    for look in Look::ALL {
        let browser = Browser::start(look).await;
        browser.go(&page.address).await;
        browser.wait_for("Fields that drift most").await;
        for (name, path, words) in pages(&scene.namespace, exception) {
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

/// Pages of several clusters, of somebody without rights, and of one who may do everything.
struct Visits {
    several: Page,
    nobody: Page,
    alice: Page,
    of_release: String,
}

impl Visits {
    async fn of(scene: &Scene, guard: &Guard) -> Self {
        let flags_of_contexts = ["--context", "east", "--context", "west", "--context", "away"];
        let here = &*scene.control_plane;
        let away = [("away", "https://127.0.0.1:1")];
        let clusters = contexts(Identity::Alice, &[("east", here), ("west", here)], &away);
        let nobody = Member::new(&scene.control_plane).await;
        let flags = guard.asked();
        Self {
            several: Page::of(&clusters, &flags_of_contexts).await,
            nobody: Page::of(&nobody.kubeconfig, &flags).await,
            alice: Page::open(&scene.control_plane, Identity::Alice, &flags).await,
            of_release: format!("namespace={}&name=shop", scene.namespace),
        }
    }

    async fn inspect_pages_of_several_clusters(&self, browser: &Browser) {
        let in_east = format!("release?cluster=east&{}", self.of_release);
        let pages = [
            ("", "Drifted"),
            ("releases", "2 releases"),
            (&in_east, "What happened"),
            ("exceptions", "INC-12"),
            ("policies", "Conflicts between policies"),
            ("ledger", "east"),
            ("explain", "Cluster"),
            ("replay", "Cluster"),
        ];
        inspect(browser, "several", &self.several, &pages).await;
    }

    async fn inspect_pages_without_rights(&self, browser: &Browser) {
        let (here, pause) =
            (format!("release?{}", self.of_release), format!("act?do=suspend&{}", self.of_release));
        let pages = [
            ("", "no permission"),
            ("releases", "No release matches"),
            (&here, "no permission"),
            ("exceptions", "no permission"),
            ("policies", "no permission"),
            ("ledger", "you may not read"),
            ("ledger.csv", "you may not read"),
            (&pause, "Pause repairs"),
        ];
        inspect(browser, "nobody", &self.nobody, &pages).await;
    }

    /// What answers an order: one that is carried out, and one that is refused.
    async fn inspect_answers(&self, browser: &Browser) {
        for (page, order, words) in [
            (&self.alice, "suspend", "Nothing in it is repaired"),
            (&self.alice, "resume", "Repairs go on"),
            (&self.nobody, "suspend", "no permission"),
        ] {
            browser.go(&page.address).await;
            browser.wait_for("Overview").await;
            browser.go(&format!("{}act?do={order}&{}", page.base, self.of_release)).await;
            browser.wait_for("repairs").await;
            browser.press(ENTER).await;
            browser.wait_for(words).await;
            browser.inspect(&format!("answer-{order}")).await;
        }
    }
}

/// Inspects pages that are there once they have these words.
async fn inspect(browser: &Browser, what: &str, page: &Page, pages: &[(&str, &str)]) {
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    for (path, words) in pages {
        browser.go(&format!("{}{path}", page.base)).await;
        browser.wait_for(words).await;
        let name = path.split('?').next().unwrap_or_default();
        browser.inspect(&format!("{what}-{}", if name.is_empty() { "overview" } else { name })).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn pages_of_several_clusters_without_rights_and_after_orders_keep_nobody_out() {
    let scene = Scene::own().install("several", TEMPLATES).await;
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(3).await;
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 5}})).await;
    scene.wait_for_reason("Drifted").await;
    let allow = ["allow", "configmap/extra", "--path=/data/color", "--for=2h", "--reason=INC-12"];
    assert_eq!(scene.moor(&allow).code, 0);
    scene.policy("calm", json!({"priority": 5, "edits": "Warn"})).await;
    scene.policy("strict", json!({"edits": "Deny"})).await;
    let visits = Visits::of(&scene, &guard).await;
    for look in Look::ALL {
        let browser = Browser::start(look).await;
        visits.inspect_pages_of_several_clusters(&browser).await;
        visits.inspect_pages_without_rights(&browser).await;
        visits.inspect_answers(&browser).await;
        browser.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
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
