//! Databases that fail for long, again and again, or without a word, and a disk that is full: no row of a denied edit
//! is lost.

use std::cell::RefCell;

use serde_json::json;

use crate::ledger_outages::{guard, kept, kept_by, refused, spilled};
use crate::support::{ControlPlane, Guard, Postgres, SOON, Scene, SmallDisk, Wire, charts, eventually};

/// Denied edits that an outage lasts for at least.
const MANY: usize = 100;

/// Edits that a guard refused so far.
#[derive(Default)]
struct DeniedEdits<'a> {
    /// By their values.
    values: RefCell<Vec<String>>,
    /// The words before a command that reads the ledger.
    prefix: Vec<String>,
    /// The release whose ConfigMap is edited through the API server; without one, the guard is asked itself.
    shop: Option<&'a Scene>,
}

impl DeniedEdits<'_> {
    /// Has so many edits refused.
    async fn go_on(&self, guard: &Guard, edits: usize) {
        for _ in 0..edits {
            self.one(guard).await;
        }
    }

    async fn one(&self, guard: &Guard) {
        let value = format!("v{:05}", self.values.borrow().len());
        match self.shop {
            Some(shop) => drop(shop.data("settings", json!({"image": value})).await.refusal().unwrap()),
            None => refused(guard, &value).await,
        }
        self.values.borrow_mut().push(format!("\"{value}\""));
    }

    /// Has edits refused until the database has a row of one of them.
    async fn until_kept_again(&self, guard: &Guard, ledger: &str) {
        let before = kept_by(&self.prefix, ledger).len();
        // The pause between two attempts at a database grows to almost as much.
        eventually("a row is kept", SOON * 2, || async {
            self.go_on(guard, 10).await;
            kept_by(&self.prefix, ledger).len() > before
        })
        .await;
        guard.wait_for_metric("kubemoor_ledger_up 1").await;
    }

    /// Has edits refused until the disk of the ledger is full. The guard is ready then.
    async fn until_full(&self, guard: &Guard, disk: &SmallDisk) {
        guard.wait_for_log("the ledger is open").await;
        // Rows fill it one by one.
        eventually("the disk is full", SOON * 3, || async {
            self.go_on(guard, MANY).await;
            !spilled(guard).is_empty()
        })
        .await;
        guard.wait_for_metric("kubemoor_ledger_up 0").await;
        guard.wait_for_log("the ledger is unavailable").await;
        if disk.is_mounted() {
            guard.wait_for_log("database or disk is full").await;
        }
        assert!(guard.is_ready().await);
    }

    /// Gives the disk more room, and has edits refused until the database has a row of one of them.
    async fn until_kept_with_space(&self, guard: &Guard, disk: &SmallDisk, ledger: &str) {
        disk.widen(guard.id());
        self.until_kept_again(guard, ledger).await;
        guard.wait_for_log("the ledger is available again").await;
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
        if self.shop.is_some() {
            // Kubernetes 1.20 asks again about an edit that is refused, and only a database counts equal rows as one.
            told.dedup();
        }
        assert_eq!(told, *self.values.borrow());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn long_database_outage_loses_no_row() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let mut guard = guard(&ledger).await;
    let denied = DeniedEdits::default();
    denied.go_on(&guard, 10).await;
    server.kill();
    denied.go_on(&guard, MANY).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    denied.go_on(&guard, MANY).await;
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
    let denied = DeniedEdits::default();
    for _ in 0..3 {
        denied.go_on(&guard, 10).await;
        server.kill();
        denied.go_on(&guard, 10).await;
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
    let denied = DeniedEdits::default();
    denied.one(&guard).await;
    eventually("the row is kept", SOON, || async { kept(&ledger) == *denied.values.borrow() }).await;
    server.kill();
    denied.one(&guard).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    server.start_again().await;
    guard.wait_for_metric("kubemoor_ledger_up 1").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn silent_database_loses_no_row() {
    let server = Postgres::start().await;
    let wire = Wire::to(server.port()).await;
    let direct = server.database();
    let ledger = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", wire.port()));
    let mut guard = guard(&ledger).await;
    let denied = DeniedEdits::default();
    denied.go_on(&guard, 10).await;
    eventually("the rows are kept", SOON, || async { kept(&direct) == *denied.values.borrow() }).await;
    wire.freeze();
    denied.go_on(&guard, MANY).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    denied.go_on(&guard, MANY).await;
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
    let denied = DeniedEdits { prefix: disk.prefix(), ..DeniedEdits::default() };
    denied.until_full(&guard, &disk).await;
    denied.go_on(&guard, MANY).await;
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
    let denied = DeniedEdits { prefix: disk.prefix(), shop: Some(&shop), ..DeniedEdits::default() };
    denied.until_full(&guard, &disk).await;
    denied.go_on(&guard, MANY).await;
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
