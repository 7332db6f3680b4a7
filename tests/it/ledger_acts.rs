//! What people tell the guard to do leaves rows: who stopped repairs, and who had a release repaired.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    DRIFT_POLICIES, Guard, Identity, RELEASE, SOON, Scene, charts, drift_policy, eventually, folder, moor,
};

#[tokio::test(flavor = "multi_thread")]
async fn ledger_names_user_who_suspends_resumes_or_reconciles_a_release() {
    let scene = Scene::policed().install("acts", charts::TWO).await;
    scene.wait_until_guarded(&scene.config_map("settings")).await;
    scene.wait_for_confirmed(3).await;
    for command in ["suspend", "resume", "reconcile"] {
        let mut arguments = vec![command, RELEASE, "-n", &scene.namespace];
        if command == "suspend" {
            arguments.extend(["--for", "1h", "--reason", "INC-7"]);
        }
        let ran = moor(&scene.control_plane, Identity::Alice, &arguments);
        assert_eq!(ran.code, 0, "{command}: {ran:?}");
    }
    // A dry run and an edit that tells the guard nothing leave none.
    let path = scene.guarded_release(RELEASE);
    let suspended = json!({"spec": {"suspend": true}});
    scene.alice.merge(&format!("{path}?dryRun=All"), &suspended).await.done().unwrap();
    scene.alice.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.done().unwrap();

    let acts = eventually("the acts are in the ledger", SOON, || async {
        let mut rows = scene.rows(&[]);
        rows.retain(|row| row["kind"] == "act");
        if rows.iter().any(|row| row["verdict"] == "Reconcile") { Ok(rows) } else { Err(format!("{rows:?}")) }
    })
    .await;
    let mut verdicts: Vec<&str> = acts.iter().filter_map(|row| row["verdict"].as_str()).collect();
    // An API server may ask twice about one edit.
    verdicts.dedup();
    assert!(
        ["Suspend,Resume,Reconcile", "Reconcile,Resume,Suspend"].contains(&&*verdicts.join(",")),
        "{acts:#?}"
    );
    let suspended = acts.iter().find(|row| row["verdict"] == "Suspend").unwrap();
    let detail = suspended["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("until 20") && detail.ends_with("Z: INC-7"), "{suspended}");
    for row in &acts {
        assert_eq!(
            (&row["user"], &row["release"], &row["revision"]),
            (&json!("alice"), &json!(RELEASE), &json!(1))
        );
        assert_eq!(
            (&row["object"]["kind"], &row["object"]["name"]),
            (&json!("GuardedRelease"), &json!(RELEASE))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ledger_records_suspension_changed_by_creating_or_deleting_guarded_release() {
    let scene = Scene::policed().install("object-acts", charts::TWO).await;
    scene.wait_until_guarded(&scene.config_map("settings")).await;
    scene.wait_for_confirmed(3).await;
    scene.order("suspend");
    let path = scene.guarded_release(RELEASE);
    scene.admin.delete(&path).await.done().unwrap();
    let mut early = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "metadata": {"name": "early"},
        "spec": {"suspend": true, "suspendReason": "INC-8"},
    });
    let all = path.rsplit_once('/').unwrap().0;
    scene.admin.post(&format!("{all}?dryRun=All"), &early).await.done().unwrap();
    scene.admin.post(all, &early).await.done().unwrap();
    early["metadata"]["name"] = json!("plain");
    early["spec"] = json!({});
    scene.admin.post(all, &early).await.done().unwrap();

    let acts = eventually("the acts are in the ledger", SOON, || async {
        let mut rows = scene.rows(&[]);
        rows.retain(|row| row["kind"] == "act" && row["user"] == "admin");
        if rows.len() >= 2 { Ok(rows) } else { Err(format!("{rows:?}")) }
    })
    .await;
    let told = |row: &Value| ["verdict", "operation", "release", "detail"].map(|field| row[field].clone());
    let name = |row: &Value| row["object"]["name"].clone();
    let mut told: Vec<_> = acts.iter().map(|row| (name(row), told(row))).collect();
    told.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(
        told,
        [
            (json!("early"), [json!("Suspend"), json!("CREATE"), json!(null), json!("INC-8")]),
            (json!(RELEASE), [json!("Resume"), json!("DELETE"), json!(RELEASE), json!("")]),
        ],
        "{acts:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn changed_exception_closes_and_reopens_in_ledger() {
    let scene = Scene::policed().install("exception-acts", charts::SETTINGS).await;
    scene.wait_until_guarded(&scene.config_map("settings")).await;
    let allow = ["allow", "configmap/settings", "--path", "/data/level", "--for", "1h", "--reason", "INC-9"];
    let ran = scene.moor(&allow);
    assert_eq!(ran.code, 0, "{ran:?}");
    let rows = |verdict: &'static str, count: usize| {
        let scene = &scene;
        eventually(verdict, SOON, move || async move {
            let rows = scene.rows(&["--verdict", verdict]);
            if rows.len() == count { Ok(rows) } else { Err(format!("{rows:?}")) }
        })
    };
    rows("Opened", 1).await;
    let allowances = scene.at("apis/kubemoor.dev/v1alpha1", "driftallowances");
    let listed = scene.get(&allowances).await;
    let allowance = format!("{allowances}/{}", listed["items"][0]["metadata"]["name"].as_str().unwrap());
    scene.alice.merge(&allowance, &json!({"spec": {"paths": ["*"]}})).await.done().unwrap();
    rows("Closed", 1).await;
    let opened = rows("Opened", 2).await;
    assert!(opened.iter().any(|row| row["fields"][0]["path"] == "*"), "{opened:#?}");
    scene.alice.delete(&allowance).await.done().unwrap();
    rows("Closed", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_records_creation_change_and_deletion_of_policies() {
    let scene = Scene::policed().install("policy-acts", charts::TWO).await;
    let name = format!("acts-{}", scene.namespace);
    let spec = |edits: &str| {
        let releases = json!({"namespaces": [scene.namespace]});
        drift_policy(&name, json!({"priority": 9000, "releases": releases, "edits": edits}))
    };
    let policy = format!("{DRIFT_POLICIES}/{name}");
    scene.admin.post(&format!("{DRIFT_POLICIES}?fieldManager=platform"), &spec("Warn")).await.done().unwrap();
    let rows = |verdict: &'static str| {
        let (scene, name) = (&scene, &name);
        eventually(verdict, SOON, move || async move {
            let mut rows = scene.rows(&["-A", "--verdict", verdict]);
            rows.retain(|row| row["object"]["name"] == json!(name));
            if rows.is_empty() { Err(format!("{rows:?}")) } else { Ok(rows) }
        })
    };
    let created = rows("CreatePolicy").await;
    assert_eq!(
        (created.len(), &created[0]["detail"]),
        (1, &json!("by field manager platform")),
        "{created:#?}"
    );
    scene
        .admin
        .merge(&format!("{policy}?fieldManager=oncall"), &json!({"spec": {"edits": "Record"}}))
        .await
        .done()
        .unwrap();
    let changed = rows("ChangePolicy").await;
    // If all happens within one second, the managers' times do not tell who was the last.
    let detail = changed[0]["detail"].as_str().unwrap();
    assert!(changed.len() == 1 && detail.starts_with("by field manager oncall"), "{changed:#?}");
    scene.admin.delete(&policy).await.done().unwrap();
    assert_eq!(rows("DeletePolicy").await.len(), 1);
}

/// The rows of a guard's ledger, newest first, once one has this verdict.
async fn rows_with(guard: &Guard, verdict: &str) -> Vec<Value> {
    eventually(verdict, SOON, || async {
        let rows = guard.rows(&["-A", "--verdict", verdict]);
        if rows.is_empty() { Err("the ledger has no such row") } else { Ok(rows) }
    })
    .await
}

fn write_policy(folder: &Path, edits: &str) {
    let gold = json!({"namespaceSelector": {"matchLabels": {"tier": "gold"}}});
    let policy = drift_policy("filed", json!({"edits": edits, "releases": gold}));
    fs::write(folder.join("filed.yaml"), policy.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn start_stop_policy_files_and_namespace_labels_are_recorded() {
    let scene = Scene::own().install("lifetime", charts::TWO).await;
    let policies = folder("filed");
    write_policy(&policies, "Warn");
    let flag = format!("--policies={}", policies.display());
    let mut guard = scene.start_guard(&["--edits", "Deny", &flag]).await;
    let started = rows_with(&guard, "Start").await;
    let detail = started[0]["detail"].as_str().unwrap();
    assert_eq!(started[0]["object"]["kind"], "Guard");
    for part in ["edits Deny", "drift Report", "policy files filed.yaml (", "all namespaces"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }

    // Another layout is no change, another mode is one.
    let path = policies.join("filed.yaml");
    let compact: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    fs::write(&path, serde_json::to_string_pretty(&compact).unwrap()).unwrap();
    write_policy(&policies, "Record");
    let changed = rows_with(&guard, "ChangePolicy").await;
    assert_eq!(
        (changed.len(), &changed[0]["object"]["name"], &changed[0]["detail"]),
        (1, &json!("filed"), &json!("in the policy file filed.yaml"))
    );

    let namespace = format!("/api/v1/namespaces/{}", scene.namespace);
    for (label, value) in [("other", "x"), ("tier", "gold")] {
        let labels = json!({"metadata": {"labels": {label: value}}});
        scene.admin.merge(&namespace, &labels).await.done().unwrap();
    }
    let relabelled = rows_with(&guard, "LabelNamespace").await;
    assert_eq!(relabelled.len(), 1, "{relabelled:#?}");
    assert!(relabelled[0]["detail"].as_str().unwrap().ends_with("no policy → filed"), "{relabelled:#?}");
    assert_eq!(relabelled[0]["namespace"], json!(scene.namespace));

    // While it is down somebody suspends a release, which no review tells of.
    assert!(guard.terminate().success());
    assert_eq!(rows_with(&guard, "Stop").await[0]["detail"], "SIGTERM");
    let suspended = json!({"spec": {"suspend": true, "suspendReason": "INC-9"}});
    scene.admin.merge(&scene.guarded_release(RELEASE), &suspended).await.done().unwrap();
    guard.start_again().await;
    let seen = rows_with(&guard, "Suspend").await;
    let detail = seen[0]["detail"].as_str().unwrap();
    assert!(detail.starts_with("INC-9; it was suspended when the guard started"), "{seen:#?}");
    assert_eq!((&seen[0]["user"], &seen[0]["release"]), (&json!(""), &json!(RELEASE)));
    let resumed = json!({"spec": {"suspend": false}});
    scene.admin.merge(&scene.guarded_release(RELEASE), &resumed).await.done().unwrap();
    let seen = rows_with(&guard, "Resume").await;
    assert_eq!(seen[0]["detail"], "the guard saw it; the user is not known");
    assert_eq!(rows_with(&guard, "Start").await.len(), 2);
}
