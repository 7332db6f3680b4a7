//! Edits that the guard answered without reading them are in its ledger as well.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Guard, Review, SOON, eventually, items};

/// Larger than what is read of a review.
const TOO_LARGE: usize = 33 << 20;

/// The rows of the guard's ledger with this verdict, the newest last.
pub(crate) fn rows(guard: &Guard, verdict: &str) -> Vec<Value> {
    let ledger = format!("sqlite:{}", guard.ledger().display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
    let output =
        command.args(["audit", "--ledger", &ledger, "-A", "--verdict", verdict, "-o", "json"]).output();
    items(&String::from_utf8(output.unwrap().stdout).unwrap())
}

/// A guard of the release `shop/web` in a directory.
async fn guard(edits: &str) -> Guard {
    Guard::start_embedded(&[&format!("--edits={edits}")]).await
}

/// A review of Alice's, so large.
fn review(name: &str, padding: usize) -> String {
    let object = |more: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{name}", "namespace": "shop"}},
            "data": {{"image": "a", "more": "{more}"}}}}"#
        )
    };
    let (old, new) = (object(""), object(&"x".repeat(padding)));
    let review = Review {
        group: "",
        kind: "ConfigMap",
        resource: "configmaps",
        namespace: "shop",
        name,
        old: &old,
        new: &new,
    };
    review.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_edit_is_recorded_with_its_user() {
    for verdict in ["Deny", "Warn"] {
        let guard = guard(verdict).await;
        let reply = guard.judge(review("settings", TOO_LARGE)).await;
        assert_eq!(reply.passes(), verdict == "Warn", "{reply:?}");
        // What no release declares is as large as it likes.
        assert!(guard.judge(review("other", TOO_LARGE)).await.passes());
        assert!(guard.judge(review("settings", 10)).await.passes());
        let row = eventually("the row is kept", SOON, || async { rows(&guard, verdict).pop() }).await;
        let told: Vec<_> = ["reason", "user", "groups", "operation", "release", "namespace", "fields", "uid"]
            .iter()
            .map(|key| row[key].clone())
            .collect();
        let expected = json!(["too-large", "alice", ["people"], "UPDATE", "web", "shop", [], "posted"]);
        assert_eq!(json!(told), expected, "{row}");
        assert_eq!(row["object"]["name"], "settings", "{row}");
        assert_eq!(rows(&guard, verdict).len(), 1);
    }
}
