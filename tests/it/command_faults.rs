//! What is wrong with a call, a cluster or a disk: each client command says it in one sentence, and exits with 2.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use clap::CommandFactory;
use kubemoor::cli::Cli;
use serde_json::{Value, json};

use crate::command_diff::install;
use crate::support::{ControlPlane, Identity, Ran, changed, moor, run, unguarded};

const TEMPLATES: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast}\n";

/// Every command that talks to a cluster, `serve` aside.
pub(crate) const CLIENTS: [&str; 20] = [
    "diff",
    "doctor",
    "forecast",
    "allow",
    "revoke",
    "get allowances",
    "get policies",
    "get releases",
    "emergency open",
    "emergency close",
    "emergency status",
    "explain",
    "audit",
    "audit report",
    "policy lint",
    "policy import flux",
    "policy replay",
    "reconcile",
    "suspend",
    "resume",
];

/// Commands that choose their clusters in a way of their own.
const OTHERS: [&str; 4] = ["serve", "ui", "uninstall", "version"];

/// A call of a command.
fn call(command: &str) -> Vec<&str> {
    let more: &[&str] = match command {
        "diff" | "forecast" | "reconcile" | "suspend" | "resume" => &["shop"],
        "allow" => &["cm/settings", "--path", "/data/mode", "--for", "1h"],
        "policy replay" => &["policies"],
        "revoke" | "explain" => &["configmap/settings"],
        _ => &[],
    };
    command.split(' ').chain(more.iter().copied()).collect()
}

/// Runs a command with one of its streams elsewhere.
fn with_output(arguments: &[&str], out: Stdio) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).output().unwrap().into()
}

#[test]
fn no_command_that_talks_to_a_cluster_is_forgotten() {
    let cli = Cli::command();
    let mut real = BTreeSet::new();
    let mut open: Vec<_> = cli.get_subcommands().map(|it| (it.get_name().to_owned(), it)).collect();
    while let Some((name, command)) = open.pop() {
        if command.get_arguments().any(|argument| argument.get_long() == Some("kubeconfig")) {
            real.insert(name.clone());
        }
        open.extend(command.get_subcommands().map(|it| (format!("{name} {}", it.get_name()), it)));
    }
    let told = CLIENTS.into_iter().chain(OTHERS).map(str::to_owned).collect();
    assert_eq!(real, told);
}

#[test]
fn time_of_requests_to_a_silent_server_is_limited() {
    // The kernel takes connections for an API server that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    let kubeconfig = changed(&unguarded().kubeconfig(Identity::Admin), |config| {
        config["clusters"][0]["cluster"]["server"] = json!(server);
    });
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let ran = run(&["get", "releases", "-A", "--request-timeout", "1ms", &kubeconfig], "");
    assert!(ran.code == 2 && ran.error.contains("cannot"), "{ran:?}");
}

#[test]
fn unreachable_cluster_is_reported_in_one_sentence_with_exit_2() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = fs::read_to_string(unguarded().kubeconfig(Identity::Alice)).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut config: Value = serde_json::from_str(&text).unwrap();
        change(&mut config);
        config.to_string()
    };
    let real = write("real", &text);
    let unreachable = write(
        "unreachable",
        &changed(&|it| it["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1")),
    );
    let unknown = write("unknown", &changed(&|it| it["users"][0]["user"]["token"] = json!("made-up")));
    let broken = write("broken", "users:\n- name: a\n  user: {token: s3cret, exec: 5}\n");
    for command in CLIENTS.into_iter().chain(["uninstall"]) {
        let cases: [(Vec<&str>, Vec<&str>); 6] = [
            (vec!["--kubeconfig", "/nowhere/config"], vec!["/nowhere/config"]),
            (vec!["--kubeconfig", &broken], vec![&broken, "cannot be used"]),
            (vec!["--kubeconfig", &real, "--context", "elsewhere"], vec!["elsewhere"]),
            (vec![], vec!["--kubeconfig or KUBECONFIG"]),
            (vec!["--kubeconfig", &unreachable], vec!["127.0.0.1:1", "cannot be reached", "--context"]),
            (vec!["--kubeconfig", &unknown], vec!["does not accept these credentials"]),
        ];
        for (flags, says) in cases {
            let ran = run(&[&call(command), &flags[..]].concat(), "");
            assert!(ran.out.is_empty() && !ran.error.contains("s3cret"), "{command} {flags:?}: {ran:?}");
            ran.assert_failed(&says);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_or_ambiguous_name_is_reported_with_exit_2() {
    let namespace = install("faults", TEMPLATES).await;
    for (arguments, says) in [
        (&["diff", "none"][..], &["there is no release none", "helm list"][..]),
        (&["forecast", "none"], &["there is no release none", "helm list"]),
        (&["reconcile", "none"], &["there is no GuardedRelease none", "kubemoor get releases"]),
        (&["suspend", "none"], &["there is no GuardedRelease none", "kubemoor get releases"]),
        (&["resume", "none"], &["there is no GuardedRelease none", "kubemoor get releases"]),
        (&["revoke", "none"], &["there is no allowance none", "kubemoor get allowances"]),
        (&["revoke", "cm/settings"], &["there is no allowance for", "kubemoor get allowances"]),
        (&["revoke", "none/none"], &["serves no kind none", "such as"]),
        (&["explain", "gadget/web"], &["serves no kind gadget", "such as"]),
        (&["explain", "event/web"], &["event may be", "events.events.k8s.io", "before the name"]),
        (&["revoke", "event/web"], &["event may be", "before the name"]),
        (&["allow", "event/web", "--path", "*", "--for", "1h"], &["event may be", "before the name"]),
        (&["allow", "cm/settings", "--path", "*", "--until", "2020-01-01T00:00:00Z"], &["2020-01-01"]),
    ] {
        let ran = moor(unguarded(), Identity::Alice, &[arguments, &["-n", &namespace]].concat());
        assert!(ran.out.is_empty(), "{arguments:?}: {ran:?}");
        ran.assert_failed(says);
    }
    // Each of the names that are offered is taken.
    for kind in ["events.", "events.events.k8s.io"] {
        let ran = moor(unguarded(), Identity::Alice, &["explain", &format!("{kind}/web"), "-n", &namespace]);
        assert!(ran.code == 0 && ran.out.contains("absent"), "{kind}: {ran:?}");
    }
    // What has no such thing is no fault.
    for what in ["releases", "allowances"] {
        let says = format!("kubemoor: no {what} found in namespace nowhere\n");
        let ran = moor(unguarded(), Identity::Alice, &["get", what, "-n", "nowhere"]);
        assert_eq!((ran.code, ran.out.as_str(), ran.error.as_str()), (0, "", says.as_str()), "{what}");
    }
}

#[test]
fn malformed_argument_is_reported_with_expected_form_and_exit_2() {
    for (arguments, says) in [
        (&["audit", "--since", "yesterday"][..], &["24h or 90m", "2026-11-21T08:00:00Z"][..]),
        (&["audit", "--since=-5h"], &["24h or 90m"]),
        (&["audit", "--since", "0s"], &["24h or 90m"]),
        (&["audit", "--limit=-1"], &["--limit"]),
        (&["audit", "--verdict", "Denied"], &["unknown verdict", "Deny, Revert, Warn", "record-invalid"]),
        (&["audit", "--operation", "patch"], &["CREATE, UPDATE or DELETE"]),
        (&["audit", "--object", "web"], &["KIND/NAME"]),
        (&["audit", "--follow", "--until", "1h"], &["--follow and --until cannot be used together"]),
        (&["audit", "--ledger", "sqlite:/nowhere/x.db", "-A"], &["there is no ledger at"]),
        (&["audit", "--server", "guard"], &["https://HOST[:PORT]"]),
        (&["audit", "--ledger", "mysql://db"], &["sqlite:PATH or postgres://"]),
        (&["audit", "--as", "carol"], &["remove --as"]),
        (&["allow", "cm/x", "--path", "*"], &["--for", "--until"]),
        (&["allow", "cm/x", "--path", "replicas", "--for", "1h"], &["replicas"]),
        (&["allow", "cm/x", "--path", "*", "--for", "soon"], &["soon"]),
        (&["allow", "x", "--path", "*", "--for", "1h"], &["KIND/NAME"]),
        (&["ui", "--kubeconfig", "/nowhere/config"], &["/nowhere/config"]),
        (&["ui", "--server", "http://guard"], &["https://HOST[:PORT]"]),
        (&["ui", "--context", "a", "--context", "a"], &["a --context is given twice"]),
        (&["ui", "--context", "a", "--context", "b", "--server", "https://guard"], &["remove --server"]),
        (&["fleet", "--ledger", "sqlite:/nowhere/x.db"], &["there is no ledger at"]),
        (&["fleet", "--ledger", "mysql://db"], &["sqlite:PATH or postgres://"]),
        (&["fleet"], &["set it with --ledger", "kubemoor get releases -A --contexts"]),
        (&["fleet", "--state", "broken"], &["unknown state", "Drifted", "NotGuarded"]),
        (&["fleet", "-o", "xml"], &["table, wide, name, csv, json, yaml"]),
        (&["fleet", "releases", "Shop!"], &["a release's name must have"]),
        (&["get", "releases", "--contexts", "a,b", "--context", "a"], &["cannot be used with"]),
        (&["get", "releases", "--contexts", "a,b", "--watch"], &["choose it with --context"]),
        (&["diff", "Shop!"], &["a release's name must have"]),
        (&["diff", "shop", "-n", "A_b"], &["a namespace's name must have"]),
        (&["diff", "shop", "-o", "xml"], &["table, unified, json, yaml"]),
        (&["get", "releases", "-o", "xml"], &["table, wide, name, csv, json, yaml"]),
        (&["get", "releases", "--state", "broken"], &["unknown state", "Drifted", "NotGuarded"]),
        (&["get", "releases", "--request-timeout", "soon"], &["1h, 90m or 30d"]),
        (&["get", "releases", "--token", "a b"], &["bearer token"]),
        (&["reconcile"], &["<RELEASE>"]),
        (&["reconcile", "shop", "-A"], &["--all-namespaces"]),
        (&["policy", "test", "x", "-o", "xml"], &["table, junit, json, yaml"]),
        (&["diff", "shop", "--as-group", "x"], &["--as"]),
        (&["explain", "cm/x", "--path", "[x"], &["--path", "/"]),
        (&["explain", "cm/x", "--path", "replicas/"], &["--path", "/"]),
        (&["diff", "shop", "-l", "a=b"], &["--selector"]),
        (&["diff", "shop", "-A"], &["--all-namespaces"]),
        (&["serve", "--nonsense"], &["--nonsense"]),
        (&["serve", "--register"], &["--register requires --webhook-url or --service"]),
        (&["manifests", "webhook", "--ca-file", "/nowhere/ca"], &["/nowhere/ca"]),
        (&["manifests"], &["install"]),
        (&[], &["serve"]),
        (&["policy", "test", "/nowhere"], &["/nowhere"]),
        (&["check", "--release", "/nowhere", "--review", "/nowhere"], &["/nowhere"]),
    ] {
        let ran = run(arguments, "");
        assert!(ran.code == 2 && ran.out.is_empty(), "{arguments:?}: {ran:?}");
        for part in says {
            assert!(ran.error.contains(part), "{arguments:?}: {part} is not in {ran:?}");
        }
        let sentences =
            ran.error.lines().filter(|line| !line.is_empty() && !line.starts_with("For more")).count();
        assert!(sentences >= 1, "{arguments:?}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn changing_commands_report_their_result_in_json_output() {
    let namespace = install("told", TEMPLATES).await;
    let told = |arguments: &[&str]| {
        let ran =
            moor(unguarded(), Identity::Alice, &[arguments, &["-n", &namespace, "-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    let path = "/data/mode";
    let until = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_hours(1)).unwrap().to_string();
    let allow = ["allow", "cm/settings", "--path", path, "--path", "delete", "--until", &until];
    let made = told(&allow);
    assert_eq!(made.error, "", "{made:?}");
    let (made, again) = (made.json(), told(&allow).json());
    assert_eq!((&made["created"], &again["created"]), (&json!(true), &json!(false)), "{again}");
    assert_eq!((&made["name"], &made["paths"]), (&again["name"], &json!([path, "delete"])), "{made}");
    assert_eq!(made["object"]["kind"], json!("ConfigMap"), "{made}");
    let revoked = told(&["revoke", "configmap/settings"]).json();
    assert_eq!(revoked, json!({"namespace": namespace, "names": [made["name"]]}));

    // Others would be told that the emergency is open.
    let own = ControlPlane::start();
    let cluster = |arguments: &[&str]| {
        let ran = moor(&own, Identity::Alice, &[arguments, &["-o", "json"]].concat());
        assert_eq!((ran.code, ran.error.as_str()), (0, ""), "{ran:?}");
        ran.json()
    };
    assert_eq!(cluster(&["emergency", "off"]), json!({"open": true, "removed": 0}));
    assert_eq!(cluster(&["emergency", "on"]), json!({"open": false, "enforcement": "Empty"}));
    assert_eq!(cluster(&["emergency", "on"]), json!({"open": false, "enforcement": "Already"}));
    assert_eq!(cluster(&["uninstall"]), json!({"withdrawn": false}));
}

/// The commands whose answer is not empty here, with flags for the cluster.
fn printing(kubeconfig: &str, namespace: &str) -> Vec<Vec<String>> {
    let policies = concat!(env!("CARGO_MANIFEST_DIR"), "/policies");
    // Others install things meanwhile, but not there.
    let cluster = ["-n", namespace, "--kubeconfig", kubeconfig];
    let calls: [Vec<&str>; 11] = [
        vec!["version", "--client"],
        vec!["completions", "bash"],
        vec!["manifests", "crds"],
        vec!["manifests", "install"],
        vec!["policy", "test", policies],
        [&["diff", "shop"][..], &cluster].concat(),
        [&["diff", "shop", "-o", "json"][..], &cluster].concat(),
        [&["get", "releases", "-o", "yaml"][..], &cluster].concat(),
        [&["get", "allowances", "-o", "json"][..], &cluster].concat(),
        vec!["policy", "test", policies, "-o", "junit"],
        [&["explain", "cm/settings"][..], &cluster].concat(),
    ];
    calls.map(|call| call.into_iter().map(str::to_owned).collect()).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_full_disk_is_one_sentence_and_exit_2() {
    let namespace = install("full", TEMPLATES).await;
    let kubeconfig = unguarded().kubeconfig(Identity::Alice);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let forecast =
        ["forecast", "shop", "-n", &namespace, "--kubeconfig", kubeconfig].map(str::to_owned).to_vec();
    for call in printing(kubeconfig, &namespace).into_iter().chain([forecast]) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let call: Vec<_> = call.iter().map(String::as_str).collect();
        with_output(&call, full.into()).assert_failed(&["cannot write to standard output", "No space left"]);
    }
    // A file that cannot be written is named, and no half of one is left to be taken for the whole.
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("tls");
    let certs = |limit: &str| {
        let script = format!(
            "trap '' XFSZ; ulimit -f {limit}; exec \"$0\" certs --tls-dir \"$1\" --service guard/moor"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_kubemoor"), dir.to_str().unwrap()]);
        Ran::from(command.output().unwrap())
    };
    certs("0").assert_failed(&[dir.to_str().unwrap(), "too large"]);
    let made = certs("unlimited");
    assert!(made.code == 0 && made.out.contains("created"), "{made:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn a_reader_that_goes_away_costs_nothing() {
    let namespace = install("pipe", TEMPLATES).await;
    let kubeconfig = unguarded().kubeconfig(Identity::Alice);
    for call in printing(kubeconfig.to_str().unwrap(), &namespace) {
        let call: Vec<_> = call.iter().map(String::as_str).collect();
        let whole = run(&call, "");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.args(&call).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.error), (whole.code, whole.error), "{call:?}");
    }
}
