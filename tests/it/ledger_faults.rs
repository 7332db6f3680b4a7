//! Databases that fail for long, again and again, or without a word, and a disk that is full: no row of a denied edit
//! is lost, and nobody waits.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::ledger_outages::{guard, kept, kept_by, refused, spilled};
use crate::support::{ControlPlane, Guard, Postgres, SOON, Scene, SmallDisk, Wire, charts, eventually};

/// How long a denial may take while the database fails. A client of its own and its handshake are in it, on a machine
/// that others use as well.
const PROMPT: Duration = Duration::from_secs(3);

/// Between two denials.
const PACE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts at a database, and one attempt.
const BACK: Duration = Duration::from_secs(60);

/// How long it may take to fill a small disk with rows.
const FULL: Duration = Duration::from_secs(120);

/// Edits that a guard refused so far.
#[derive(Default)]
struct Denied<'a> {
    /// By their values.
    values: Vec<String>,
    /// The words before a command that reads the ledger.
    prefix: Vec<String>,
    /// The release whose ConfigMap is edited through the API server; without one, the guard is asked itself.
    shop: Option<&'a Scene>,
}

impl Denied<'_> {
    /// Has edits refused for so long.
    async fn go_on(&mut self, guard: &Guard, duration: Duration) {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            self.one(guard).await;
            sleep(PACE).await;
        }
    }

    async fn one(&mut self, guard: &Guard) {
        let value = format!("v{:05}", self.values.len());
        let began = Instant::now();
        match self.shop {
            Some(shop) => drop(shop.data("settings", json!({"image": value})).await.refusal().unwrap()),
            None => refused(guard, &value).await,
        }
        assert!(began.elapsed() < PROMPT, "{value} took {:?}: {}", began.elapsed(), guard.log());
        self.values.push(format!("\"{value}\""));
    }

    /// Has edits refused until the database has a row of one of them.
    async fn until_kept_again(&mut self, guard: &Guard, ledger: &str) {
        let before = kept_by(&self.prefix, ledger).len();
        let until = Instant::now() + BACK;
        while kept_by(&self.prefix, ledger).len() == before {
            assert!(Instant::now() < until, "no row is kept: {}", guard.log());
            self.go_on(guard, PACE * 10).await;
        }
        guard.wait_for_metric("kubemoor_ledger_up 1").await;
    }

    /// Has edits refused until the disk of the ledger is full. The guard is ready then.
    async fn until_full(&mut self, guard: &Guard, disk: &SmallDisk) {
        guard.wait_for_log("the ledger is open").await;
        let until = Instant::now() + FULL;
        while spilled(guard).is_empty() {
            assert!(Instant::now() < until, "the disk is never full: {}", guard.metrics().await);
            self.one(guard).await;
        }
        guard.wait_for_metric("kubemoor_ledger_up 0").await;
        guard.wait_for_log("the ledger takes no rows").await;
        if disk.is_mounted() {
            guard.wait_for_log("database or disk is full").await;
        }
        assert!(guard.is_ready().await);
    }

    /// Gives the disk more room, and has edits refused until the database has a row of one of them.
    async fn until_kept_with_space(&mut self, guard: &Guard, disk: &SmallDisk, ledger: &str) {
        disk.widen(guard.id());
        self.until_kept_again(guard, ledger).await;
        guard.wait_for_log("the ledger takes rows again").await;
        let rows = guard.log().lines().filter(|line| line.starts_with("{\"ledger\":{")).count();
        guard
            .wait_for_metric(&format!("kubemoor_ledger_rows_total{{outcome=\"unavailable\"}} {rows}\n"))
            .await;
    }

    /// Ends the guard. Each row has to be in one place, the database or standard output.
    fn assert_told(&self, guard: &mut Guard, ledger: &str) {
        assert!(guard.terminate().success(), "{}", guard.log());
        let mut told = [kept_by(&self.prefix, ledger), spilled(guard)].concat();
        told.sort();
        assert_eq!(told, self.values);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn minute_long_database_outage_loses_no_row_and_delays_nobody() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let mut guard = guard(&ledger).await;
    let mut denied = Denied::default();
    denied.go_on(&guard, Duration::from_secs(1)).await;
    server.kill();
    denied.go_on(&guard, Duration::from_secs(60)).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    server.start_again().await;
    denied.until_kept_again(&guard, &ledger).await;
    denied.assert_told(&mut guard, &ledger);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn repeated_database_restarts_lose_no_row() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let mut guard = guard(&ledger).await;
    let mut denied = Denied::default();
    for _ in 0..3 {
        denied.go_on(&guard, Duration::from_secs(1)).await;
        server.kill();
        denied.go_on(&guard, Duration::from_secs(1)).await;
        server.start_again().await;
        denied.until_kept_again(&guard, &ledger).await;
    }
    denied.assert_told(&mut guard, &ledger);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ledger_reports_up_after_database_recovery_without_new_denials() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let guard = guard(&ledger).await;
    let mut denied = Denied::default();
    denied.one(&guard).await;
    eventually("the row is kept", SOON, || async { kept(&ledger) == denied.values }).await;
    server.kill();
    denied.one(&guard).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    server.start_again().await;
    guard.wait_for_metric("kubemoor_ledger_up 1").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn silent_database_loses_no_row_and_delays_nobody() {
    let server = Postgres::start().await;
    let wire = Wire::to(server.port()).await;
    let direct = server.database();
    let ledger = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", wire.port()));
    let mut guard = guard(&ledger).await;
    let mut denied = Denied::default();
    denied.go_on(&guard, Duration::from_secs(1)).await;
    eventually("the rows are kept", SOON, || async { kept(&direct) == denied.values }).await;
    wire.freeze();
    denied.go_on(&guard, Duration::from_secs(25)).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    wire.thaw();
    denied.until_kept_again(&guard, &direct).await;
    denied.assert_told(&mut guard, &direct);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn full_disk_loses_no_row_and_ledger_recovers_with_space() {
    let disk = SmallDisk::new();
    let ledger = ledger_on(&disk);
    let flags = ["--edits=Deny", &format!("--ledger={ledger}")];
    let mut guard = Guard::start_embedded_with(&disk, &flags).await;
    let mut denied = Denied { prefix: disk.prefix(), ..Denied::default() };
    denied.until_full(&guard, &disk).await;
    denied.go_on(&guard, Duration::from_secs(5)).await;
    denied.until_kept_with_space(&guard, &disk, &ledger).await;
    denied.assert_told(&mut guard, &ledger);
}

/// Through a real API server, which waits for each answer and admits nothing without one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn full_disk_changes_no_verdict_on_requests() {
    let disk = SmallDisk::new();
    let ledger = ledger_on(&disk);
    let shop = Scene::on(ControlPlane::start()).install("full", charts::IMAGE_AND_COLOR).await;
    let flags = ["--register", "--edits=Deny", "--cluster-name=here", &format!("--ledger={ledger}")];
    let mut guard = Guard::start_on(&disk, &shop.control_plane, &flags).await;
    let settings = shop.config_map("settings");
    shop.wait_until_guarded(&settings).await;
    Guard::extend_webhook_timeouts(&shop.control_plane, "Fail").await;
    let mut denied = Denied { prefix: disk.prefix(), shop: Some(&shop), ..Denied::default() };
    denied.until_full(&guard, &disk).await;
    denied.go_on(&guard, Duration::from_secs(5)).await;
    shop.edit(&settings, json!({"metadata": {"annotations": {"note": "full"}}})).await;
    shop.upgrade(json!({})).await.unwrap();
    assert!(guard.is_ready().await);
    denied.until_kept_with_space(&guard, &disk, &ledger).await;
    shop.assert_value(&settings, "/data/image", &json!("a")).await;
    denied.assert_told(&mut guard, &ledger);
}

fn ledger_on(disk: &SmallDisk) -> String {
    format!("sqlite:{}", disk.path().join("ledger.db").display())
}
