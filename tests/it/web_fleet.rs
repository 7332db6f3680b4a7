//! The web page of a PostgreSQL that the guards of many clusters share: no cluster and no kubeconfig is asked.

use jiff::Timestamp;
use kubemoor_ledger::fleet::FleetReleaseState;
use kubemoor_ledger::store::ClusterFleet;
use kubemoor_runtime::config::LedgerUrl;
use reqwest::StatusCode;
use serde_json::json;

use crate::fleet_tenants::{divide, fill};
use crate::ledger::{FOREVER, Written, begin, row};
use crate::ledger_fleet::{guard, state};
use crate::support::{Browser, Look, Page, Postgres, SOON, eventually, folder, run, wait_for_change};

/// A shared ledger: `web` drifts in `prod-us`, where it has another revision and other values.
struct FleetLedger {
    server: Postgres,
    url: String,
    us: ClusterFleet,
    open: Vec<Written>,
}

impl FleetLedger {
    async fn start() -> Self {
        let server = Postgres::start().await;
        let url = server.database();
        let (us, us_open) = open(&url, "prod-us").await;
        let (eu, eu_open) = open(&url, "prod-eu").await;
        us.write(&[drifted(), state("bank", "web")], &[]).await.unwrap();
        eu.write(&[state("shop", "web"), state("shop", "api")], &[]).await.unwrap();
        us_open.ledger.record(row(1, "shop", "web", "ursula", "Reported"));
        // Of late, and close to now.
        let now = Timestamp::now().duration_since(begin()).as_secs() - 5;
        for (written, user) in [(&us_open, "ursula"), (&eu_open, "eugen")] {
            written.ledger.record(row(now, "shop", "web", user, "Deny"));
        }
        Self { server, url, us, open: vec![us_open, eu_open] }
    }

    async fn page(&self) -> Page {
        let page = Page::of_ledger(&self.url).await;
        eventually("both rows are written", SOON, || async {
            let text = page.text("ledger").await;
            if text.contains("ursula") && text.contains("eugen") { Ok(()) } else { Err(text) }
        })
        .await;
        page
    }

    fn database(&self) -> &str {
        self.url.rsplit_once('/').unwrap().1
    }

    async fn end(self) {
        for written in self.open {
            written.close().await;
        }
    }
}

async fn open(url: &str, cluster: &str) -> (ClusterFleet, Written) {
    let url: LedgerUrl = url.parse().unwrap();
    let written = Written::start(&url, cluster, FOREVER);
    let fleet =
        eventually("the ledger is open", SOON, || async { written.ledger.fleet().ok_or("it is not") }).await;
    fleet.beat(&guard()).await.unwrap();
    (fleet, written)
}

fn drifted() -> FleetReleaseState {
    FleetReleaseState {
        revision: 9,
        drifted: 2,
        oldest_drift: Some("2026-11-20T00:00:00Z".parse().unwrap()),
        ready: "False",
        reason: "Drifted",
        values: Some([8; 32]),
        message: "2 of 5 objects <drifted>".to_owned(),
        ..state("shop", "web")
    }
}

fn assert_holds(text: &str, parts: &[&str], others: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    for other in others {
        assert!(!text.contains(other), "{other} is in {text}");
    }
}

/// The addresses that a page leads to.
fn addresses(page: &str) -> Vec<String> {
    let all =
        page.split(" href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    all.filter(|it| !it.starts_with('#') && !it.starts_with("data:")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_clusters_of_a_ledger_are_shown_without_any_kubeconfig() {
    let shared = FleetLedger::start().await;
    let page = shared.page().await;
    let overview = page.text("").await;
    assert_holds(
        &overview,
        &[
            "prod-eu",
            "prod-us",
            "1.2.3",
            "Certificate ends",
            "2027-01-01",
            "In sync 2",
            "state=Drifted",
            "eugen",
            "ursula",
            "Denied changes of 10 days",
        ],
        &["href=\"policies", "href=\"exceptions", "href=\"explain", "Stale since"],
    );
    let mut seen = addresses(&overview);
    for address in ["releases", "release?namespace=shop&name=web", "ledger", "replay?since=1h&edits=Deny"] {
        seen.extend(addresses(&page.text(address).await));
    }
    seen.sort();
    seen.dedup();
    for address in seen {
        let shown = page.get(&address).await;
        assert_eq!(shown.status, StatusCode::OK, "{address}: {}", shown.text);
        let is_empty = shown.text.contains("No row matches") || shown.text.contains("No release matches");
        assert!(!is_empty || address.contains("replay") || address.contains("pending"), "{address}");
    }
    for absent in ["policies", "exceptions", "explain", "allow", "act?do=reconcile&namespace=shop&name=web"] {
        assert_eq!(page.get(absent).await.status, StatusCode::NOT_FOUND, "{absent}");
    }

    // One cluster, and nothing of the other.
    for (path, says) in [
        ("?cluster=prod-eu", "eugen"),
        ("ledger?cluster=prod-eu", "eugen"),
        ("ledger.csv?cluster=prod-eu", "eugen"),
        ("ledger.json?cluster=prod-eu", "eugen"),
        ("releases?cluster=prod-eu", "2 releases"),
        ("replay?cluster=prod-eu&since=1h", "<dt>Changes</dt>"),
    ] {
        assert_holds(&page.text(path).await, &[says], &["prod-us", "ursula"]);
    }
    let release = page.text("release?namespace=shop&name=web&cluster=prod-us").await;
    assert_holds(
        &release,
        &["2 of 5 objects &lt;drifted&gt;", "revision, values, drift", "by ursula", "cluster=prod%2Deu"],
        &["by eugen", "Repair now", "Pause repairs", "<drifted>"],
    );
    let absent = page.get("release?namespace=shop&name=none").await;
    assert_eq!(absent.status, StatusCode::NOT_FOUND);
    shared.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn database_finds_sorts_and_counts_releases_of_all_clusters() {
    let shared = FleetLedger::start().await;
    let page = shared.page().await;
    for (query, count, names) in [
        ("", "4 releases", &[][..]),
        ("state=Drifted", "1 release<", &["prod-us"]),
        ("state=InSync", "3 releases", &[]),
        ("state=Stale", "No release matches", &[]),
        ("q=API+shop", "1 release<", &["api"]),
        ("q=%25", "No release matches", &[]),
        ("q=web-1.2.3&namespace=bank", "1 release<", &["bank"]),
        ("cluster=prod-us&namespace=shop", "1 release<", &["Drifted"]),
    ] {
        let text = page.text(&format!("releases?{query}")).await;
        assert!(text.contains(count), "{query}: {text}");
        for name in names {
            assert!(text.contains(name), "{query}: {name}: {text}");
        }
    }
    let order = |text: &str| {
        let rows = text.split("<tbody>").nth(1).unwrap().split("<tr>").skip(1);
        rows.map(|row| row.matches("prod-us").count() > 0).collect::<Vec<_>>()
    };
    for (sort, first) in
        [("state", true), ("-state", false), ("drifted", true), ("revision", true), ("cluster", false)]
    {
        let text = page.text(&format!("releases?sort={sort}")).await;
        assert_eq!(order(&text)[0], first, "{sort}: {text}");
    }
    // However many there are, a page has a hundred.
    let many = "INSERT INTO releases (cluster, namespace, name, revision, declared, drifted, since, ready, reason, \
        status, edits, drift, message) SELECT clusters.id, 'many', 'release-' || number, 1, 1, 0, now(), 'True', \
        'InSync', 'deployed', 'Deny', 'Report', 'all 1 objects match' \
        FROM clusters, generate_series(1, 12000) AS number WHERE clusters.name = 'prod-eu'";
    shared.server.psql(shared.database(), many).unwrap();
    for path in ["releases", "releases?q=release-11999", "releases?sort=-name&page=100", ""] {
        let shown = page.get(path).await;
        assert_eq!(shown.status, StatusCode::OK, "{path}");
        assert!(shown.text.len() < 300_000, "{path}: {} bytes", shown.text.len());
    }
    assert!(page.text("releases").await.contains("more than 10000 releases"));
    assert!(page.text("releases?q=release-11999").await.contains("1 release<"));
    shared.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn open_page_follows_the_ledger_and_names_silent_clusters() {
    let shared = FleetLedger::start().await;
    let page = shared.page().await;
    let mut stream = page.request("stream").send().await.unwrap();
    // What it may have missed comes first.
    wait_for_change(&mut stream).await;
    let silent = "UPDATE guards SET heard = now() - interval '5 minutes' FROM clusters \
        WHERE clusters.id = guards.cluster AND clusters.name = 'prod-us'";
    shared.server.psql(shared.database(), silent).unwrap();
    wait_for_change(&mut stream).await;
    assert_holds(&page.text("").await, &["Stale since 20"], &[]);
    assert_holds(&page.text("releases?state=Stale").await, &["2 releases", "stale since 20"], &["prod-eu"]);
    shared.us.write(&[FleetReleaseState { drifted: 0, reason: "InSync", ..drifted() }], &[]).await.unwrap();
    wait_for_change(&mut stream).await;
    assert!(page.text("releases?state=Drifted").await.contains("No release matches"));
    shared.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_a_tenant_its_own_rows_alone() {
    let server = Postgres::start().await;
    let url = server.database();
    fill(&url).await;
    divide(&server, url.rsplit_once('/').unwrap().1);
    let page = Page::of_ledger(&url.replace("moor@", "team_shop@")).await;
    let since = "since=2020-01-01T00:00:00Z";
    for path in [
        "",
        "releases",
        "release?namespace=shop&name=web",
        &format!("ledger?{since}"),
        &format!("ledger.csv?{since}"),
        &format!("ledger.json?{since}"),
        &format!("replay?{since}"),
    ] {
        let text = page.text(path).await;
        assert_holds(&text, &[], &["prod-us", "bank"]);
        assert!(text.contains("shop") || path.contains("replay") || path.is_empty(), "{path}: {text}");
    }
    assert_holds(&page.text("").await, &["prod-eu"], &[]);
    for path in ["release?namespace=bank&name=web", "release?namespace=shop&name=web&cluster=prod-us"] {
        let hidden = page.get(path).await;
        assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{path}: {}", hidden.text);
    }
    assert!(page.text("ledger?cluster=prod-us&since=2020-01-01T00:00:00Z").await.contains("No row matches"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn shared_ledger_excludes_flags_of_clusters_and_files() {
    let url = "postgres://moor@127.0.0.1:1/none";
    for flags in [
        &["--in-cluster", "--host=ui.example"][..],
        &["--server=https://localhost:9080"],
        &["--context=prod"],
        &["--kubeconfig=none"],
    ] {
        let ran = run(&[&["ui", "--no-browser", "--ledger", url], flags].concat(), "");
        assert!(ran.code == 2 && ran.error.contains("cannot be used with"), "{ran:?}");
    }
    let file = LedgerUrl::Sqlite(folder("fleet-page").join("ledger.db"));
    Written::start(&file, "east", FOREVER).close().await;
    let ran = run(&["ui", "--no-browser", "--ledger", &file.to_string()], "");
    ran.assert_failed(&["is the file of a single guard", "use the PostgreSQL"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn guard_address_in_the_environment_refuses_no_page() {
    let server = Postgres::start().await;
    let url = server.database();
    fill(&url).await;
    for address in ["https://localhost:9080", "no address"] {
        let environment = [("KUBEMOOR_SERVER".to_owned(), address.to_owned())];
        let page = Page::run(&["--ledger", &url], &environment).await;
        assert_holds(&page.text("").await, &["prod-eu", "prod-us"], &[]);
    }
    // It is the address of one guard, and so of none of several clusters.
    let cluster = |name: &str| json!({"name": name, "cluster": {"server": "https://127.0.0.1:1"}});
    let context = |name: &str| json!({"name": name, "context": {"cluster": name, "user": "alice"}});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": [cluster("east"), cluster("west")],
        "contexts": [context("east"), context("west")], "users": [{"name": "alice", "user": {"token": "a"}}],
    });
    let path = folder("several").join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    let kubeconfig = format!("--kubeconfig={}", path.display());
    let several = [kubeconfig.as_str(), "--context=east", "--context=west"];
    let environment = [("KUBEMOOR_SERVER".to_owned(), "https://localhost:9080".to_owned())];
    let page = Page::run(&several, &environment).await;
    assert_holds(&page.text("").await, &["east", "west"], &[]);
    let flag = "--server=https://localhost:9080";
    let ran = run(&[&["ui", "--no-browser", flag], &several[..]].concat(), "");
    ran.assert_failed(&["--server is for one cluster"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn shared_ledger_pages_fit_their_window_and_keep_nobody_out() {
    let shared = FleetLedger::start().await;
    let page = shared.page().await;
    for look in Look::ALL {
        let browser = Browser::start(look).await;
        browser.go(&page.address).await;
        browser.wait_for("Overview").await;
        for (name, path, words) in [
            ("fleet-overview", "", "Last sign of life"),
            ("fleet-releases", "releases", "4 releases"),
            ("fleet-release", "release?namespace=shop&name=web&cluster=prod-us", "In all clusters"),
            ("fleet-ledger", "ledger", "ursula"),
            ("fleet-replay", "replay?since=1h", "Verdicts that would change"),
        ] {
            browser.go(&format!("{}{path}", page.base)).await;
            browser.wait_for(words).await;
            browser.inspect(name).await;
        }
        browser.end().await;
    }
    shared.end().await;
}
