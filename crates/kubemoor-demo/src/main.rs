//! Demonstrates the guard on a real control plane, with the real output of all programs.
//!
//! Run it as `make demo`, or as `kubemoor-demo PATH_OF_KUBEMOOR` with the variables that `tests/control-plane/provide`
//! prints. It starts etcd, kube-apiserver, kube-controller-manager and the guard on loopback. Then Helm installs a
//! release, and Alice, who is a cluster administrator, tries to change it by hand: see [`play`]. When this program
//! ends, even by a failure or Ctrl-C, all others are killed and no files are left.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the demo is what it prints")]

mod cluster;
mod stage;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use cluster::{DemoCluster, GUARD_FLAGS};
use stage::DemoStage;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nThe demo failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let program = env::args_os().nth(1).map(PathBuf::from);
    let program = program.context("name the program of the guard: kubemoor-demo target/debug/kubemoor")?;
    ensure!(program.is_file(), "{} is not there: build it with `cargo build`", program.display());
    let stage = DemoStage::open()?;
    play(&stage, &program).map_err(|error| stage.explain(&error))?;
    stage.say("Done. Stopping all programs");
    Ok(())
}

fn play(stage: &DemoStage, program: &Path) -> Result<()> {
    let cluster = &DemoCluster::start(stage)?;

    stage.say("Helm installs the release \"shop\": a Deployment and a ConfigMap");
    cluster.helm("install", "registry.example/shop:1")?;
    show(cluster, "get deployments,configmaps --selector=app.kubernetes.io/managed-by=Helm")?;

    stage.say(&format!("Starting the guard: kubemoor {GUARD_FLAGS}"));
    cluster.start_guard(program)?;

    stage.say("Alice changes fields that the release declares: the guard denies it");
    assert_denied(cluster, "scale deployment/web --replicas=5")?;
    assert_denied(cluster, "set image deployment/web app=registry.example/shop:latest")?;
    assert_denied(
        cluster,
        r#"patch configmap/settings --patch={"data":{"image":"registry.example/shop:mine"}}"#,
    )?;
    assert_denied(cluster, "delete configmap/settings")?;

    stage.say("Alice changes a field that the release does not declare: the guard allows it");
    show(cluster, "annotate configmap/settings example.org/looked-at-by=alice")?;

    stage.say("Helm upgrades the release: the guard lets Helm pass");
    cluster.helm("upgrade", "registry.example/shop:2")?;
    assert_image(cluster, "get deployment/web --output=jsonpath={..image}", "registry.example/shop:2")?;

    stage.say("Alice removes the webhook, and deletes an object before the guard has registered it again");
    let before =
        uid_of_settings(cluster)?.context("ConfigMap \"settings\" is missing before its deletion")?;
    delete_behind_the_guards_back(cluster)?;
    let deleted = Instant::now();
    stage.wait_until("the guard to re-create ConfigMap \"settings\"", || {
        Ok(uid_of_settings(cluster)?.is_some_and(|uid| uid != before))
    })?;
    stage.say(&format!("The guard re-created the ConfigMap {:.1} s later", deleted.elapsed().as_secs_f32()));
    show(cluster, "get configmap/settings")?;

    stage.say("Helm upgrades the release again: the repair is not in its way");
    cluster.helm("upgrade", "registry.example/shop:3")?;
    assert_image(cluster, "get configmap/settings --output=jsonpath={.data.image}", "registry.example/shop:3")
}

/// Runs kubectl as Alice, shows command and output, and returns what it wrote to standard output.
fn show(cluster: &DemoCluster, command: &str) -> Result<String> {
    let output = cluster.kubectl("alice", command)?;
    println!("alice$ kubectl {}\n{}\n", quoted(command), output.text());
    ensure!(output.succeeded, "`kubectl {command}` failed, although nothing forbids it");
    Ok(output.stdout)
}

fn assert_denied(cluster: &DemoCluster, command: &str) -> Result<()> {
    let output = cluster.kubectl("alice", command)?;
    println!("alice$ kubectl {}\n{}\n", quoted(command), output.text());
    ensure!(
        !output.succeeded,
        "the guard allowed `kubectl {command}`, although the release declares the object"
    );
    ensure!(output.stderr.contains("denied the request"), "`kubectl {command}` failed, but not by a denial");
    Ok(())
}

fn assert_image(cluster: &DemoCluster, command: &str, expected: &str) -> Result<()> {
    let image = show(cluster, command)?;
    ensure!(image == expected, "the image is \"{image}\" after the upgrade, not \"{expected}\"");
    Ok(())
}

/// The command as a user types it, with JSON in quotes for the shell.
fn quoted(command: &str) -> String {
    match command.split_once('{') {
        Some((before, after)) => format!("{before}'{{{after}'"),
        None => command.to_owned(),
    }
}

fn uid_of_settings(cluster: &DemoCluster) -> Result<Option<String>> {
    let get = "get configmap/settings --ignore-not-found --output=jsonpath={.metadata.uid}";
    let output = cluster.kubectl("alice", get)?;
    ensure!(output.succeeded, "cannot read ConfigMap \"settings\": {}", output.text());
    Ok(Some(output.stdout).filter(|uid| !uid.is_empty()))
}

/// Deletes the webhook and the ConfigMap, and retries while denied: the guard registers its webhook again at once.
fn delete_behind_the_guards_back(cluster: &DemoCluster) -> Result<()> {
    let delete =
        "delete validatingwebhookconfiguration/kubemoor configmap/settings --ignore-not-found --wait=false";
    for _ in 0..100 {
        let output = cluster.kubectl("alice", delete)?;
        if output.succeeded {
            println!("alice$ kubectl {delete}\n{}\n", output.text());
            return Ok(());
        }
        ensure!(output.stderr.contains("denied the request"), "`kubectl {delete}` failed: {}", output.text());
    }
    bail!("Alice could not delete ConfigMap \"settings\": the guard registered its webhook again each time")
}
