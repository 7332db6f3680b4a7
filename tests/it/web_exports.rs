//! Files of the ledger: what a spreadsheet makes of them, and that they hold all that a row keeps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Identity, Page, SOON, Scene, charts, eventually};

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: planted-declared-5ce1}\n",
);

const PLANTED: [&str; 2] = ["planted-declared-5ce1", "planted-edited-b07a"];

/// What spreadsheets would run.
const USER: &str = "=cmd|' /C calc'!A0";
const GROUP: &str = "@SUM(1+1)*cmd";

#[tokio::test(flavor = "multi_thread")]
async fn exports_hold_whole_rows_and_nothing_that_a_spreadsheet_runs() {
    let scene = Scene::shared().install("exports", TEMPLATES).await;
    scene.wait_until_guarded(&scene.deployment("web")).await;
    scene.kubectl_as(USER, GROUP, &["scale", "deployment/web", "--replicas=7"]).unwrap_err();
    let secret = json!({"data": {"password": STANDARD.encode(PLANTED[1])}});
    scene.alice.merge(&scene.core("secrets/key"), &secret).await.refused("shop").unwrap();
    let flags = scene.guard().asked();
    let page = Page::open(&scene.control_plane, Identity::Alice, &flags).await;
    let rows = format!("namespace={}&since=1h", scene.namespace);
    let csv = eventually("both rows are exported", SOON, || async {
        let text = page.text(&format!("ledger.csv?{rows}")).await;
        if text.contains("calc") && text.contains("\"Secret\"") { Ok(text) } else { Err(text) }
    })
    .await;
    assert!(csv.contains(&format!("\"'{USER}\"")) && csv.contains(&format!("\"'{GROUP}")), "{csv}");
    for cell in csv.lines().flat_map(|line| line.split("\",\"")) {
        assert!(!cell.trim_matches('"').starts_with(['=', '+', '-', '@']), "{cell}: {csv}");
    }

    let whole = page.get(&format!("ledger.json?{rows}")).await;
    let name = format!("attachment; filename=\"ledger-{}.json\"", scene.namespace);
    assert_eq!(whole.headers["content-disposition"], name.as_str());
    assert!(!whole.headers.contains_key("kubemoor-missing-rows"));
    let exported: Vec<Value> = whole.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts = |row: &Value| -> Option<Value> { serde_json::from_str(row["facts"].as_str()?).ok() };
    let of = |kind: &str| {
        let is_meant = |row: &&Value| row["verdict"] == "Deny" && row["object"]["kind"] == kind;
        exported.iter().find(is_meant).unwrap_or_else(|| panic!("{kind}: {}", whole.text))
    };
    let scaled = of("Deployment");
    assert_eq!(scaled["user"], USER, "JSON is no spreadsheet");
    let change = &facts(scaled).unwrap()["edit"]["claims"][0]["alternatives"][0]["changes"][0];
    assert_eq!((&change["path"], &change["new"]), (&json!("/spec/replicas"), &json!(7)));
    let secret = &facts(of("Secret")).unwrap()["edit"]["claims"][0]["alternatives"][0]["changes"][0];
    assert_eq!((&secret["path"], &secret["new"]), (&json!("/data/password"), &Value::Null));
    for row in exported.iter().filter(|row| row["kind"] != "verdict") {
        assert!(row.get("facts").is_none(), "{row}");
    }

    // The page shows the same below its row.
    let ledger = page.text(&format!("ledger?{rows}&verdict=Deny")).await;
    assert_eq!(ledger.matches("By what a replay judges it").count(), 2, "{ledger}");
    assert!(ledger.contains("&quot;path&quot;:&quot;/spec/replicas&quot;"), "{ledger}");
    for text in [&csv, &whole.text, &ledger] {
        for word in PLANTED {
            assert!(!text.contains(word) && !text.contains(&STANDARD.encode(word)), "{word} is in {text}");
        }
    }
}
