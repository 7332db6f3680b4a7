//! Databases that fail for long, again and again, or without a word, and a disk that is full: no row of a denied edit
//! is lost, and nobody waits.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::ledger_outages::{guard, kept, kept_by, refused, spilled};
use crate::support::{Guard, Postgres, SOON, SmallDisk, Wire, eventually};

/// How long a denial may take while the database fails. A client of its own and its handshake are in it, on a machine
/// that others use as well.
const PROMPT: Duration = Duration::from_secs(3);

/// Between two denials.
const PACE: Duration = Duration::from_millis(100);

/// The longest pause between two attempts at a database, and one attempt.
const BACK: Duration = Duration::from_secs(60);

/// Edits that a guard refused so far, by their values, and the words before a command that reads its ledger.
#[derive(Default)]
struct Denied(Vec<String>, Vec<String>);

impl Denied {
    /// Has edits refused for so long.
    async fn go_on(&mut self, guard: &Guard, duration: Duration) {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            self.one(guard).await;
            sleep(PACE).await;
        }
    }

    async fn one(&mut self, guard: &Guard) {
        let value = format!("v{:05}", self.0.len());
        let began = Instant::now();
        refused(guard, &value).await;
        assert!(began.elapsed() < PROMPT, "{value} took {:?}: {}", began.elapsed(), guard.log());
        self.0.push(format!("\"{value}\""));
    }

    /// Has edits refused until the database has a row of one of them.
    async fn until_kept_again(&mut self, guard: &Guard, ledger: &str) {
        let before = kept_by(&self.1, ledger).len();
        let until = Instant::now() + BACK;
        while kept_by(&self.1, ledger).len() == before {
            assert!(Instant::now() < until, "no row is kept: {}", guard.log());
            self.go_on(guard, PACE * 10).await;
        }
        guard.wait_for_metric("kubemoor_ledger_up 1").await;
    }

    /// Ends the guard. Each row has to be in one place, the database or standard output.
    fn assert_told(&self, guard: &mut Guard, ledger: &str) {
        assert!(guard.terminate().success(), "{}", guard.log());
        let mut told = [kept_by(&self.1, ledger), spilled(guard)].concat();
        told.sort();
        assert_eq!(told, self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
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
async fn ledger_reports_up_after_database_recovery_without_new_denials() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let guard = guard(&ledger).await;
    let mut denied = Denied::default();
    denied.one(&guard).await;
    eventually("the row is kept", SOON, || async { kept(&ledger) == denied.0 }).await;
    server.kill();
    denied.one(&guard).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    server.start_again().await;
    guard.wait_for_metric("kubemoor_ledger_up 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_database_loses_no_row_and_delays_nobody() {
    let server = Postgres::start().await;
    let wire = Wire::to(server.port()).await;
    let direct = server.database();
    let ledger = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", wire.port()));
    let mut guard = guard(&ledger).await;
    let mut denied = Denied::default();
    denied.go_on(&guard, Duration::from_secs(1)).await;
    eventually("the rows are kept", SOON, || async { kept(&direct) == denied.0 }).await;
    wire.freeze();
    denied.go_on(&guard, Duration::from_secs(25)).await;
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    wire.thaw();
    denied.until_kept_again(&guard, &direct).await;
    denied.assert_told(&mut guard, &direct);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_loses_no_row_and_ledger_recovers_with_space() {
    let disk = SmallDisk::new();
    let ledger = format!("sqlite:{}", disk.path().join("ledger.db").display());
    let flags = ["--edits=Deny", &format!("--ledger={ledger}")];
    let mut guard = Guard::start_embedded_with(&disk, &flags).await;
    let mut denied = Denied(Vec::new(), disk.prefix());
    eventually("the ledger is open", SOON, || async { guard.log().contains("the ledger is open") }).await;
    let until = Instant::now() + SOON;
    while spilled(&guard).is_empty() {
        assert!(Instant::now() < until, "the disk is never full: {}", guard.metrics().await);
        denied.one(&guard).await;
    }
    guard.wait_for_metric("kubemoor_ledger_up 0").await;
    guard.wait_for_log("the ledger takes no rows").await;
    if disk.is_mounted() {
        guard.wait_for_log("database or disk is full").await;
    }
    assert!(guard.is_ready().await);
    denied.go_on(&guard, Duration::from_secs(5)).await;

    disk.widen(guard.id());
    denied.until_kept_again(&guard, &ledger).await;
    guard.wait_for_log("the ledger takes rows again").await;
    let unavailable =
        format!("kubemoor_ledger_rows_total{{outcome=\"unavailable\"}} {}", spilled(&guard).len());
    guard.wait_for_metric(&unavailable).await;
    denied.assert_told(&mut guard, &ledger);
}
