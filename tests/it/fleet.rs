//! How the releases of many clusters stand: in the ledger that their guards share, and in lists that ask each cluster.

use serde_json::{Value, json};

use crate::support::{Guard, Identity, Postgres, SOON, Scene, contexts, eventually, run};

const TEMPLATES: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: {{ .Values.mode }}}\n";

/// One cluster with the release `shop`, and its guard.
struct FleetMember {
    scene: Scene,
    guard: Guard,
}

impl FleetMember {
    async fn start(name: &str, ledger: &str, mode: &str) -> Self {
        let scene = Scene::own().options(json!({"values": {"mode": mode}})).install("fleet", TEMPLATES).await;
        let (ledger, name) = (format!("--ledger={ledger}"), format!("--cluster-name={name}"));
        let guard = scene.start_guard(&[&ledger, &name]).await;
        Self { scene, guard }
    }
}

fn fleet(arguments: &[&str]) -> Vec<Value> {
    run(&[&["fleet"], arguments, &["-o", "json"]].concat(), "").items()
}

/// The row of a cluster, which says each of these things.
async fn wait_for(ledger: &str, cluster: &str, says: &[(&str, Value)]) -> Value {
    eventually(&format!("{cluster} says {says:?}"), SOON, || async {
        let rows = fleet(&["releases", "shop", "--ledger", ledger, "--cluster", cluster]);
        rows.into_iter().find(|row| says.iter().all(|(field, value)| row[*field] == *value)).ok_or("not yet")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_ledger_and_cluster_contexts_report_same_release_states() {
    let mut server = Postgres::start().await;
    let ledger = server.database();
    let database = ledger.rsplit_once('/').unwrap().1.to_owned();
    let mut east = FleetMember::start("east", &ledger, "fast").await;
    let west = FleetMember::start("west", &ledger, "slow").await;
    for cluster in ["east", "west"] {
        wait_for(&ledger, cluster, &[("reason", json!("InSync")), ("revision", json!(1))]).await;
    }
    let clusters = fleet(&["--ledger", &ledger]);
    for (row, name) in clusters.iter().zip(["east", "west"]) {
        assert_eq!((&row["cluster"], &row["states"]), (&json!(name), &json!({"InSync": 1})), "{row}");
        assert_eq!(row["version"], json!(env!("CARGO_PKG_VERSION")), "{row}");
        for time in ["certificateUntil", "lastSeen"] {
            assert!(row[time].as_str().is_some_and(|time| time.starts_with("20")), "{time}: {row}");
        }
        assert!(row.get("staleSince").is_none(), "{row}");
    }
    // Values are not shown, and yet told apart.
    let compared = fleet(&["releases", "shop", "--ledger", &ledger, "-n", &east.scene.namespace]);
    assert_eq!(compared.len(), 2, "{compared:?}");
    assert!(compared.iter().all(|row| row["differs"] == json!(["values"])), "{compared:?}");

    // A drift that begins, and one that ends while the database is away.
    let settings = west.scene.config_map("settings");
    west.scene.edit(&settings, json!({"data": {"mode": "odd"}})).await;
    let drifted = wait_for(&ledger, "west", &[("reason", json!("Drifted")), ("drifted", json!(1))]).await;
    assert!(drifted["oldestDrift"].is_string(), "{drifted}");
    let found = fleet(&["--ledger", &ledger, "--state", "drifted"]);
    assert_eq!(found.iter().map(|row| &row["cluster"]).collect::<Vec<_>>(), ["west"], "{found:?}");
    // The status is written a moment after the row.
    west.scene.wait_for_reason("Drifted").await;
    assert_contexts_say_the_same(&east, &west);
    server.kill();
    west.scene.edit(&settings, json!({"data": {"mode": "slow"}})).await;
    west.guard.wait_for_log("failed to write release states to the ledger").await;
    server.start_again().await;
    wait_for(&ledger, "west", &[("reason", json!("InSync")), ("drifted", json!(0))]).await;

    // A release that goes has no row, and a guard that is silent is no state of now.
    east.scene.helm.uninstall(&east.scene.namespace, "shop", json!({})).await.unwrap();
    eventually("the row is gone", SOON, || async {
        let rows = fleet(&["releases", "--ledger", &ledger, "--cluster", "east"]);
        if rows.is_empty() { Ok(()) } else { Err(format!("{rows:?}")) }
    })
    .await;
    assert!(east.guard.terminate().success());
    server.psql(&database, "UPDATE guards SET heard = heard - interval '5 minutes'").unwrap();
    let rows = fleet(&["--ledger", &ledger, "--cluster", "east"]);
    assert!(rows[0]["staleSince"].is_string(), "{rows:?}");
    let table = run(&["fleet", "--ledger", &ledger], "").out;
    assert!(table.lines().any(|line| line.starts_with("east") && line.contains("stale since 20")), "{table}");
    let sheet = run(&["fleet", "releases", "--ledger", &ledger, "-o", "csv"], "").out;
    assert!(sheet.starts_with("\"cluster\",\"namespace\",\"name\"") && sheet.contains("\"west\""), "{sheet}");
}

/// Lists and comparisons ask each cluster; one that fails does so alone.
fn assert_contexts_say_the_same(east: &FleetMember, west: &FleetMember) {
    let clusters = [("east", &*east.scene.control_plane), ("west", &*west.scene.control_plane)];
    let config = contexts(Identity::Admin, &clusters, &[("broken", "https://127.0.0.1:1")]);
    let kubeconfig = format!("--kubeconfig={}", config.display());
    let namespace = &east.scene.namespace;
    for (command, code) in [
        (&["get", "releases", "-A"][..], 2),
        // Drift is found all the same.
        (&["diff", "shop", "-n", namespace], 1),
    ] {
        let ran = run(&[command, &[&kubeconfig, "--contexts", "broken,west,east"]].concat(), "");
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.error.contains("broken: "), "{ran:?}");
        assert!(ran.out.contains("west") && ran.out.contains("east"), "{ran:?}");
    }
    let rows = run(&["get", "releases", "-A", &kubeconfig, "--contexts=east,west", "-o", "json"], "").items();
    let said: Vec<_> = rows.iter().map(|row| (&row["cluster"], &row["reason"])).collect();
    assert_eq!(said, [(&json!("east"), &json!("InSync")), (&json!("west"), &json!("Drifted"))], "{rows:?}");
    let compared =
        run(&["diff", "shop", "-n", namespace, &kubeconfig, "--contexts=east,west", "-o", "json"], "");
    let compared = compared.json()["items"].clone();
    assert_eq!((&compared[0]["cluster"], &compared[0]["drifted"]), (&json!("east"), &json!(0)), "{compared}");
    assert_eq!((&compared[1]["cluster"], &compared[1]["drifted"]), (&json!("west"), &json!(1)), "{compared}");
}
