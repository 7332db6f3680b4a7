//! The page of a release names the chart value that probably sets a field, as `kubemoor explain` does.

use serde_json::json;

use crate::support::charts::WORKLOAD;
use crate::support::{Identity, Page, RELEASE, Scene, unguarded};

const PLANTED: &str = "cGxhbnRlZC1ub3c=";

/// What the page says in the row of a field of an object.
fn row<'p>(page: &'p str, object: &str, field: &str) -> &'p str {
    let object = page.split("<article").find(|it| it.contains(object));
    let mut rows = object.unwrap_or_else(|| panic!("{page}")).split("<tr>");
    rows.find(|row| row.contains(&format!("<code>{field}</code>")))
        .unwrap_or_else(|| panic!("{field}: {page}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_page_names_chart_values_that_explain_names_first() {
    let values =
        json!({"values": {"replicas": 2, "tag": "one", "level": "info", "password": "planted-secret"}});
    let shop = Scene::on(unguarded()).options(values).install("named", WORKLOAD).await;
    // The level has another value since: it changes together with its field.
    let changed =
        json!({"values": {"replicas": 2, "tag": "one", "level": "debug", "password": "planted-secret"}});
    shop.upgrade(changed).await.unwrap();
    shop.edit(&shop.deployment("web"), json!({"spec": {"replicas": 5}})).await;
    shop.edit(&shop.config_map("settings"), json!({"data": {"level": "trace"}})).await;
    shop.edit(&shop.core("secrets/access"), json!({"data": {"password": PLANTED}})).await;
    let page = Page::open(&shop.control_plane, Identity::Alice, &[]).await;
    let text = page.text(&format!("release?namespace={}&name={RELEASE}", shop.namespace)).await;
    for (object, kind, field, value) in [
        ("Deployment/web", "deployment/web", "/spec/replicas", "replicas"),
        ("ConfigMap/settings", "configmap/settings", "/data/level", "level"),
    ] {
        let row = row(&text, object, field);
        let explained = shop.moor(&["explain", kind, "--path", field]);
        let line = explained.out.lines().find(|line| line.contains("probable value"));
        let line = line.unwrap_or_else(|| panic!("{explained:?}"));
        let evidence = line.split_once(&format!("{value}: ")).unwrap_or_else(|| panic!("{line}")).1.trim();
        let cell = format!("probably <code>{value}</code><span class=\"quiet below\">{evidence}</span>");
        assert!(!evidence.is_empty() && row.contains(&cell), "{cell} is not in {row}");
    }
    assert!(row(&text, "ConfigMap/settings", "/data/level").contains("from revision 1 to 2"), "{text}");
    // Of a Secret the value's name is shown, and nothing of what it holds.
    assert!(row(&text, "Secret/access", "/data/password").contains("(redacted)"), "{text}");
    assert!(!text.contains("planted") && !text.contains(PLANTED), "{text}");
}
