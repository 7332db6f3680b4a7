//! What shells and kubectl are told when a person presses the tabulator key; and the manual pages.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use clap::CommandFactory;
use kubemoor::cli::Cli;
use serde_json::json;

use crate::support::{Caller, Identity, SOON, eventually, unguarded};

/// What is printed to complete the last of these words.
fn completed(program: &str, shell: Option<&str>, words: &[&str]) -> String {
    let mut command = Command::new(program);
    if let Some(shell) = shell {
        let index = words.len().saturating_sub(1).to_string();
        command.env("KUBEMOOR_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", index).env("_CLAP_IFS", "\n");
        command.arg("--");
    }
    let output = command.args(words).env_remove("KUBECONFIG").env("HOME", "/nonexistent").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_objects_namespaces_and_contexts_are_completed() {
    let control_plane = unguarded();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let namespace = control_plane.namespace("completion").await;
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases");
    let guarded = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease", "metadata": {"name": "shop"}, "spec": {},
    });
    eventually("the kind is served", SOON, || async { admin.post(&path, &guarded).await.done() }).await;
    let status = json!({"status": {"seen": [{"group": "apps", "kind": "Deployment", "name": "web"}]}});
    admin.merge(&format!("{path}/shop/status"), &status).await.done().unwrap();

    let kubeconfig = format!("--kubeconfig={}", control_plane.kubeconfig(Identity::Admin).display());
    let context = fs::read_to_string(control_plane.kubeconfig(Identity::Admin)).unwrap();
    let context: serde_json::Value = serde_saphyr::from_str(&context).unwrap();
    let context = context["contexts"][0]["name"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl_complete-moor");
    symlink(env!("CARGO_BIN_EXE_kubemoor"), &plugin).unwrap();
    let (program, plugin) = (env!("CARGO_BIN_EXE_kubemoor"), plugin.to_str().unwrap());
    let cases: [(&[&str], &str); 9] = [
        (&["diff", "-n", &namespace, &kubeconfig, "s"], "shop"),
        (&["suspend", "-n", &namespace, &kubeconfig, ""], "shop"),
        (&["reconcile", "-A", &kubeconfig, "sh"], "shop"),
        (&["explain", "-n", &namespace, &kubeconfig, "dep"], "deployment/web"),
        (&["allow", "-n", &namespace, &kubeconfig, "dep"], "deployment/web"),
        (&["diff", &kubeconfig, "-n", "completion"], &namespace),
        (&["diff", &kubeconfig, "--context", ""], context),
        (&["susp"], "suspend"),
        (&["diff", "--set"], "--settle"),
    ];
    for (words, expected) in cases {
        for shell in ["bash", "zsh", "fish"] {
            let told = completed(program, Some(shell), &[&["kubemoor"], words].concat());
            let is_there = |line: &str| line.split(['\t', ':']).next() == Some(expected);
            assert!(told.lines().any(is_there), "{shell} {words:?}: {told:?}");
        }
        let told = completed(plugin, None, words);
        assert!(told.ends_with("\n:4\n"), "{told:?}");
        assert!(told.lines().any(|line| line.split('\t').next() == Some(expected)), "{words:?}: {told:?}");
    }
    // A cluster that cannot be asked has no candidates, and nobody is told.
    let nowhere = completed(program, Some("bash"), &["kubemoor", "diff", "--kubeconfig=/nonexistent", "x"]);
    assert_eq!(nowhere.trim(), "");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    let output = Command::new(env!("CARGO_BIN_EXE_kubemoor")).arg("man").arg(&pages).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let page = fs::read_to_string(pages.join(format!("kubemoor-{}.1", command.get_name()))).unwrap();
        assert!(page.contains(".TH kubemoor-"), "{page}");
    }
    let nested = fs::read_to_string(pages.join("kubemoor-get-releases.1")).unwrap();
    assert!(nested.contains("no\\-headers"), "{nested}");
}
