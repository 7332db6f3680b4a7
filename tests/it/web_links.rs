//! Numbers of the web page lead to the rows that they count, for every visitor who sees the numbers.

use serde_json::json;

use crate::support::{Guard, Member, Page, RbacRule, SOON, Scene, charts, eventually, within};
use crate::web_fleet_numbers::listed;

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---",
    charts::config_map!("settings", "{mode: fast, level: info}"),
);

/// Drift that stays, a change that was denied, and an exception that ends soon.
async fn troubled() -> (Scene, Guard) {
    let scene = Scene::own().install("links", TEMPLATES).await;
    let guard = scene.start_guard(&["--register", "--edits", "Warn", "--drift", "Report"]).await;
    scene.wait_for_confirmed(2).await;
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 5}})).await;
    scene.wait_for_reason("Drifted").await;
    assert_eq!(scene.moor(&["allow", "configmap/settings", "--path=/data/mode", "--for=2h"]).code, 0);
    scene.policy("strict", json!({"edits": "Deny"})).await;
    let level = json!({"data": {"level": "debug"}});
    scene.alice.merge(&scene.config_map("settings"), &level).await.refused("shop").unwrap();
    (scene, guard)
}

/// The addresses that a page leads to.
fn addresses(page: &str) -> Vec<String> {
    let all =
        page.split(" href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    all.filter(|it| !it.starts_with('#') && !it.starts_with("data:") && it != "style.css").collect()
}

/// The numbers of a page that lead to lists, each with its address.
fn numbers(page: &str) -> Vec<(usize, String)> {
    let number = |link: &str| {
        let (_, address) = link.split_once("href=\"")?;
        let (address, content) = address.split_once('"')?;
        let texts = content.split('<').filter_map(|part| Some(part.split_once('>')?.1));
        let text = texts.collect::<Vec<_>>().join(" ");
        let is_list = ["releases?", "ledger?"].iter().any(|page| address.starts_with(page));
        let is_meant = is_list || text.contains("open exception");
        let number = text.split_whitespace().find_map(|word| word.parse().ok()).filter(|_| is_meant)?;
        Some((number, address.replace("&amp;", "&")))
    };
    page.split("<a ").skip(1).filter_map(|rest| number(rest.split_once("</a>")?.0)).collect()
}

/// Follows every link of an overview.
async fn assert_links_lead_to_rows(page: &Page, text: &str) {
    let (addresses, numbers) = (addresses(text), numbers(text));
    // Releases in all and by state, the field, the exception, and the ledger's by day and user.
    assert!(numbers.len() >= 7, "{numbers:#?}");
    for (number, address) in numbers {
        let shown = page.text(&address).await;
        let found = match address.starts_with("exceptions") {
            true => shown.matches("<tr><th scope=\"row\">").count(),
            false => listed(&shown),
        };
        assert_eq!(found, number, "{address}: {shown}");
    }
    for place in ["state=", "field=", "verdict=Deny", "verdict=Reported", "by=", "exceptions?"] {
        assert!(addresses.iter().any(|it| it.contains(place)), "{place}: {addresses:#?}");
    }
    for address in addresses {
        let shown = page.get(&address).await;
        assert_eq!(shown.status.as_u16(), 200, "{address}: {}", shown.text);
        if address.contains('?') {
            for nothing in
                ["No row matches", "No release matches", "There are no exceptions", "class=\"trouble\""]
            {
                assert!(!shown.text.contains(nothing), "{address}: {nothing}: {}", shown.text);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn overview_leads_visitor_of_one_namespace_to_its_rows() {
    let (scene, guard) = troubled().await;
    let flags = guard.asked();
    let member = Member::new(&scene.control_plane).await;
    let rights = ["get,list,watch guardedreleases.kubemoor.dev", "list driftallowances.kubemoor.dev"];
    member.may(&rights.map(RbacRule::parse), Some(&scene.namespace)).await;
    let page = Page::of(&within(&member.kubeconfig, &scene.namespace), &flags).await;
    let elsewhere = Page::of(&member.kubeconfig, &flags).await;
    let chosen = format!("?namespace={}", scene.namespace);
    for (page, address) in [(&page, ""), (&elsewhere, chosen.as_str())] {
        let overview = eventually("the overview has everything", SOON, || async {
            let text = page.text(address).await;
            let parts = [
                "Users whose changes were denied",
                " left</a>",
                "Deployment /spec/replicas",
                "1 open exception",
            ];
            if parts.iter().all(|part| text.contains(part)) { Ok(text) } else { Err(text) }
        })
        .await;
        // Whoever chooses a namespace chooses it anew on other pages.
        let whole =
            if address.is_empty() { overview.as_str() } else { overview.split_once("<main").unwrap().1 };
        assert_links_lead_to_rows(page, whole).await;
    }
    // Drift whose repairs are paused is drift in the list, and so in the number that leads there.
    scene.order("suspend");
    eventually("both numbers are there", SOON, || async {
        let text = page.text("").await;
        let numbers = ["state=Suspended\"><strong>1</strong>", "state=Drifted\"><strong>1</strong>"];
        if numbers.iter().all(|number| text.contains(number)) { Ok(()) } else { Err(text) }
    })
    .await;
    assert!(page.text("releases?state=Drifted").await.contains("1 release<"));
}
