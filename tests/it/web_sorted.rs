//! The order of the list of releases, where several clusters are shown.

use regex::Regex;
use serde_json::json;

use crate::support::{Caller, ControlPlane, Identity, Page, SOON, contexts, eventually};

const RELEASES: &str = "/apis/kubemoor.dev/v1alpha1/namespaces/default/guardedreleases";

/// A release as its guard would report it.
struct Reported {
    name: &'static str,
    state: &'static str,
    drifted: u64,
    revision: u64,
    edits: &'static str,
}

/// Makes these releases.
async fn make(control_plane: &ControlPlane, releases: &[Reported]) {
    control_plane.define_policies();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    for Reported { name, state, drifted, revision, edits } in releases {
        let object = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "metadata": {"name": name}, "spec": {},
        });
        eventually("a release is made", SOON, || async { admin.post(RELEASES, &object).await.done() }).await;
        let condition = json!({
            "type": "Ready", "status": if *state == "InSync" { "True" } else { "False" }, "reason": state,
            "message": "told by the test", "lastTransitionTime": "2026-11-20T00:00:00Z",
        });
        let status = json!({
            "conditions": [condition], "revision": revision, "declared": 9, "drifted": drifted, "edits": edits,
            "drift": "Report",
        });
        let path = format!("{RELEASES}/{name}/status");
        admin.merge(&path, &json!({"status": status})).await.done().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn releases_of_several_clusters_are_sorted_together() {
    let (east, west) = (ControlPlane::start(), ControlPlane::start());
    let reported = |name, state, drifted, revision, edits| Reported { name, state, drifted, revision, edits };
    make(&east, &[reported("api", "Drifted", 3, 9, "Deny"), reported("web", "InSync", 0, 2, "Warn")]).await;
    make(&west, &[reported("api", "InSync", 0, 10, "Warn"), reported("bank", "Drifted", 1, 4, "Record")])
        .await;
    let kubeconfig = contexts(Identity::Alice, &[("east", &*east), ("west", &*west)], &[]);
    let page = Page::of(&kubeconfig, &["--context", "west", "--context", "east"]).await;
    eventually("all are listed", SOON, || async {
        let text = page.text("releases").await;
        if text.contains("4 releases") { Ok(()) } else { Err(text) }
    })
    .await;
    let line = Regex::new("<tr><td>(\\w+)</td><th scope=\"row\"><a [^>]*>(\\w+)</a>").unwrap();
    let listed = async |path: &str| -> Vec<String> {
        let text = page.text(path).await;
        line.captures_iter(&text).map(|found| format!("{} {}", &found[1], &found[2])).collect()
    };
    for (sort, expected) in [
        ("name", ["east api", "west api", "west bank", "east web"]),
        ("state", ["east api", "west bank", "west api", "east web"]),
        ("drifted", ["east api", "west bank", "west api", "east web"]),
        ("revision", ["west api", "east api", "west bank", "east web"]),
        ("edits", ["east api", "west bank", "west api", "east web"]),
    ] {
        assert_eq!(listed(&format!("releases?sort={sort}")).await, expected, "{sort}");
        let reversed: Vec<_> = expected.into_iter().rev().collect();
        assert_eq!(listed(&format!("releases?sort=-{sort}")).await, reversed, "-{sort}");
    }
    assert_eq!(listed("releases?sort=revision&cluster=west").await, ["west api", "west bank"]);
    assert_eq!(listed("releases?sort=-name&state=Drifted").await, ["west bank", "east api"]);
    // The head tells the order, and the next one keeps what is asked for.
    let text = page.text("releases?sort=drifted&cluster=west&q=a").await;
    assert!(text.contains("aria-sort=\"ascending\"><a href=\"releases?"), "{text}");
    assert!(text.contains("cluster=west&amp;q=a&amp;sort=%2Ddrifted"), "{text}");
}
