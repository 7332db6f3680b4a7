//! The web page in a browser that runs no script, and in those of two users with different rights.

use serde_json::json;

use crate::support::{
    Browser, ClusterPage, ENTER, Guard, Identity, Look, Member, PAGE_HOST, Page, RbacRule, Scene, charts,
};

/// The release `shop` with drift that its guard reports.
async fn drifted() -> (Scene, Guard) {
    let scene = Scene::own().install("browsers", charts::TWO).await;
    scene.control_plane.apply_deploy(&["enforce/arbiter.yaml", "enforce/repair.yaml"]).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(2).await;
    scene.data("settings", json!({"level": "debug"})).await.done().unwrap();
    scene.wait_for_reason("Drifted").await;
    (scene, guard)
}

async fn follow(browser: &Browser, link: &str, words: &str) {
    browser.tab_to(link).await;
    browser.press(ENTER).await;
    browser.wait_for(words).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn pages_and_actions_work_without_any_script() {
    let (scene, guard) = drifted().await;
    let flags = guard.asked();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.order("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    browser.go(&page.address).await;
    browser.wait_for("Fields that drift most").await;
    follow(&browser, "Releases", "1 release").await;
    follow(&browser, "shop", "/data/level").await;
    follow(&browser, "Pause repairs", "The guard stops repairing").await;
    // The button that confirms is the first one after the way there.
    follow(&browser, "Pause repairs", "Nothing in it is repaired").await;
    scene.wait_for_reason("Suspended").await;
    follow(&browser, "Back", "Resume repairs").await;
    follow(&browser, "Resume repairs", "as its policies say").await;
    follow(&browser, "Resume repairs", "Repairs go on").await;
    scene.wait_for_reason("Drifted").await;
    follow(&browser, "Exceptions", "There are no exceptions").await;
    follow(&browser, "Ledger", "ConfigMap/settings").await;
    follow(&browser, "Policies", "There are no policies").await;
    follow(&browser, "Explain", "Or name an object").await;
    follow(&browser, "Replay", "By other policies").await;
    // What only the script can do is not offered.
    assert!(!browser.text().await.contains("or a file of them"));
    follow(&browser, "Replay by the cluster's policies", "Verdicts that would change").await;
    browser.end().await;
}

/// A browser in which this user has logged in and sees the release.
async fn logged_in(page: &ClusterPage, member: &Member, namespace: &str) -> Browser {
    let browser = Browser::start(Look::ALL[0]).await;
    let address = page.base.replace(PAGE_HOST, "localhost");
    browser.go(&address).await;
    browser.wait_for("Bearer token of the cluster").await;
    browser.press(&member.token()).await;
    browser.press(ENTER).await;
    browser.wait_for("Log out").await;
    browser.go(&format!("{address}release?namespace={namespace}&name=shop")).await;
    browser.wait_for("Drifted").await;
    browser
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn each_user_is_offered_what_their_rights_allow() {
    let (scene, _guard) = drifted().await;
    let here = scene.namespace.as_str();
    let (viewer, steward) =
        (Member::new(&scene.control_plane).await, Member::new(&scene.control_plane).await);
    let see = ["get,list,watch guardedreleases.kubemoor.dev", "get,list secrets", "get,list configmaps"];
    let repair = ["patch guardedreleases.kubemoor.dev", "update,patch configmaps"];
    viewer.may(&see.map(RbacRule::parse), Some(here)).await;
    steward
        .may(
            &[&see[..], &repair[..]].concat().into_iter().map(RbacRule::parse).collect::<Vec<_>>(),
            Some(here),
        )
        .await;
    let page = ClusterPage::start(&scene.control_plane, &["--host=localhost"]).await;
    let (sees, repairs) = (logged_in(&page, &viewer, here).await, logged_in(&page, &steward, here).await);
    let text = sees.text().await;
    assert!(text.contains("/data/level"), "{text}");
    for button in ["Repair now", "Pause repairs", "Make an exception"] {
        assert!(!text.contains(button), "{button} is in {text}");
    }
    let text = repairs.text().await;
    assert!(text.contains("Pause repairs") && !text.contains("Make an exception"), "{text}");
    follow(&repairs, "Repair now", "becomes").await;
    repairs.press(ENTER).await;
    scene.wait_for_value(&scene.config_map("settings"), "/data/level", &json!("info")).await;
    repairs.wait_for("Back").await;
    // Whoever only looks sees it as well.
    sees.wait_for("In sync").await;
    sees.end().await;
    repairs.end().await;
}
