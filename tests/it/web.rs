//! The web page of `kubemoor ui`: what it shows, to whom, and what it does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use serde_json::json;

use crate::support::{
    Identity, Page, PageResponse, SOON, Scene, WARNING, charts, contexts, eventually, form, form_token,
};

const PLANTED: [&str; 2] = ["planted-declared-7f21", "planted-edited-0c9d"];

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: planted-declared-7f21}\n---",
    charts::config_map!("settings", "{mode: fast}"),
);

/// What a browser would run, or take for a tag, if it were written as it is.
const MARKUP: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&";

/// The release `shop` with drift that its guard reports, and a page for a person with every right.
struct Shop {
    scene: Scene,
    page: Page,
}

impl Shop {
    async fn start() -> Self {
        let scene = Scene::on_cluster(&WARNING).install("page", TEMPLATES).await;
        scene.wait_for_confirmed(3).await;
        let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
        Self { scene, page }
    }

    /// Makes the Deployment, the ConfigMap and the Secret drift, and waits until the guard says so.
    async fn drift(&self) {
        let scene = &self.scene;
        let web = format!("{}?fieldManager=%3Cb%3Eeditor", scene.deployment("web"));
        scene.alice.merge(&web, &json!({"spec": {"replicas": 5}})).await.done().unwrap();
        scene.data("settings", json!({"mode": MARKUP})).await.done().unwrap();
        let secret = json!({"data": {"password": STANDARD.encode(PLANTED[1])}});
        scene.alice.merge(&scene.core("secrets/key"), &secret).await.done().unwrap();
        scene.status("three objects drift", |status| status["drifted"] == json!(3)).await;
    }

    /// The address of the release's page, or of an action.
    fn of_release(&self, page: &str) -> String {
        let joint = if page.contains('?') { '&' } else { '?' };
        format!("{page}{joint}namespace={}&name=shop", self.scene.namespace)
    }
}

pub(crate) fn assert_holds(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_shown_from_the_overview_down_to_the_field() {
    let shop = Shop::start().await;
    shop.drift().await;
    let reason = format!("--reason={MARKUP}");
    let allow = ["allow", "deployment/web", "--path=/spec/paused", "--for=2h", reason.as_str()];
    assert_eq!(shop.scene.moor(&allow).code, 0);
    // The page follows releases and exceptions by two watches. It shows those of all namespaces.
    let here = shop.scene.namespace.as_str();
    let exception = format!("Deployment/web</code> in {here}<");
    let shown = || async {
        let text = shop.page.text("").await;
        let is_whole =
            ["state=Drifted", " open exception", &exception].iter().all(|part| text.contains(part));
        if is_whole { Ok(text) } else { Err(text) }
    };
    let overview = eventually("the overview shows drift and the exception", SOON, shown).await;
    assert_holds(&overview, &["Deployment /spec/replicas"]);
    let list = shop.page.text(&format!("releases?namespace={here}&state=Drifted")).await;
    assert_holds(&list, &["1 release", &format!("namespace={}", here.replace('-', "%2D")), "Drifted"]);
    assert!(shop.page.text("releases?q=nothing-like-it").await.contains("No release matches"));
    let drifting = |field: &str| format!("releases?namespace={here}&field=Deployment%20%2Fspec%2F{field}");
    assert!(shop.page.text(&drifting("replicas")).await.contains("1 release"));
    assert!(shop.page.text(&drifting("paused")).await.contains("No release matches"));

    let release = shop.page.text(&shop.of_release("release")).await;
    assert_holds(
        &release,
        &[
            "/spec/replicas",
            ">2</code>",
            ">5</code>",
            "&lt;b&gt;editor",
            "Repair now",
            "Pause repairs",
            "(redacted)",
        ],
    );
    assert_holds(&release, &["&lt;script&gt;alert(1)", "&lt;img src=x onerror=alert(2)&gt;&quot;"]);
    let exceptions = shop.page.text("exceptions").await;
    assert_holds(&exceptions, &["&lt;script&gt;alert(1)", "/spec/paused"]);
    for page in [&overview, &list, &release, &exceptions] {
        for word in ["<script>alert", "<img", "<b>editor"] {
            assert!(!page.contains(word), "{word} is in {page}");
        }
        for word in PLANTED {
            assert!(!page.contains(word) && !page.contains(&STANDARD.encode(word)), "{word} is in {page}");
        }
        let elsewhere = page.split(['"', '\'']).find(|part| part.contains("://"));
        assert_eq!(elsewhere, None, "it is asked for elsewhere");
    }
    assert!(!shop.page.log().contains("planted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_given_once_they_are_confirmed() {
    let shop = Shop::start().await;
    shop.drift().await;
    let scene = &shop.scene;
    let act = |what: &str| shop.of_release(&format!("act?do={what}"));

    let page = shop.page.text(&act("reconcile")).await;
    assert_holds(&page, &["Deployment/web", "/spec/replicas", "becomes"]);
    scene.assert_value(&scene.deployment("web"), "/spec/replicas", &json!(5)).await;
    let done = shop.page.confirm(&act("reconcile")).await;
    assert!(done.status == StatusCode::OK && done.text.contains("class=\"done\""), "{}", done.text);
    scene.wait_for_value(&scene.deployment("web"), "/spec/replicas", &json!(2)).await;

    assert_eq!(shop.page.confirm(&act("suspend")).await.status, StatusCode::OK);
    scene.wait_for_reason("Suspended").await;
    let paused = || async {
        let text = shop.page.text(&shop.of_release("release")).await;
        if text.contains("Resume repairs") { Ok(()) } else { Err(text) }
    };
    eventually("the page offers to resume", SOON, paused).await;
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 7}})).await;
    // What is shown depends on the mode that is in force.
    let resumed = async |words: &'static str| {
        eventually("the page says what will be repaired", SOON, || async {
            let text = shop.page.text(&act("resume")).await;
            if text.contains(words) { Ok(text) } else { Err(text) }
        })
        .await
    };
    assert_holds(
        &resumed("is <strong>Report</strong>").await,
        &["Deployment/web", "/spec/replicas", "instead of"],
    );
    scene.policy("repairing", json!({"drift": "Repair"})).await;
    assert_holds(&resumed("is Repair").await, &["Deployment/web", "/spec/replicas", ">7</code>", "becomes"]);
    assert_eq!(shop.page.confirm(&act("resume")).await.status, StatusCode::OK);
    scene.wait_for_value(&scene.deployment("web"), "/spec/replicas", &json!(2)).await;

    // Browsers end a line by CRLF. The mark in the reason is that of a text from right to left.
    let wish = format!(
        "act?do=allow&namespace={}&object=deployment/web&path=/spec/replicas%0D%0A/spec/paused&for=2h&reason=INC-7%E2%80%8F",
        scene.namespace
    );
    assert_holds(&shop.page.text(&wish).await, &["kind: DriftAllowance", "INC-7"]);
    let made = shop.page.confirm(&wish).await;
    assert_holds(&made.text, &["/spec/replicas, /spec/paused of Deployment/web"]);
    let path = scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let made = scene.get(&path).await["items"][0].clone();
    assert_eq!(made["spec"]["reason"], "INC-7\u{200f}", "what was confirmed");
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let end = format!("act?do=revoke&namespace={}&name={name}", scene.namespace);
    let asked = shop.page.text(&end).await;
    assert_holds(&asked, &["Deployment/web", "/spec/replicas", "/spec/paused", "Would end", "INC-7"]);
    assert_eq!(shop.page.confirm(&end).await.status, StatusCode::OK);
    assert_eq!(scene.get(&path).await["items"], json!([]));
    let gone = shop.page.get(&end).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "{}", gone.text);
    assert_holds(&gone.text, &["there is no exception"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_no_page_of_the_visitor_sent_are_refused() {
    let shop = Shop::start().await;
    let page = &shop.page;
    let whole = page.get("").await;
    let policy = whole.headers["content-security-policy"].to_str().unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'self'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(whole.headers["cache-control"], "no-store");

    let url = |path: &str| format!("{}{path}", page.base);
    let get = |path: &str| page.client.get(url(path));
    let port = page.base.split(':').nth(2).unwrap().split('/').next().unwrap();
    let half = &page.cookie[..page.cookie.len() / 2];
    let root = page.base.split_inclusive('/').take(3).collect::<String>();
    for (what, request, status) in [
        ("no cookie", get(""), 401),
        ("half a cookie", get("").header("cookie", half), 401),
        ("another's token", get("open?token=0123456789abcdef"), 401),
        ("no token", get("open"), 401),
        ("a rebound name", page.request("").header("host", format!("evil.example:{port}")), 421),
        ("another port", page.request("").header("host", "127.0.0.1:1"), 421),
        ("no port", page.request("").header("host", "127.0.0.1"), 421),
        ("the root", page.client.get(&root), 401),
        ("the stream without a cookie", get("stream"), 401),
    ] {
        let shown = PageResponse::of(request).await;
        assert_eq!(shown.status.as_u16(), status, "{what}: {}", shown.text);
        assert!(
            !shown.text.contains("shop") && shown.headers.contains_key("content-security-policy"),
            "{what}"
        );
    }
    let named = page.request("").header("host", format!("localhost:{port}"));
    assert_eq!(PageResponse::of(named).await.status, StatusCode::OK);

    let (scene, allowances) = (&shop.scene, shop.scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances"));
    let spec = async || scene.get(&scene.guarded_release("shop")).await["spec"].take();
    let before = spec().await;
    let other = Page::open(&scene.control_plane, Identity::Bob, &[]).await;
    let (own, others) = (form_token(&page.text("explain").await), form_token(&other.text("explain").await));
    for order in ["reconcile", "suspend", "resume", "allow", "revoke"] {
        let mut fields = vec![
            ("do", order),
            ("namespace", scene.namespace.as_str()),
            ("name", "shop"),
            ("object", "deployment/web"),
            ("path", "/spec/paused"),
            ("until", "2099-01-01T00:00:00Z"),
        ];
        for wrong in [None, Some(""), Some("0.0"), Some(others.as_str())] {
            let fields = fields.iter().copied().chain(wrong.map(|it| ("token", it))).collect::<Vec<_>>();
            let shown = page.post("act", &fields).await;
            assert_eq!(shown.status, StatusCode::FORBIDDEN, "{order} {wrong:?}: {}", shown.text);
        }
        fields.push(("token", &own));
        for (header, value) in [
            ("origin", "https://evil.example"),
            ("origin", "http://127.0.0.1:1"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let request = page.client.post(url("act")).header("cookie", &page.cookie).header(header, value);
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let shown = PageResponse::of(request.body(form(&fields))).await;
            assert_eq!(shown.status, StatusCode::FORBIDDEN, "{order} {header}: {value}: {}", shown.text);
            assert!(shown.text.contains("Another site"), "{order}: {}", shown.text);
        }
        // With GET nothing is ordered, whatever the address holds.
        page.get(&format!("act?{}", form(&fields))).await;
    }
    assert_eq!((spec().await, &scene.get(&allowances).await["items"]), (before, &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn clusters_stand_side_by_side_and_each_fails_alone() {
    let shop = Shop::start().await;
    let here = &*shop.scene.control_plane;
    let away = [("away", "https://127.0.0.1:1")];
    let kubeconfig = contexts(Identity::Alice, &[("prod/eu <1>", here), ("twin", here)], &away);
    let page = Page::of(&kubeconfig, &["--context", "prod/eu <1>", "--context", "away"]).await;
    let overview = page.text("").await;
    assert_holds(&overview, &["prod/eu &lt;1&gt;", "away", "cannot be reached", "state=InSync"]);
    let list = page.text(&format!("releases?namespace={}", shop.scene.namespace)).await;
    assert_holds(&list, &["cluster=prod%2Feu%20%3C1%3E", "1 release", "cannot be reached"]);
    let release = page.text(&shop.of_release("release?cluster=prod%2Feu%20%3C1%3E")).await;
    assert_holds(&release, &["3 objects match their release"]);
    let unnamed = page.get(&shop.of_release("release")).await;
    assert_eq!(unnamed.status, StatusCode::NOT_FOUND);
    let answering = Page::of(&kubeconfig, &[]).await.text("").await;
    assert_holds(&answering, &["prod/eu &lt;1&gt;", "twin"]);
    assert!(!answering.contains("away"), "{answering}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn denied_changes_are_counted_opened_exported_and_explained() {
    let scene = Scene::own().install("ledger", TEMPLATES).await;
    let guard = scene.start_guard(&["--register", "--edits", "Deny", "--drift", "Repair"]).await;
    let web = scene.deployment("web");
    scene.wait_until_guarded(&web).await;
    let user = "<script>alert(1)</script>";
    let denied = scene.kubectl_as(user, "people", &["scale", "deployment/web", "--replicas=7"]).unwrap_err();
    let secret = json!({"data": {"password": STANDARD.encode(PLANTED[1])}});
    scene.alice.merge(&scene.core("secrets/key"), &secret).await.refused("shop").unwrap();
    scene.policy("careful", json!({"edits": "Deny", "drift": "Report"})).await;
    let flags = guard.asked();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let rows = format!("ledger?namespace={}&verdict=Deny", scene.namespace);
    let listed = || async {
        let text = page.text(&rows).await;
        if text.contains("Secret/key") && text.contains("&lt;script&gt;alert(1)") {
            Ok(text)
        } else {
            Err(text)
        }
    };
    let ledger = eventually("the ledger has both rows", SOON, listed).await;
    assert_holds(
        &ledger,
        &["/spec/replicas", "Deployment/web", "UPDATE", "groups", "people", "ledger.csv?namespace="],
    );
    let whole = format!("{rows}&by=nobody");
    assert!(page.text(&whole).await.contains("No row matches"));
    let csv = page.text(&rows.replace("ledger?", "ledger.csv?")).await;
    assert!(csv.starts_with("\"time\",\"kind\"") && csv.contains("\"'=") == csv.contains("\"="), "{csv}");
    let json = page.text(&rows.replace("ledger?", "ledger.json?")).await;
    for line in json.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["verdict"], "Deny");
    }
    let overview = page.text("").await;
    assert_holds(&overview, &["Denied changes of 10 days", "&lt;script&gt;alert(1)", "verdict=Deny"]);
    let release = page.text(&format!("release?namespace={}&name=shop", scene.namespace)).await;
    assert_holds(&release, &["by &lt;script&gt;", "All rows of the ledger"]);
    let policies = page.text("policies").await;
    assert_holds(&policies, &[&format!("{}-careful", scene.namespace), "Drift stays", ">1</a>"]);
    let matched = format!("releases?policy={}-careful", scene.namespace);
    assert_holds(&page.text(&matched).await, &["1 release"]);

    let token = form_token(&page.text("explain").await);
    let explained = page.post("explain", &[("token", token.as_str()), ("text", denied.as_str())]).await;
    assert_holds(&explained.text, &["Deployment/web", "/spec/replicas", "As declared", "helm upgrade"]);
    let refused = page.post("explain", &[("text", denied.as_str())]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let named = format!("explain?object=secret/key&namespace={}&path=/data/password", scene.namespace);
    let named = page.text(&named).await;
    assert_holds(&named, &["redacted", "careful"]);
    for text in [&ledger, &csv, &json, &overview, &release, &policies, &explained.text, &named] {
        assert!(!text.contains(user) || text.starts_with('"') || text.starts_with('{'), "{text}");
        for word in PLANTED {
            assert!(!text.contains(word) && !text.contains(&STANDARD.encode(word)), "{word} is in {text}");
        }
    }
}
