//! `kubemoor get ... --watch`: rows as they come, change and go.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{Caller, DRIFT_POLICIES, Identity, SOON, budget, drift_policy, eventually, unguarded};

/// A command that goes on, and the lines that it prints.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(arguments: &[&str]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", unguarded().kubeconfig(Identity::Admin).display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.args(arguments).arg(kubeconfig).env_remove("KUBECONFIG").env("HOME", "/nonexistent");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (told, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).all(|line| told.send(line).is_ok()));
        Self { child, lines }
    }

    /// The next line.
    #[track_caller]
    fn line(&mut self) -> String {
        match self.lines.recv_timeout(budget()) {
            Ok(line) => line,
            Err(error) => {
                self.child.kill().unwrap();
                let mut said = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("no line came: {error}: {said}")
            }
        }
    }

    /// The words of the next line.
    #[track_caller]
    fn words(&mut self) -> Vec<String> {
        self.line().split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn allowances_are_followed_from_the_first_to_the_last() {
    let control_plane = unguarded();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let namespace = control_plane.namespace("watch-allowances").await;
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/driftallowances");
    let until = Timestamp::now().checked_add(SignedDuration::from_hours(1)).unwrap().to_string();
    let allowance = |name: &str, reason: &str| {
        json!({
            "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance", "metadata": {"name": name},
            "spec": {
                "object": {"group": "apps", "kind": "Deployment", "namespace": namespace, "name": "web"},
                "paths": ["/spec/replicas"], "until": until, "reason": reason,
            },
        })
    };
    eventually("the kind is served", SOON, || async {
        admin.post(&path, &allowance("first", "a")).await.done()
    })
    .await;
    let mut table = Watching::start(&["get", "allowances", "-w", "-n", &namespace]);
    let mut names = Watching::start(&["get", "allowances", "--watch", "-n", &namespace, "-o", "name"]);
    assert_eq!(table.words()[..2], ["NAME", "OBJECT"]);
    let first = table.words();
    assert_eq!((first[0].as_str(), first[4].as_str()), ("first", "Open"));
    assert_eq!(names.line(), "driftallowance.kubemoor.dev/first");
    admin.post(&path, &allowance("second", "b")).await.done().unwrap();
    let second = table.words();
    assert_eq!((second[0].as_str(), second[4].as_str(), second[5].as_str()), ("second", "Open", "b"));
    assert_eq!(names.line(), "driftallowance.kubemoor.dev/second");
    // What changes nothing of the row prints none.
    let first = format!("{path}/first");
    admin.merge(&first, &json!({"metadata": {"labels": {"a": "b"}}})).await.done().unwrap();
    admin.merge(&first, &json!({"spec": {"reason": "c"}})).await.done().unwrap();
    assert_eq!(table.words().last().unwrap(), "c");
    admin.delete(&first).await.done().unwrap();
    let gone = table.words();
    assert_eq!((gone[0].as_str(), gone[4].as_str()), ("first", "Deleted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_are_followed_as_their_guard_speaks_of_them() {
    let control_plane = unguarded();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let namespace = control_plane.namespace("watch-releases").await;
    let path = format!("/apis/kubemoor.dev/v1alpha1/namespaces/{namespace}/guardedreleases");
    let guarded = json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "GuardedRelease",
        "metadata": {"name": "shop"}, "spec": {},
    });
    eventually("the kind is served", SOON, || async { admin.post(&path, &guarded).await.done() }).await;
    let mut table = Watching::start(&["get", "releases", "-w", "-n", &namespace, "--no-headers"]);
    let mut drifted =
        Watching::start(&["get", "releases", "-w", "-n", &namespace, "--state", "drifted", "-o", "json"]);
    assert_eq!(table.words()[1..3], ["shop", "Unknown"]);
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "Drifted", "message": "1 of 2 objects drifted",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"status": {"conditions": [condition], "drifted": 1, "declared": 2}});
    let shop = format!("{path}/shop");
    admin.merge(&format!("{shop}/status"), &status).await.done().unwrap();
    assert_eq!(table.words()[1..4], ["shop", "False", "Drifted"]);
    assert_eq!(drifted.line(), "{");
    admin.delete(&shop).await.done().unwrap();
    assert_eq!(table.words()[1..4], ["shop", "-", "NotGuarded"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn policies_are_followed_as_they_come_change_and_go() {
    let admin = Caller::new(unguarded(), Identity::Admin).await;
    let policy = |name: &str| {
        let spec = json!({"edits": "Warn", "priority": 7, "releases": {"names": ["no-such-release"]}});
        let mut policy = drift_policy(name, spec);
        policy["metadata"]["labels"] = json!({"team": "watched"});
        policy
    };
    eventually("the kind is served", SOON, || async {
        admin.post(DRIFT_POLICIES, &policy("watched-first")).await.done()
    })
    .await;
    let mut table = Watching::start(&["get", "policies", "-w", "-l", "team=watched", "--no-headers"]);
    assert_eq!(table.words()[..5], ["watched-first", "7", "Warn", "-", "Unknown"]);
    admin.post(DRIFT_POLICIES, &policy("watched-second")).await.done().unwrap();
    assert_eq!(table.words()[..2], ["watched-second", "7"]);
    let first = format!("{DRIFT_POLICIES}/watched-first");
    admin.merge(&first, &json!({"spec": {"edits": "Deny"}})).await.done().unwrap();
    assert_eq!(table.words()[..3], ["watched-first", "7", "Deny"]);
    admin.delete(&first).await.done().unwrap();
    assert_eq!(table.words()[..6], ["watched-first", "7", "Deny", "-", "False", "Deleted"]);
}
