//! Pages that are too large to be held.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_asked_for_again_with_fewer_objects() {
    let large = |expects| Exchange { expects, status: 200, body: "x".repeat(5 << 20) };
    check(
        vec![
            list("limit=250", &["a"], "10", Some("more")),
            large("limit=500&continue=more"),
            list("limit=250&continue=more", &["b"], "10", Some("last")),
            large("limit=500&continue=last"),
            large("limit=250&continue=last"),
            list("limit=125&continue=last", &["c"], "10", None),
        ],
        &["relisting", "listed a", "listed b", "listed c", "synced"],
    )
    .await;
}
