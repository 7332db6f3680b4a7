//! Open pages follow the cluster: by few requests, for as long as somebody looks, and without taking the focus away.

use serde_json::{Value, json};

use crate::support::{
    Browser, Caller, ClusterPage, ControlPlane, DRIFT_POLICIES, ENTER, Identity, Look, Member,
    OwnControlPlane, PAGE_HOST, Page, RbacRule, SOON, drift_policy, eventually, unguarded, wait_for_change,
};

/// Keeps the streams that a page opens. The first one asks for a page that does not exist.
const STREAMS: &str = "
window.streams = [];
const Real = EventSource;
window.EventSource = class extends Real {
  constructor(address) { super(streams.length === 0 && window.name === 'refused' ? 'no-such-page' : address); streams.push(this); }
};
const fetched = window.fetch;
window.refreshes = [];
window.fetch = async (...asked) => {
  const refresh = { began: performance.now() };
  refreshes.push(refresh);
  const answer = await fetched(...asked);
  const whole = answer.text.bind(answer);
  answer.text = async () => { const text = await whole(); refresh.ended = performance.now(); return text; };
  return answer;
};";

/// How many streams are open.
const OPEN: &str = "return streams.filter((it) => it.readyState !== EventSource.CLOSED).length";

/// Two releases of which no guard speaks: their statuses are the test's.
struct UnguardedReleases {
    admin: Caller,
    control_plane: OwnControlPlane,
    path: String,
    namespace: String,
}

impl UnguardedReleases {
    async fn start() -> Self {
        let control_plane = ControlPlane::start_defined();
        let namespace = control_plane.namespace("live").await;
        let admin = Caller::new(&control_plane, Identity::Admin).await;
        let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases");
        let releases = Self { admin, control_plane, path, namespace };
        for name in ["shop", "bank"] {
            let object = json!({
                "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "metadata": {"name": name}, "spec": {},
            });
            let made = || async { releases.admin.post(&releases.path, &object).await.done() };
            eventually("a release is made", SOON, made).await;
            releases.tell(name, "first").await;
        }
        releases
    }

    /// Has the guard say this of a release.
    async fn tell(&self, name: &str, message: &str) {
        let condition = json!({
            "type": "Ready", "status": "False", "reason": "Drifted", "message": message,
            "lastTransitionTime": "2026-11-20T00:00:00Z",
        });
        let status =
            json!({"status": {"conditions": [condition], "revision": 1, "declared": 2, "drifted": 1}});
        self.admin.merge(&format!("{}/{name}/status", self.path), &status).await.done().unwrap();
    }

    fn of(&self, page: &str, name: &str) -> String {
        format!("{page}?namespace={}&name={name}", self.namespace)
    }
}

/// A browser that keeps the streams of the pages which it opens.
async fn following(page: &Page) -> Browser {
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    browser.order("Page.addScriptToEvaluateOnNewDocument", json!({"source": STREAMS})).await;
    browser
}

async fn until(browser: &Browser, script: &str, expected: Value) {
    eventually(script, SOON, || async {
        let found = browser.evaluate(script).await;
        if found == expected { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

/// Pretends that the window is covered by another one, or seen again.
async fn set_hidden(browser: &Browser, is_hidden: bool) {
    let script = format!(
        "Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}});
         document.dispatchEvent(new Event('visibilitychange'))"
    );
    browser.evaluate(&script).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn refused_stream_is_opened_again_and_hidden_page_has_none() {
    let releases = UnguardedReleases::start().await;
    let page = Page::open(&releases.control_plane, Identity::Alice, &[]).await;
    let browser = following(&page).await;
    // It outlives the page.
    browser.evaluate("window.name = 'refused'").await;
    browser.go(&format!("{}releases", page.base)).await;
    browser.wait_for("2 releases").await;
    until(&browser, "return streams.length", json!(2)).await;
    until(&browser, "return streams[1].readyState", json!(1)).await;
    releases.tell("shop", "second").await;
    browser.wait_for("second").await;

    set_hidden(&browser, true).await;
    until(&browser, OPEN, json!(0)).await;
    releases.tell("shop", "third").await;
    let changed = || async {
        let text = page.text("releases").await;
        if text.contains("third") { Ok(()) } else { Err(text) }
    };
    eventually("the page would show it", SOON, changed).await;
    assert!(!browser.text().await.contains("third"));
    set_hidden(&browser, false).await;
    browser.wait_for("third").await;
    until(&browser, OPEN, json!(1)).await;
    releases.tell("shop", "fourth").await;
    browser.wait_for("fourth").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn open_page_asks_for_login_once_the_session_ends() {
    let releases = UnguardedReleases::start().await;
    let page = ClusterPage::start(&releases.control_plane, &["--host=localhost"]).await;
    let member = Member::new(&releases.control_plane).await;
    member.may(&[RbacRule::parse("get,list,watch guardedreleases.kubemoor.dev")], None).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.base.replace(PAGE_HOST, "localhost")).await;
    browser.wait_for("Bearer token of the cluster").await;
    browser.press(&member.token()).await;
    browser.press(ENTER).await;
    browser.wait_for("Log out").await;
    member.delete().await;
    browser.wait_for("Bearer token of the cluster").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_page_asks_nothing_when_another_release_changes() {
    let releases = UnguardedReleases::start().await;
    let page = Page::open(&releases.control_plane, Identity::Alice, &[]).await;
    let browser = following(&page).await;
    browser.go(&format!("{}{}", page.base, releases.of("release", "shop"))).await;
    browser.wait_for("first").await;
    until(&browser, "return streams.map((it) => it.readyState)", json!([1])).await;
    let mut all = page.request("stream").send().await.unwrap();
    let mut own = page.request(&releases.of("stream", "shop")).send().await.unwrap();
    // Twice, so that whoever is told of the first has asked by now.
    for message in ["second", "third"] {
        releases.tell("bank", message).await;
        wait_for_change(&mut all).await;
    }
    releases.tell("shop", "fourth").await;
    wait_for_change(&mut own).await;
    browser.wait_for("fourth").await;
    assert_eq!(browser.evaluate("return refreshes.length").await, json!(1));
    // An exception in its namespace may be for one of its objects.
    let spec = json!({
        "object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"], "reason": "INC-7",
        "until": "2099-01-01T00:00:00Z",
    });
    let object = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": "one"}, "spec": spec,
    });
    let path = releases.path.replace("guardedreleases", "driftallowances");
    releases.admin.post(&path, &object).await.done().unwrap();
    browser.wait_for("INC-7").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_policies_shows_a_policy_as_soon_as_it_is_made() {
    let admin = Caller::new(unguarded(), Identity::Admin).await;
    let page = Page::open(unguarded(), Identity::Alice, &[]).await;
    let browser = following(&page).await;
    browser.go(&format!("{}policies", page.base)).await;
    until(&browser, "return streams.map((it) => it.readyState)", json!([1])).await;
    let is_shown = "return document.body.innerText.includes('calm')";
    assert_eq!(browser.evaluate(is_shown).await, json!(false));
    let spec = json!({"edits": "Warn", "releases": {"names": ["no-such-release"]}});
    admin.post(DRIFT_POLICIES, &drift_policy("calm", spec)).await.done().unwrap();
    until(&browser, is_shown, json!(true)).await;
    admin.delete(&format!("{DRIFT_POLICIES}/calm")).await.done().unwrap();
    until(&browser, is_shown, json!(false)).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn open_page_refreshes_at_once_and_then_rests() {
    let releases = UnguardedReleases::start().await;
    let page = Page::open(&releases.control_plane, Identity::Alice, &[]).await;
    let browser = following(&page).await;
    browser.go(&format!("{}releases", page.base)).await;
    browser.wait_for("2 releases").await;
    until(&browser, "return streams.map((it) => it.readyState)", json!([1])).await;
    // The cluster never rests.
    let mut number = 0;
    let times = loop {
        number += 1;
        releases.tell("shop", &format!("number {number}")).await;
        let times = browser.evaluate("return refreshes.map((it) => [it.began, it.ended ?? 0])").await;
        if times.as_array().is_some_and(|times| times.len() == 3) {
            break times;
        }
    };
    let time = |refresh: usize, end: usize| times[refresh][end].as_f64().unwrap();
    for next in [1, 2] {
        let rest = time(next, 0) - time(next - 1, 1);
        assert!(rest >= 4990.0, "a refresh begins {rest} ms after the one before: {times}");
    }
    // What came last is shown.
    browser.wait_for(&format!("number {number}")).await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn focus_stays_where_it_is_while_pages_follow() {
    let releases = UnguardedReleases::start().await;
    let page = Page::open(&releases.control_plane, Identity::Alice, &[]).await;
    let browser = following(&page).await;
    browser.go(&format!("{}releases?sort=name", page.base)).await;
    browser.wait_for("2 releases").await;
    browser.tab_to("shop").await;
    let focused = "return [document.activeElement.tagName, document.activeElement.textContent, \
                   document.activeElement.getAttribute('href')]";
    let before = browser.evaluate(focused).await;
    assert!(before[2].as_str().is_some_and(|link| link.starts_with("release?")), "{before}");
    releases.tell("bank", "second").await;
    browser.wait_for("second").await;
    assert_eq!(browser.evaluate(focused).await, before);
    // It is the first of two that lead there; the other one stays the other one.
    browser.tab_to("1 of 2").await;
    let before = browser.evaluate(focused).await;
    releases.tell("shop", "third").await;
    browser.wait_for("third").await;
    assert_eq!(browser.evaluate(focused).await, before);
    browser.end().await;
}
