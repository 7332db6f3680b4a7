//! Rights that are taken away end on pages that are open, and buttons are offered to those who may use them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use serde_json::json;

use crate::support::{
    Browser, ClusterPage, Identity, Look, Member, Page, RbacRule, SOON, Scene, charts, eventually,
    wait_for_change,
};

/// Makes an exception for the object of the release.
pub(crate) async fn make_exception(scene: &Scene, namespace: &str, name: &str) {
    let until = Timestamp::now() + SignedDuration::from_hours(2);
    let spec = json!({
        "object": {"kind": "ConfigMap", "name": "settings"}, "paths": ["/data/level"], "reason": "INC-7",
        "until": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let object = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": name}, "spec": spec,
    });
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/driftallowances");
    scene.admin.post(&path, &object).await.done().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn open_pages_hide_releases_once_the_right_ends() {
    let scene = Scene::own().install("revoked", charts::SETTINGS).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(1).await;
    let (here, member) = (scene.namespace.as_str(), Member::new(&scene.control_plane).await);
    let rights = [
        "get,list,watch guardedreleases.kubemoor.dev",
        "list,watch driftallowances.kubemoor.dev",
        // By its records it would be found as well.
        "get,list secrets",
    ];
    member.may(&rights.map(RbacRule::parse), Some(here)).await;
    let in_cluster = ClusterPage::start(&scene.control_plane, &[]).await;
    let list = format!("releases?namespace={here}");
    let seen = || async {
        let text = in_cluster.proxied(&member.token(), &list).await.text;
        if text.contains("1 release<") { Ok(()) } else { Err(text) }
    };
    eventually("the release is seen", SOON, seen).await;
    let request = in_cluster.request(Method::GET, "stream");
    let mut stream =
        request.header(AUTHORIZATION, format!("Bearer {}", member.token())).send().await.unwrap();
    // Two pages that are open, and that nobody loads again.
    let page = Page::of(&member.kubeconfig, &[]).await;
    let (browser, other) = (Browser::start(Look::ALL[0]).await, Browser::start(Look::ALL[2]).await);
    for (browser, path, words) in [
        (&browser, list.clone(), "1 release"),
        (&other, format!("release?namespace={here}&name=shop"), "In sync"),
    ] {
        browser.go(&page.address).await;
        browser.wait_for("Overview").await;
        browser.go(&format!("{}{path}", page.base)).await;
        browser.wait_for(words).await;
    }

    member.may_no_more(here).await;
    let told = wait_for_change(&mut stream);
    let gone = eventually("the list is empty", SOON, || async {
        let text = in_cluster.proxied(&member.token(), &list).await.text;
        if text.contains("no permission") && !text.contains(">shop<") { Ok(()) } else { Err(text) }
    });
    let hidden = eventually("the open pages are empty", SOON, || async {
        let (list, release) = (browser.text().await, other.text().await);
        if list.contains("1 release") || release.contains("In sync") { Err(list + &release) } else { Ok(()) }
    });
    tokio::join!(told, gone, hidden);

    member.may_again(here).await;
    eventually("the release is seen again", SOON, seen).await;
    browser.wait_for("1 release").await;
    browser.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn open_page_hides_exceptions_once_the_right_ends() {
    let scene = Scene::own().install("excepted", charts::SETTINGS).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(1).await;
    let (here, member) = (scene.namespace.as_str(), Member::new(&scene.control_plane).await);
    make_exception(&scene, here, "one").await;
    member.may(&[RbacRule::parse("get,list,watch guardedreleases.kubemoor.dev")], Some(here)).await;
    member.may(&[RbacRule::parse("list,watch driftallowances.kubemoor.dev")], None).await;
    let page = Page::of(&member.kubeconfig, &[]).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    browser.go(&format!("{}release?namespace={here}&name=shop", page.base)).await;
    browser.wait_for("INC-7").await;

    // Its roles and their bindings have one name.
    let api = "/apis/rbac.authorization.k8s.io/v1";
    let bindings = scene.admin.get(&format!("{api}/namespaces/{here}/rolebindings")).await.done().unwrap();
    let mut names = bindings["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str());
    let name = names.find_map(|name| name.filter(|name| name.starts_with("member-"))).unwrap();
    scene.admin.delete(&format!("{api}/clusterrolebindings/{name}")).await.done().unwrap();
    eventually("the open page shows no exception", SOON, || async {
        let text = browser.text().await;
        if text.contains("INC-7") { Err(text) } else { Ok(()) }
    })
    .await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn end_of_exceptions_is_offered_where_it_is_permitted() {
    let scene = Scene::own().install("ends", charts::TWO).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(2).await;
    let there = scene.control_plane.namespace("elsewhere").await;
    make_exception(&scene, &scene.namespace, "here").await;
    make_exception(&scene, &there, "there").await;
    let reader = Member::new(&scene.control_plane).await;
    let list = ["get,list,watch guardedreleases.kubemoor.dev", "list,watch driftallowances.kubemoor.dev"];
    reader.may(&list.map(RbacRule::parse), None).await;
    let ender = Member::new(&scene.control_plane).await;
    ender.may(&list.map(RbacRule::parse), None).await;
    ender.may(&[RbacRule::parse("delete driftallowances.kubemoor.dev")], Some(&there)).await;
    let alice = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let reader = Page::of(&reader.kubeconfig, &[]).await;
    let ender = Page::of(&ender.kubeconfig, &[]).await;
    let release = format!("release?namespace={}&name=shop", scene.namespace);
    for (who, page, path, expected) in [
        ("alice", &alice, "exceptions", &["here", "there"][..]),
        ("alice", &alice, release.as_str(), &["here"]),
        ("the reader", &reader, "exceptions", &[]),
        ("the reader", &reader, &release, &[]),
        ("the ender", &ender, "exceptions", &["there"]),
        ("the ender", &ender, &release, &[]),
    ] {
        let text = page.text(path).await;
        assert!(text.contains("INC-7"), "{who}, {path}: {text}");
        let ends = text.split("do=revoke").skip(1).filter_map(|rest| rest.split('"').next());
        let ends: BTreeSet<_> = ends.filter_map(|rest| rest.split("name=").nth(1)).collect();
        assert_eq!(ends, expected.iter().copied().collect(), "{who}, {path}");
        assert_eq!(text.contains(">Action<"), !expected.is_empty(), "{who}, {path}");
    }
}
