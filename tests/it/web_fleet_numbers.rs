//! Each number on the pages of a shared ledger leads to the rows that it counts.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use kubemoor_ledger::fleet::FleetReleaseState;
use kubemoor_runtime::config::LedgerUrl;

use crate::ledger::{FOREVER, Written, begin, row};
use crate::ledger_fleet::{guard, state};
use crate::support::{Browser, Look, Page, Postgres, SOON, eventually};

/// All numbers of the page that are text of their own, and the address that each leads to. Times, code, pictures, what a
/// row itself says, and how long the list is that is shown are no such numbers.
const NUMBERS: &str = r"
const found = [];
const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim();
  const parent = walker.currentNode.parentElement;
  if (!/(^|\s)\d+(\s|$)/.test(text) || /^(Drift|Denied changes) of 10 days$/.test(text)) continue;
  if (parent.closest('time, code, figure, form, .unjudged, .message, .timeline, .state, #count, .below, .facts dd > .badge')) continue;
  const cell = parent.closest('td');
  const head = cell && cell.closest('table').tHead.rows[0].cells[cell.cellIndex].textContent;
  if (['Revision', 'Chart', 'Time', 'Guard'].includes(head)) continue;
  const link = parent.closest('a');
  found.push([text, link ? link.getAttribute('href') : null, (link ?? parent).textContent]);
}
return found;";

/// Two clusters: drift that is reported, one whose repairs are paused, and changes that were denied.
async fn filled(url: &str) {
    let now = Timestamp::now();
    let drifted = |name: &str, reason: &'static str| FleetReleaseState {
        drifted: 2,
        oldest_drift: Some(now - jiff::SignedDuration::from_secs(60)),
        ready: "False",
        reason,
        ..state("shop", name)
    };
    let seconds = now.duration_since(begin()).as_secs();
    for (cluster, user) in [("prod-eu", "eugen"), ("prod-us", "ursula")] {
        let written = Written::start(&url.parse::<LedgerUrl>().unwrap(), cluster, FOREVER);
        let open = || async { written.ledger.fleet().ok_or("it is not") };
        let fleet = eventually("the ledger is open", SOON, open).await;
        fleet.beat(&guard()).await.unwrap();
        let states = [drifted("web", "Drifted"), drifted("api", "Suspended"), state("bank", "web")];
        fleet.write(&states, &[]).await.unwrap();
        for (back, namespace, name, verdict) in [
            (30, "shop", "web", "Reported"),
            (29, "shop", "web", "Reported"),
            (28, "shop", "api", "Reported"),
            (27, "bank", "web", "Restored"),
            (26, "shop", "web", "Deny"),
            (25, "bank", "web", "Deny"),
        ] {
            written.ledger.record(row(seconds - back, namespace, name, user, verdict));
        }
        // Less than ten days ago, and before the first of the days that are counted.
        let midnight = now.to_zoned(TimeZone::UTC).start_of_day().unwrap();
        let first = midnight.checked_sub(9.days()).unwrap().timestamp();
        let early = first.duration_since(begin()).as_secs() - 1;
        written.ledger.record(row(early, "shop", "web", user, "Deny"));
        written.close().await;
    }
}

/// How many rows a page lists.
pub(crate) fn listed(text: &str) -> usize {
    let count = text.split_once("id=\"count\">").map(|(_, rest)| rest.split(' ').next().unwrap());
    match count {
        Some(count) => count.parse().unwrap(),
        None => text.matches("<td><time").count(),
    }
}

/// Numbers by their page, their text and what is around them, with the address that each leads to.
type Numbers = BTreeMap<(&'static str, String, String), String>;

async fn numbers_of_pages(browser: &Browser, base: &str) -> Numbers {
    let mut seen = BTreeMap::new();
    for (path, words) in [
        ("", "Denied changes"),
        ("?cluster=prod-eu", "Denied changes"),
        ("?namespace=bank", "Denied changes"),
        ("releases", "6 releases"),
        ("release?namespace=shop&name=web", "In all clusters"),
        ("release?namespace=shop&name=web&cluster=prod-us", "In all clusters"),
        ("ledger", "ursula"),
        ("replay?since=1h&edits=Deny", "Verdicts that would change"),
        ("ledger?verdict=Reported&verdict=Failed", "Verdict: Failed, Reported"),
    ] {
        browser.go(&format!("{}{path}", base)).await;
        browser.wait_for(words).await;
        let numbers = browser.evaluate(NUMBERS).await;
        for number in numbers.as_array().unwrap() {
            let text = number[0].as_str().unwrap().to_owned();
            if text.split(' ').next() == Some("0") {
                continue;
            }
            let address = number[1].as_str().unwrap_or_else(|| panic!("{path}: {number} leads nowhere"));
            seen.insert((path, text, number[2].to_string()), address.to_owned());
        }
    }
    seen
}

/// The form asks for what the address asked for, all of it.
async fn assert_form_keeps_what_was_asked(browser: &Browser) {
    browser.evaluate("document.querySelector('form.filter').requestSubmit()").await;
    browser.wait_for("Verdict: Failed, Reported").await;
    let asked = "return new URLSearchParams(location.search).getAll('verdict')";
    eventually("the form was sent", SOON, || async {
        let (asked, address) =
            (browser.evaluate(asked).await, browser.evaluate("return location.search").await);
        let is_sent = address.as_str().is_some_and(|it| it.contains("since="));
        if is_sent && asked == serde_json::json!(["Failed", "Reported"]) {
            Ok(())
        } else {
            Err(address.to_string())
        }
    })
    .await;
}

async fn assert_leads_to_its_rows(page: &Page, seen: &Numbers) {
    for ((path, text, whole), address) in seen {
        if address.starts_with('#') {
            continue;
        }
        let shown = page.text(address).await;
        let number = text.split_whitespace().find_map(|word| word.parse::<usize>().ok()).unwrap();
        // A release's page has no list of objects.
        let is_list = !address.starts_with("release?");
        let found = listed(&shown);
        assert!(!is_list || found == number, "{path}: {whole}: {address} has {found}");
        assert!(is_list || !shown.contains("No row matches"), "{path}: {whole}: {address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn each_number_of_a_shared_ledger_leads_to_its_rows() {
    let server = Postgres::start().await;
    let url = server.database();
    // Somebody makes the tables.
    filled(&url).await;
    let page = Page::of_ledger(&url).await;
    let browser = Browser::start(Look::ALL[0]).await;
    browser.go(&page.address).await;
    browser.wait_for("Overview").await;
    let seen = numbers_of_pages(&browser, &page.base).await;
    assert_form_keeps_what_was_asked(&browser).await;
    browser.end().await;
    let of = |path: &str, address: &str| {
        seen.iter().any(|((page, ..), link)| *page == path && link.contains(address))
    };
    for (path, address) in [
        ("", "state=Drifted"),
        ("", "state=Suspended"),
        ("", "verdict=Reported"),
        ("", "verdict=Deny"),
        ("", "by=ursula"),
        ("releases", "release?"),
        ("release?namespace=shop&name=web", "verdict=Reported"),
    ] {
        assert!(of(path, address), "{path} has no number that leads to {address}: {seen:#?}");
    }
    assert_leads_to_its_rows(&page, &seen).await;
}
