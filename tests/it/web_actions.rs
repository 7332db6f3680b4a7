//! Each action of the web page, given in a real browser by keyboard alone.

use serde_json::json;

use crate::support::{Browser, ENTER, Guard, Identity, Look, Page, Scene, charts};

/// Goes to a page that asks, and confirms it by the button that has the focus.
async fn confirm(browser: &Browser, asks: &str, done: &str) {
    browser.wait_for(asks).await;
    browser.press(ENTER).await;
    browser.wait_for(done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_and_exceptions_are_ordered_by_keyboard_alone() {
    let template = charts::config_map!("settings", "{level: info}");
    let scene = Scene::own().install("actions", template).await;
    let _guard: Guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(1).await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("In sync").await;

    browser.go(&format!("{}release?namespace={}&name=shop", page.base, scene.namespace)).await;
    browser.wait_for("Pause repairs").await;
    browser.tab_to("Pause repairs").await;
    browser.press(ENTER).await;
    confirm(&browser, "The guard stops repairing", "Nothing of it is repaired").await;
    scene.wait_for_reason("Suspended").await;
    browser.tab_to("Back").await;
    browser.press(ENTER).await;
    browser.wait_for("Resume repairs").await;
    browser.tab_to("Resume repairs").await;
    browser.press(ENTER).await;
    confirm(&browser, "as its policies say", "Repairs go on").await;
    scene.wait_for_reason("InSync").await;

    let wish =
        format!("namespace={}&object=configmap/settings&path=/data/level&reason=INC-8", scene.namespace);
    browser.go(&format!("{}allow?{wish}", page.base)).await;
    browser.wait_for("Make an exception").await;
    browser.tab_to("Continue").await;
    browser.press(ENTER).await;
    confirm(&browser, "This object is made", "may change until").await;
    browser.tab_to("Back").await;
    browser.press(ENTER).await;
    browser.wait_for("INC-8").await;
    let allowances = scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let name = scene.get(&allowances).await["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    // Only a reader that speaks says the name.
    browser.tab_to(&format!("End the exception {name}")).await;
    browser.press(ENTER).await;
    confirm(&browser, "ends now", "has ended").await;
    assert_eq!(scene.get(&allowances).await["items"], json!([]));
    browser.end().await;
}
