//! Edits that the guard answered without reading them are in its ledger as well.

use serde_json::json;

use crate::support::{Guard, SOON, data_review, eventually};

/// Larger than what is read of a review.
const TOO_LARGE: usize = 33 << 20;

/// A review of Alice's, so large.
fn review(name: &str, padding: usize) -> String {
    let (old, new) = (json!({"image": "a"}), json!({"image": "a", "more": "x".repeat(padding)}));
    data_review(("shop", "web"), name, &old, &new)
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_edit_is_recorded_with_its_user() {
    for verdict in ["Deny", "Warn"] {
        let guard = Guard::start_embedded(&[&format!("--edits={verdict}")]).await;
        let rows = || guard.rows(&["-A", "--verdict", verdict]);
        let reply = guard.judge(review("settings", TOO_LARGE)).await;
        assert_eq!(reply.passes(), verdict == "Warn", "{reply:?}");
        // What no release declares is as large as it likes.
        assert!(guard.judge(review("other", TOO_LARGE)).await.passes());
        assert!(guard.judge(review("settings", 10)).await.passes());
        let row = eventually("the row is kept", SOON, || async { rows().pop() }).await;
        let told: Vec<_> = ["reason", "user", "groups", "operation", "release", "namespace", "fields", "uid"]
            .iter()
            .map(|key| row[key].clone())
            .collect();
        let expected = json!(["too-large", "alice", ["people"], "UPDATE", "web", "shop", [], "posted"]);
        assert_eq!(json!(told), expected, "{row}");
        assert_eq!(row["object"]["name"], "settings", "{row}");
        assert_eq!(rows().len(), 1);
    }
}
