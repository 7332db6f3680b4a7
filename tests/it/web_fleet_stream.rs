//! Open pages of a shared ledger follow its rows.

use jiff::Timestamp;
use kubemoor_runtime::config::LedgerUrl;

use crate::fleet_tenants::{divide, fill};
use crate::ledger::{FOREVER, Written, begin, row};
use crate::support::{Browser, Look, Page, Postgres, SOON, eventually, wait_for_change};

/// Writes a row of this moment.
fn write(written: &Written, namespace: &str, user: &str) {
    let now = Timestamp::now().duration_since(begin()).as_secs();
    written.ledger.record(row(now, namespace, "web", user, "Deny"));
}

async fn filled() -> (Postgres, String, Written) {
    let server = Postgres::start().await;
    let url = server.database();
    fill(&url).await;
    let written = Written::start(&url.parse::<LedgerUrl>().unwrap(), "prod-eu", FOREVER);
    (server, url, written)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn new_rows_appear_on_open_pages_of_a_shared_ledger() {
    let (_server, url, written) = filled().await;
    let page = Page::of_ledger(&url).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    browser.go(&format!("{}ledger", page.base)).await;
    browser.wait_for("No row matches").await;
    write(&written, "shop", "nadia");
    browser.wait_for("nadia").await;
    // A row that is open stays open.
    browser.evaluate("document.querySelector('main td details').open = true").await;
    write(&written, "bank", "omar");
    browser.wait_for("omar").await;
    let open = "return [...document.querySelectorAll('main td details[open]')].map((it) => it.closest('tr').innerText).join()";
    let open = browser.evaluate(open).await;
    assert!(open.as_str().is_some_and(|text| text.contains("nadia") && !text.contains("omar")), "{open}");
    // A form that is filled in is left alone, and the page follows as soon as it is left.
    let watch = "document.querySelector('input[name=by]').focus(); new EventSource('stream').addEventListener('change', \
                 () => document.querySelector('footer').append('told'))";
    browser.evaluate(watch).await;
    write(&written, "shop", "petra");
    browser.wait_for("told").await;
    browser.evaluate("document.activeElement.blur()").await;
    browser.wait_for("petra").await;
    browser.go(&page.base).await;
    browser.wait_for("Overview").await;
    browser.wait_for("omar").await;
    write(&written, "shop", "quentin");
    browser.wait_for("quentin").await;
    browser.end().await;
    written.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn tenant_is_told_of_new_rows_without_seeing_others() {
    let (server, url, written) = filled().await;
    divide(&server, url.rsplit_once('/').unwrap().1);
    let page = Page::of_ledger(&url.replace("moor@", "team_shop@")).await;
    let mut stream = page.request("stream").send().await.unwrap();
    wait_for_change(&mut stream).await;
    write(&written, "shop", "nadia");
    wait_for_change(&mut stream).await;
    assert!(page.text("ledger").await.contains("nadia"));
    write(&written, "bank", "omar");
    write(&written, "shop", "petra");
    wait_for_change(&mut stream).await;
    let last = || async {
        let text = page.text("ledger").await;
        if text.contains("petra") { Ok(text) } else { Err(text) }
    };
    let text = eventually("the tenant's row is there", SOON, last).await;
    assert!(!text.contains("omar"), "{text}");
    written.close().await;
}
