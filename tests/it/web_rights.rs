//! Who has no rights learns nothing from any page, and nobody orders anything for somebody else.

use regex::Regex;
use serde_json::json;

use crate::support::{
    ClusterPage, Guard, Identity, Member, Page, PageResponse, RELEASE, RbacRule, Scene, charts, within,
};
use crate::web_markup::routes;

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hidden}\n---",
    charts::config_map!("settings", "{mode: fast}"),
);

/// The release `shop` with drift and rows of the ledger.
async fn drifted() -> (Scene, Guard) {
    let scene = Scene::own().install("rights", TEMPLATES).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(3).await;
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!(scene.moor(&["allow", "configmap/settings", "--path=/data/mode", "--for=2h"]).code, 0);
    scene.wait_for_reason("Drifted").await;
    (scene, guard)
}

/// An answer without what it is asked for, and without what each page has anew: the token, a digest of the object in
/// the name of an exception, and times.
fn plain(shown: &PageResponse) -> (u16, String) {
    let mut text = shown.text.clone();
    while let Some((before, rest)) = text.split_once("name=\"token\" value=\"") {
        text = format!("{before}{}", rest.split_once('"').unwrap().1);
    }
    for (name, other) in [("shop", "none"), ("web", "none"), ("settings", "none"), ("key", "none")] {
        text = text.replace(name, other);
    }
    let new = Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|-none-[0-9a-f]{10}").unwrap();
    (shown.status.as_u16(), new.replace_all(&text, "").into_owned())
}

/// The same question about what does not exist.
fn elsewhere(route: &str) -> String {
    let names = [("name=shop", "name=none"), ("release=shop", "release=none")];
    let objects = [("deployment/web", "deployment/none"), ("configmap/settings", "configmap/none")];
    let all = names.into_iter().chain(objects).chain([("secret/key", "secret/none")]);
    all.fold(route.to_owned(), |route, (from, to)| route.replace(from, to))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn visitor_without_rights_gets_answers_as_for_absent_objects() {
    let (scene, guard) = drifted().await;
    let flags = guard.asked();
    let nobody = Member::new(&scene.control_plane).await;
    let page = Page::of(&nobody.kubeconfig, &flags).await;
    let in_cluster = ClusterPage::start(&scene.control_plane, &flags).await;
    // Whoever may read sees a difference in each of these.
    let alice = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let release = format!("release?namespace={}&name={RELEASE}", scene.namespace);
    assert!(alice.text(&release).await.contains("/spec/replicas"));
    for route in routes(&scene.namespace) {
        let other = elsewhere(&route);
        let (shown, absent) = (page.get(&route).await, page.get(&other).await);
        assert_eq!(plain(&shown), plain(&absent), "{route}");
        let token = nobody.token();
        let (there, gone) =
            (in_cluster.proxied(&token, &route).await, in_cluster.proxied(&token, &other).await);
        assert_eq!(plain(&there), plain(&gone), "{route}");
        for text in [&shown.text, &there.text] {
            // The form has an example.
            let text = text.replace("placeholder=\"/spec/replicas\"", "");
            for word in ["/spec/replicas", "kubectl-edit", "badge bad\">Drifted", ">5<", "alice"] {
                assert!(!text.contains(word), "{route}: {word} is in {text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn member_of_another_namespace_gets_answers_as_for_absent_objects() {
    let (scene, guard) = drifted().await;
    let flags = guard.asked();
    let own = scene.control_plane.namespace("own").await;
    let member = Member::new(&scene.control_plane).await;
    let rights = [
        "get,list,watch,patch guardedreleases.kubemoor.dev",
        "get,list,watch,create,delete driftallowances.kubemoor.dev",
        "get,list secrets",
        "get,list,patch configmaps",
        "get,list,patch deployments.apps",
        "list events.events.k8s.io",
    ];
    member.may(&rights.map(RbacRule::parse), Some(&own)).await;
    let page = Page::of(&within(&member.kubeconfig, &own), &flags).await;
    for route in routes(&scene.namespace) {
        let (shown, absent) = (page.get(&route).await, page.get(&elsewhere(&route)).await);
        assert_eq!(plain(&shown), plain(&absent), "{route}");
        let text = shown.text.replace("placeholder=\"/spec/replicas\"", "");
        for word in ["/spec/replicas", "kubectl-edit", "badge bad\">Drifted", ">5<", "alice"] {
            assert!(!text.contains(word), "{route}: {word} is in {text}");
        }
    }
}
