//! The web page reaches the guard of each cluster through the API server, with the visitor's kubeconfig alone.

use reqwest::StatusCode;

use crate::support::{ControlPlane, HOME, House, Identity, Page, SOON, contexts, eventually};

async fn wait_for(page: &Page, path: &str, words: &str) -> String {
    eventually(&format!("{path} says {words:?}"), SOON, || async {
        let text = page.get(path).await.text;
        if text.contains(words) { Ok(text) } else { Err(text) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn each_cluster_shows_its_ledger_without_its_guard_address() {
    let control_plane = ControlPlane::start();
    let mut house = House::new(&control_plane).await;
    let twins = contexts(Identity::Admin, &[("east", &*control_plane), ("west", &*control_plane)], &[]);
    let page = Page::of(&twins, &[]).await;
    // An export is of one cluster.
    assert_eq!(page.get("ledger.csv").await.status, StatusCode::NOT_FOUND);
    let whole =
        wait_for(&page, &format!("ledger?namespace={HOME}&verdict=deployed"), "badge good\">deployed").await;
    for cluster in ["east", "west"] {
        assert!(whole.contains(&format!("<h2>{cluster}</h2>")), "{cluster} is not in {whole}");
        for words in ["CSV", "JSON"] {
            let file = format!("verdict=deployed&amp;cluster={cluster}\">{words}</a>");
            assert!(whole.contains(&file), "{cluster}: {whole}");
        }
    }
    for cluster in ["east", "west"] {
        let ledger = format!("ledger?cluster={cluster}&namespace={HOME}");
        wait_for(&page, &ledger, "badge good\">deployed").await;
        let csv = page.text(&ledger.replace("ledger?", "ledger.csv?")).await;
        assert!(csv.contains("\"deployed\""), "{csv}");
        let release = page.text(&format!("release?cluster={cluster}&namespace={HOME}&name=kubemoor")).await;
        assert!(release.contains("badge\">deployed"), "{release}");
        let replay = page.text(&format!("replay?cluster={cluster}&since=1h&edits=Deny")).await;
        assert!(replay.contains("<dt>Changes</dt>"), "{replay}");
    }
    let overview = page.text("").await;
    for part in ["Drift of 10 days", "Denied changes of 10 days"] {
        assert_eq!(overview.matches(part).count(), 2, "{part}: {overview}");
    }

    // Another pod takes over: the connection to the one before is no obstacle.
    let ledger = format!("ledger?cluster=east&namespace={HOME}");
    house.pod.kill();
    let broken = page.get(&ledger).await;
    assert_eq!(broken.status, StatusCode::BAD_GATEWAY, "{}", broken.text);
    assert!(broken.text.contains("does not answer"), "{}", broken.text);
    // Of several clusters each fails by itself.
    let all = page.get("ledger").await;
    assert_eq!(all.status, StatusCode::BAD_GATEWAY, "{}", all.text);
    for cluster in ["east", "west"] {
        let failed = format!("<h2>{cluster}</h2><p class=\"trouble\" role=\"alert\">");
        assert!(all.text.contains(&failed), "{cluster}: {}", all.text);
    }
    // What was counted a moment ago is shown for a while.
    let without = wait_for(&page, "", "does not answer").await;
    assert!(without.contains("Fields that drift most"), "{without}");
    let mut next = house.chart.start_one().await;
    house.chart.route(&[&next]).await;
    next.ready().await;
    house.kubelet.lead(&house.name, next.admin_port());
    wait_for(&page, &ledger, "badge good\">deployed").await;
}
