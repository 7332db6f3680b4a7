//! The page with as many releases as a large cluster has.

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::support::{Browser, Caller, ControlPlane, Identity, Look, Page, SOON, eventually};
use crate::web::assert_holds;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ten_thousand_releases_are_listed_in_pages() {
    let control_plane = ControlPlane::start_defined();
    let namespace = control_plane.namespace("many").await;
    let admin = Caller::new(&control_plane, Identity::Admin).await;
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases");
    let (admin, path) = (&admin, &path);
    let made = |number: usize| async move {
        let name = format!("release-{number:05}");
        let object = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "metadata": {"name": name}, "spec": {},
        });
        // The definition is taken up a moment after it was made.
        eventually("a release is made", SOON, || async { admin.post(path, &object).await.done() }).await;
    };
    made(0).await;
    futures::stream::iter(1..10_000).map(made).buffer_unordered(16).collect::<Vec<_>>().await;
    let page = Page::open(&control_plane, Identity::Alice, &[]).await;
    let all = || async {
        let shown = page.get("releases").await;
        if shown.text.contains("10000 releases") { Ok(shown) } else { Err("not all are listed".to_owned()) }
    };
    eventually("all are listed", SOON, all).await;
    // What the follower lists, and nothing for a page.
    let lists = || {
        let is_list = |event: &&Value| {
            let uri = event["requestURI"].as_str().unwrap_or_default();
            let is_one = uri.ends_with("limit=1") || uri.contains("limit=1&");
            event["verb"] == "list" && event["user"]["username"] == "alice" && !is_one
        };
        let uris = |event: Value| event["requestURI"].as_str().unwrap_or_default().to_owned();
        let lists: Vec<_> = control_plane
            .audit_events(&["alice", "kubemoor.dev"])
            .iter()
            .filter(is_list)
            .cloned()
            .map(uris)
            .collect();
        // The start page reads exceptions anew.
        lists.into_iter().filter(|uri| uri.contains("/guardedreleases")).collect::<Vec<_>>()
    };
    let before = lists().len();
    for path in ["releases", "releases?sort=-name&page=100", "releases?q=release-0999", ""] {
        for _ in 0..10 {
            let shown = page.get(path).await;
            assert!(shown.text.len() < 300_000, "{path}: {} bytes", shown.text.len());
        }
    }
    let after = lists();
    assert!(after.len() < before + 5, "{before} lists before 40 pages, then {after:#?}");
    let last = page.text("releases?sort=name&page=100").await;
    assert_holds(&last, &["release-09999", "Page 100 of 100"]);
    assert!(!last.contains("release-09899"));
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("10000").await;
    browser.go(&format!("{}releases?sort=name&page=100", page.base)).await;
    browser.wait_for("release-09999").await;
    browser.inspect("many-releases").await;
    browser.end().await;
}
