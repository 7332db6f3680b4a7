//! What `kubemoor manifests` prints, on a real API server; and the exit codes and sentences of the program itself.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{
    ControlPlane, Identity, SOON, Shell, Statement, eventually, folder, moor, token_file, unguarded,
};

fn kubemoor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kubemoor")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = kubemoor(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn kubectl(control_plane: &ControlPlane, arguments: &[&str]) -> Value {
    let output = control_plane.kubectl(Identity::Admin, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Applies `manifests` and returns what the server holds then.
fn apply(control_plane: &ControlPlane, manifests: &str, flags: &[&str]) -> Value {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(manifests.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    kubectl(control_plane, &[&["apply", "-o", "json", "-f", &path], flags].concat())
}

/// What installs Kubemoor on this cluster.
fn installation(control_plane: &ControlPlane, flags: &[&str]) -> String {
    let version = format!("--kube-version=1.{}", control_plane.minor());
    printed(&[&["manifests", "install", &version], flags].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_creates_pods_and_keeps_added_rights_when_reapplied() {
    let flags = ["--namespace", "guard-elsewhere", "--edits", "Deny", "--drift", "Repair"];
    // Of its own: the rights of the shared one belong to the guard that runs there.
    let control_plane = ControlPlane::start();
    let manifests = installation(&control_plane, &flags);
    apply(&control_plane, &manifests, &[]);
    for role in ["auditor", "emergency", "exceptions", "operator", "viewer"] {
        kubectl(&control_plane, &["get", "clusterrole", &format!("kubemoor-{role}"), "-o", "json"]);
    }
    kubectl(&control_plane, &["-n", "guard-elsewhere", "get", "role", "kubemoor-portforward", "-o", "json"]);
    let budget = ["-n", "guard-elsewhere", "get", "poddisruptionbudget", "kubemoor", "-o", "json"];
    assert_eq!(kubectl(&control_plane, &budget)["spec"]["maxUnavailable"], 1);
    let deployment = ["-n", "guard-elsewhere", "get", "deployment", "kubemoor", "-o", "json"];
    eventually("the pod of the installation is made", SOON, || async {
        kubectl(&control_plane, &deployment)["status"]["replicas"] == 2
    })
    .await;

    // A role with the label adds to the guard's, and to apply again takes nothing of it back.
    let widgets = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: widgets\n  \
                   labels: {kubemoor.dev/aggregate-to-guard: \"true\"}\nrules:\n\
                   - {apiGroups: [example.org], resources: [widgets], verbs: [get, list, watch]}\n";
    apply(&control_plane, widgets, &[]);
    let role = ["get", "clusterrole", "kubemoor-custom-resources", "-o", "json"];
    let added = eventually("the label makes a role count", SOON, || async {
        let role = kubectl(&control_plane, &role);
        (role["rules"][0]["resources"][0] == "widgets").then_some(role)
    })
    .await;
    apply(&control_plane, &manifests, &[]);
    let now = kubectl(&control_plane, &role);
    assert_eq!(now["metadata"]["resourceVersion"], added["metadata"]["resourceVersion"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn printed_commands_leave_nothing_of_all_modes_and_an_emergency() {
    let control_plane = ControlPlane::start();
    let has_admission_policies = control_plane.minor() >= 30;
    apply(&control_plane, &printed(&["manifests", "crds"]), &["--validate=false"]);
    apply(&control_plane, &installation(&control_plane, &["--drift=Repair"]), &[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/enforce");
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        if has_admission_policies || !text.contains("kind: ValidatingAdmissionPolicy") {
            apply(&control_plane, &text, &[]);
        }
    }
    let opened = moor(&control_plane, Identity::Admin, &["emergency", "open", "--reason", "a test"]);
    assert_eq!(opened.code, 0, "{opened:?}");
    // The users of the tests have their rights by a binding of that name.
    let left = || {
        let mut rows = control_plane.everything();
        rows.retain(|row| row.contains("kubemoor") && !row.ends_with("/kubemoor-test-users"));
        rows
    };
    for row in
        ["ClusterRole//kubemoor-privileged-repair", "ValidatingWebhookConfiguration//kubemoor-emergency"]
    {
        assert!(left().contains(row), "{:?}", left());
    }

    let ran = moor(&control_plane, Identity::Admin, &["uninstall"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let commands: Vec<_> = ran.out.lines().filter(|line| line.starts_with("  kubectl ")).collect();
    assert_eq!(commands.len(), if has_admission_policies { 4 } else { 3 }, "{ran:?}");
    let shell = Shell::new(&control_plane);
    for command in commands {
        let ran = shell.run(Identity::Alice, &Statement { line: command.trim().to_owned(), input: None });
        assert_eq!(ran.code, 0, "{command}: {ran:?}");
    }
    eventually("nothing is left", SOON, || async {
        let left = left();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_static_webhook_is_accepted() {
    // Without a guard, which would keep the configuration of that name.
    let control_plane = unguarded();
    // As a dry run: the control plane is shared.
    let token = token_file(&folder("token"));
    let token = format!("--caller-token-file={}", token.display());
    for flags in [
        &[token.as_str()][..],
        &["--no-caller-token"],
        &[&token, "--webhook-url", "https://127.0.0.1:9443", "--select-all", "--record-driver", "configmap"],
    ] {
        let manifest = printed(&[&["manifests", "webhook"], flags].concat());
        let held = apply(control_plane, &manifest, &["--dry-run=server"]);
        let webhooks = held["items"][0]["webhooks"].as_array().unwrap();
        assert!(webhooks.iter().any(|webhook| webhook["name"] == "v1.apps.edits.kubemoor.dev"), "{held}");
    }
    // Nobody applies it by mistake without a token.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/static/webhook.yaml");
    let refused = control_plane.kubectl(Identity::Admin, &["apply", "--dry-run=server", "-f", file]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("CALLER_TOKEN"), "{said}");
}
