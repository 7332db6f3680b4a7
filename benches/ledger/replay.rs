//! Recorded changes, judged by other policies.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use kubemoor_runtime::config::LedgerUrl;
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::query::{WRITTEN, fill, once_more};
use crate::support::Postgres;

/// Seconds that a million rows may take.
const BAR: f64 = 30.0;

/// Rules of which some meet and most do not.
const POLICY: &str = r#"
apiVersion: kubemoor.dev/v1alpha1
kind: DriftPolicy
metadata: {name: new}
spec:
  edits: Deny
  releases: {namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [team-1]}]}}
  exempt: [{kind: User, name: user-7@example.com}, {kind: Group, name: operators}]
  ignore:
  - target: {kind: Deployment, name: "release-1.*", labelSelector: app.kubernetes.io/name=application}
    paths: ["/spec/template/spec/containers/*/image"]
  - paths: [/spec/replicas]
  allow:
  - {name: night, paths: ["*"], schedule: {cron: "0 2 * * *", duration: 2h}, subjects: [{kind: Group, name: developers}]}
"#;

/// Prints how long a replay of so many rows takes, out of each database.
pub(crate) async fn measure(rows: u64) {
    let (written, copies) = (WRITTEN.min(rows), rows.div_ceil(WRITTEN).saturating_sub(1));
    println!("a replay of {} rows", written * (copies + 1));
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    fs::create_dir(&policies).unwrap();
    fs::write(policies.join("new.yaml"), POLICY).unwrap();
    let path = folder.path().join("ledger.db");
    fill(&LedgerUrl::Sqlite(path.clone()), written, copies).await;
    let options = SqliteConnectOptions::new().filename(&path);
    let mut connection = options.pragma("synchronous", "off").connect().await.unwrap();
    for copy in 1..=copies {
        sqlx::query(sqlx::AssertSqlSafe(once_more(written, copy))).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    replay("SQLite", &format!("sqlite:{}", path.display()), &policies);

    let server = Postgres::start().await;
    let url = server.database();
    let database = url.rsplit_once('/').unwrap().1;
    fill(&url.parse().unwrap(), written, copies).await;
    for copy in 1..=copies {
        server.psql(database, &once_more(written, copy)).unwrap();
    }
    server.psql(database, "VACUUM ANALYZE entries").unwrap();
    replay("PostgreSQL", &url, &policies);
}

fn replay(name: &str, url: &str, policies: &std::path::Path) {
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_kubemoor"))
        .args(["policy", "replay", "-A", "--since", "3650d", "-o", "json", "--ledger", url])
        .arg(policies)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (edits, replayed) = (told["edits"].as_u64().unwrap(), told["replayed"].as_u64().unwrap());
    assert_eq!(edits, replayed, "{}", told["notReplayable"]);
    let a_million = seconds * 1e6 / edits as f64;
    let missed = if a_million > BAR { format!(" (at most {BAR} s: missed)") } else { String::new() };
    println!(
        "  {name:<11} {seconds:>6.1} s for {edits} rows, {a_million:.1} s for a million{missed}; {} refused, {} permitted",
        told["refused"], told["permitted"]
    );
}
