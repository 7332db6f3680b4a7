//! Each action of the web page, given in a real browser by keyboard alone.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{Browser, ENTER, Identity, Look, Page, Scene, charts, form_token};

/// Goes to a page that asks, and confirms it by the button that has the focus.
async fn confirm(browser: &Browser, asks: &str, done: &str) {
    browser.wait_for(asks).await;
    browser.press(ENTER).await;
    browser.wait_for(done).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exceptions_are_ordered_and_ended_by_keyboard_alone() {
    let template = charts::config_map!("settings", "{level: info}");
    let scene = Scene::own().install("actions", template).await;
    let _guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(1).await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    let wish =
        format!("namespace={}&object=configmap/settings&path=/data/level&reason=INC-8", scene.namespace);
    browser.go(&format!("{}allow?{wish}", page.base)).await;
    browser.wait_for("Make an exception").await;
    browser.tab_to("Continue").await;
    browser.press(ENTER).await;
    confirm(&browser, "This object is created", "may change until").await;
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn exception_that_took_the_name_of_another_is_not_ended() {
    let scene = Scene::own().install("ended", charts::SETTINGS).await;
    let allowances = scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let make = async |path: &str| -> String {
        let exception = json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": "one"},
            "spec": {
                "object": {"kind": "ConfigMap", "name": "settings"}, "paths": [path],
                "until": "2099-01-01T00:00:00Z",
            },
        });
        let made: Value = scene.admin.post(&allowances, &exception).await.done().unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let first = make("/data/level").await;
    let page = Page::open(&scene.control_plane, Identity::Alice, &[]).await;
    let list = page.text("exceptions").await;
    let end = list.split('"').find(|part| part.starts_with("act?do=revoke")).unwrap().replace("&amp;", "&");
    let asked = page.text(&end).await;
    assert!(asked.contains(&format!("name=\"uid\" value=\"{first}\"")), "{asked}");
    let token = form_token(&asked);

    scene.admin.delete(&format!("{allowances}/one")).await.done().unwrap();
    let second = make("/data/mode").await;
    let form =
        [("token", token.as_str()), ("do", "revoke"), ("namespace", &scene.namespace), ("name", "one")];
    let ended = page.post("act", &[&form[..], &[("uid", first.as_str())]].concat()).await;
    assert_eq!(ended.status, StatusCode::NOT_FOUND, "{}", ended.text);
    assert!(ended.text.contains("another exception is now named one"), "{}", ended.text);
    let asked = page.get(&end).await;
    assert!(asked.text.contains("another exception is now named one"), "{}", asked.text);
    let unnamed = page.post("act", &form).await;
    assert!(unnamed.text.contains("nothing was ended"), "{}", unnamed.text);
    let there = scene.get(&format!("{allowances}/one")).await;
    assert_eq!(there["metadata"]["uid"].as_str(), Some(second.as_str()));
    // The page that asks without a list ends what it shows.
    let shown = end.split('&').filter(|part| !part.starts_with("uid=")).collect::<Vec<_>>().join("&");
    assert!(page.confirm(&shown).await.text.contains("has ended"));
    assert_eq!(scene.get(&allowances).await["items"], json!([]));
    let gone = page.post("act", &[&form[..], &[("uid", second.as_str())]].concat()).await;
    assert!(gone.text.contains("there is no exception one"), "{}", gone.text);
}
