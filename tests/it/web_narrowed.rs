//! Who may read one namespace alone is told which one, and who may read all is shown all.

use reqwest::StatusCode;
use reqwest::header::CONTENT_DISPOSITION;
use serde_json::json;

use crate::support::{
    ControlPlane, Guard, Identity, Member, Page, PageResponse, RbacRule, SOON, Scene, budget, charts,
    contexts, eventually, wait_for_change, within,
};
use crate::web_revoked::make_exception;

const TEMPLATES: &str = concat!(
    charts::config_map!("settings", "{mode: fast}"),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hidden}\n"
);

/// A release with an object in another namespace.
const ELSEWHERE: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: {{ .Values.there }}}
data: {mode: fast}
";

/// The releases `shop` of two namespaces with drift, and their guard.
async fn two() -> (Scene, Scene, Guard) {
    let near = Scene::own().install("near", TEMPLATES).await;
    let guard = near.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    let far = near.install_beside("far").await;
    for scene in [&near, &far] {
        scene.wait_for_confirmed(2).await;
        scene.data("settings", json!({"mode": "slow"})).await.done().unwrap();
        scene.wait_for_reason("Drifted").await;
    }
    (near, far, guard)
}

/// The name under which a browser saves an answer.
fn file(shown: &PageResponse) -> &str {
    let name = shown.headers[CONTENT_DISPOSITION].to_str().unwrap();
    name.strip_prefix("attachment; filename=\"").unwrap().strip_suffix('"').unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn auditor_who_may_list_and_not_watch_is_shown_all_namespaces() {
    let (near, far, guard) = two().await;
    let flags = guard.asked();
    near.control_plane.apply_deploy(&["namespace.yaml", "people.yaml"]).await;
    let auditor = Member::new(&near.control_plane).await;
    auditor.has_role("kubemoor-auditor").await;
    let page = Page::of(&within(&auditor.kubeconfig, &near.namespace), &flags).await;
    let releases = || async {
        let text = page.text("releases").await;
        if text.contains("2 releases") { Ok(()) } else { Err(text) }
    };
    eventually("both releases are listed", SOON, releases).await;
    for path in ["", "releases", "ledger"] {
        let text = page.text(path).await;
        assert!(!text.contains("Only namespace") && !text.contains("cannot watch"), "{path}: {text}");
        assert!(path.is_empty() || text.contains(&far.namespace), "{path}: {text}");
    }
    for end in ["csv", "json"] {
        let shown = page.get(&format!("ledger.{end}")).await;
        assert_eq!(file(&shown), format!("ledger.{end}"));
        for scene in [&near, &far] {
            assert!(shown.text.contains(&scene.namespace), "{end}: {}", shown.text);
        }
    }
    // What no watch tells is listed again, and all stay listed meanwhile.
    far.order("suspend");
    let paused = || async {
        let text = page.text("releases").await;
        assert!(text.contains("2 releases") && !text.contains("Only namespace"), "{text}");
        if text.contains(">Suspended</span>") { Ok(()) } else { Err(text) }
    };
    // The page lists every half minute.
    eventually("the pause is listed", SOON * 2, paused).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn member_of_one_namespace_is_told_so_on_pages_and_in_exports() {
    let (near, far, guard) = two().await;
    let flags = guard.asked();
    let member = Member::new(&near.control_plane).await;
    let rights = ["get,list,watch guardedreleases.kubemoor.dev", "list,watch driftallowances.kubemoor.dev"];
    member.may(&rights.map(RbacRule::parse), Some(&near.namespace)).await;
    member.may(&[RbacRule::parse("list driftpolicies.kubemoor.dev")], None).await;
    let page = Page::of(&within(&member.kubeconfig, &near.namespace), &flags).await;
    let only = format!("Only namespace {}: you may not list all namespaces.", near.namespace);
    for path in ["", "releases", "exceptions", "policies", "ledger", "replay?since=1h&edits=Deny"] {
        let text = page.text(path).await;
        assert!(text.contains(&only) && !text.contains(&far.namespace), "{path}: {text}");
        if path != "policies" && !path.starts_with("replay") {
            let chosen = page.text(&format!("{path}?namespace={}", near.namespace)).await;
            assert!(!chosen.contains("Only namespace"), "{path}: {chosen}");
        }
    }
    // Who may read no record sees what the guard says, and is offered nothing.
    let release = page.text(&format!("release?namespace={}&name=shop", near.namespace)).await;
    let hidden = "effect of the next upgrade and the chart values that set a field are shown only to users who may read";
    for part in ["no permission", "/data/mode", hidden] {
        assert!(release.contains(part), "{part} is not in {release}");
    }
    for part in ["Repair now", "Make an exception", "probably", "Helm applies"] {
        assert!(!release.contains(part), "{part} is in {release}");
    }
    for end in ["csv", "json"] {
        let shown = page.get(&format!("ledger.{end}")).await;
        assert_eq!(file(&shown), format!("ledger-{}.{end}", near.namespace));
        assert!(
            shown.text.contains(&near.namespace) && !shown.text.contains(&far.namespace),
            "{}",
            shown.text
        );
    }
    let other = page.get(&format!("ledger.csv?namespace={}", far.namespace)).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN, "{}", other.text);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_is_hidden_from_who_may_read_its_records_alone() {
    let scene = Scene::own().install("records", TEMPLATES).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(2).await;
    let here = scene.namespace.as_str();
    let member = Member::new(&scene.control_plane).await;
    let rights = ["get,list secrets", "get,list configmaps", "list deployments.apps"];
    member.may(&rights.map(RbacRule::parse), Some(here)).await;
    let page = Page::of(&within(&member.kubeconfig, here), &[]).await;
    for path in ["", "releases", &format!("releases?namespace={here}")] {
        let text = page.text(path).await;
        assert!(text.contains("cannot list the GuardedReleases"), "{path}: {text}");
        assert!(!text.contains(">shop<") && !text.contains("badge doubt\">Not guarded"), "{path}: {text}");
        assert!(!text.contains("state=NotGuarded"), "{path}: {text}");
    }
    let release = page.get(&format!("release?namespace={here}&name=shop")).await;
    assert_eq!(release.status, StatusCode::FORBIDDEN, "{}", release.text);
    for word in ["no running guard", "Not guarded", "settings", "revision"] {
        assert!(!release.text.contains(word), "{word}: {}", release.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exceptions_of_a_release_are_those_of_its_objects_namespaces() {
    let control_plane = ControlPlane::start_defined();
    let there = control_plane.namespace("there").await;
    let options = json!({"values": {"there": there}});
    let scene = Scene::on(control_plane).options(options).install("placed", ELSEWHERE).await;
    let settings = format!("/api/v1/namespaces/{there}/configmaps/settings");
    scene.edit(&settings, json!({"data": {"mode": "slow"}})).await;
    let release = format!("release?namespace={}&name=shop", scene.namespace);
    let alice = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let shown = alice.text(&release).await;
    assert!(shown.contains("Make an exception"), "{shown}");
    // One is for an object of the same name that the release does not declare.
    make_exception(&scene, &scene.namespace, "namesake").await;
    let (_, stream) = shown.split_once("data-live=\"").unwrap();
    let stream = stream.split('"').next().unwrap().replace("&amp;", "&");
    let mut stream = alice.request(&stream).send().await.unwrap();
    make_exception(&scene, &there, "real").await;
    wait_for_change(&mut stream).await;
    let shown = alice.text(&release).await;
    assert!(shown.contains("name=real") && !shown.contains("name=namesake"), "{shown}");

    // The right counts where the object is.
    let member = Member::new(&scene.control_plane).await;
    let reads = [
        "get,list,watch guardedreleases.kubemoor.dev",
        "list driftallowances.kubemoor.dev",
        "get,list secrets",
        "get,list configmaps",
    ];
    member.may(&reads.map(RbacRule::parse), None).await;
    let writes = RbacRule::parse("create,delete driftallowances.kubemoor.dev");
    member.may(&[writes], Some(&scene.namespace)).await;
    let shown = Page::of(&member.kubeconfig, &[]).await.text(&release).await;
    assert!(shown.contains("INC-7") && shown.contains("/data/mode"), "{shown}");
    assert!(!shown.contains("Make an exception") && !shown.contains("do=revoke"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn cluster_that_never_answers_leaves_the_others_on_every_page() {
    let scene = Scene::own().install("beside", charts::SETTINGS).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(1).await;
    make_exception(&scene, &scene.namespace, "one").await;
    scene.policy_for_all(json!({"edits": "Warn"})).await;
    // The kernel takes connections for it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let near = [("near", &*scene.control_plane)];
    let kubeconfig = contexts(Identity::Alice, &near, &[("silent", &server)]);
    let page = Page::of(&kubeconfig, &["--context", "near", "--context", "silent"]).await;
    let pages = [
        ("", "state=InSync", "did not answer within"),
        ("releases", "1 release<", "silent: still reading"),
        ("exceptions", "INC-7", "did not answer within"),
        ("policies", "policy=all", "did not answer within"),
    ];
    let shown = pages.map(|(path, own, other)| {
        let request = page.request(path).timeout(budget());
        async move { (path, own, other, PageResponse::of(request).await) }
    });
    for (path, own, other, shown) in futures::future::join_all(shown).await {
        assert_eq!(shown.status, StatusCode::OK, "{path}: {}", shown.text);
        assert!(shown.text.contains(own) && shown.text.contains(other), "{path}: {}", shown.text);
    }
}
