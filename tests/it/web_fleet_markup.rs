//! Nothing that a shared ledger holds becomes markup of a page, and no value of a Secret gets there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kubemoor_ledger::fleet::{FleetReleaseState, GuardState};
use kubemoor_runtime::config::LedgerUrl;
use serde_json::json;

use crate::ledger::{FOREVER, Written, begin, row};
use crate::ledger_fleet::{guard, state};
use crate::support::{Page, Postgres, SOON, Scene, charts, eventually};
use crate::web_markup::{MARKUP, assert_text};

/// A value of the chart, and one that somebody writes.
const PLANTED: [&str; 2] = ["planted-shared-19ce", "planted-live-5d70"];

const WITH_SECRET: &str = concat!(
    charts::config_map!("settings", "{mode: fast}"),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: planted-shared-19ce}\n",
);

/// Every page that is asked for with GET, for the release `name` of a namespace.
fn routes(namespace: &str, name: &str, cluster: &str) -> Vec<String> {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let cluster = format!("cluster={}", encode(cluster));
    let release = format!("namespace={}&name={}", encode(namespace), encode(name));
    let rows = format!("namespace={}&release={}", encode(namespace), encode(name));
    let mut routes =
        ["", "releases", "ledger", "ledger.csv", "ledger.json", "replay"].map(str::to_owned).to_vec();
    routes.extend([
        format!("?{cluster}"),
        format!("?{rows}"),
        format!("releases?{cluster}"),
        format!("releases?q={}", encode(name)),
        format!("releases?state=Drifted&{rows}"),
        format!("release?{release}"),
        format!("release?{release}&{cluster}"),
        format!("ledger?{rows}&{cluster}"),
        format!("replay?since=1h&edits=Deny&{cluster}"),
    ]);
    routes
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn whatever_a_shared_ledger_holds_is_text() {
    let server = Postgres::start().await;
    let url = server.database();
    let written = Written::start(&url.parse::<LedgerUrl>().unwrap(), MARKUP, FOREVER);
    let open = || async { written.ledger.fleet().ok_or("it is not") };
    let fleet = eventually("the ledger is open", SOON, open).await;
    fleet.beat(&GuardState { version: MARKUP, ..guard() }).await.unwrap();
    let odd = FleetReleaseState {
        reason: "Drifted",
        ready: "False",
        drifted: 1,
        chart: Some(MARKUP.to_owned()),
        edits: MARKUP.to_owned(),
        drift: MARKUP.to_owned(),
        message: MARKUP.to_owned(),
        ..state(MARKUP, MARKUP)
    };
    fleet.write(&[odd], &[]).await.unwrap();
    let now = Timestamp::now().duration_since(begin()).as_secs();
    for (back, verdict) in [(5, "Deny"), (4, "Reported")] {
        written.ledger.record(row(now - back, MARKUP, MARKUP, MARKUP, verdict));
    }
    written.close().await;
    let page = Page::of_ledger(&url).await;
    for route in routes(MARKUP, MARKUP, MARKUP) {
        let shown = page.get(&route).await;
        assert_eq!(shown.status.as_u16(), 200, "{route}: {}", shown.text);
        assert_text(&route, &shown);
        // It is there, and so it is written as text; a form without a replay has nothing to show.
        assert!(shown.text.contains("onerror=alert") || route == "replay", "{route}: {}", shown.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn values_of_secrets_stand_on_no_shared_page() {
    let server = Postgres::start().await;
    let url = server.database();
    let scene = Scene::own().install("shared", WITH_SECRET).await;
    let ledger = format!("--ledger={url}");
    let flags = ["--register", "--edits", "Warn", "--drift", "Report", "--cluster-name=west", &ledger];
    let guard = scene.start_guard(&flags).await;
    scene.wait_for_confirmed(2).await;
    let secret = scene.core("secrets/key");
    scene.edit(&secret, json!({"data": {"password": STANDARD.encode(PLANTED[1])}})).await;
    scene.status("the Secret drifts", |status| status["drifted"] == json!(1)).await;
    scene.policy("strict", json!({"edits": "Deny"})).await;
    let denied = json!({"data": {"password": STANDARD.encode("planted-denied")}});
    scene.alice.merge(&secret, &denied).await.refusal().unwrap();
    let page = Page::of_ledger(&url).await;
    for (path, part) in [("ledger?verdict=Deny", "Secret/key"), ("releases?state=Drifted", "1 release<")] {
        eventually(path, SOON, || async {
            let text = page.text(path).await;
            if text.contains(part) { Ok(()) } else { Err(text) }
        })
        .await;
    }
    for route in routes(&scene.namespace, "shop", "west") {
        let text = page.text(&route).await;
        for word in PLANTED.into_iter().chain(["planted-denied"]) {
            for form in [word.to_owned(), STANDARD.encode(word)] {
                assert!(!text.contains(form.trim_end_matches('=')), "{route}: {word} is in {text}");
            }
        }
    }
    assert!(!page.log().contains("planted") && !guard.log().contains("planted"));
}
