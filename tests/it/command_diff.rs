//! `kubemoor diff` on a real control plane without a guard.

use serde_json::{Value, json};

use crate::support::{
    Caller, DRIFT_POLICIES, Identity, Ran, SOON, Scene, charts, drift_policy, eventually, moor, unguarded,
};

const TEMPLATES: &str = concat!(
    charts::deployment!(
        r#"{name: app, image: "app:1", resources: {requests: {cpu: 1000m}}, env: [{name: A, value: a}, {name: B, value: b}]}"#
    ),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hunter2}\n---",
    charts::config_map!("settings", "{mode: fast}"),
);

/// Installs the release `shop` into a new namespace, where no guard denies or repairs what drifts.
pub(crate) async fn install(prefix: &str, templates: &str) -> String {
    Scene::on(unguarded()).install(prefix, templates).await.namespace
}

fn diff(namespace: &str, flags: &[&str]) -> Ran {
    moor(unguarded(), Identity::Alice, &[&["diff", "shop", "-n", namespace], flags].concat())
}

/// A release of which all three objects drifted.
struct Drifted {
    namespace: String,
    alice: Caller,
    web: String,
}

/// A removed element of the Deployment.
const ENV: &str = "/spec/template/spec/containers/0/env/1";

impl Drifted {
    async fn install() -> Self {
        let namespace = install("diff", TEMPLATES).await;
        let alice = Caller::new(unguarded(), Identity::Alice).await;
        let clean = diff(&namespace, &[]);
        assert_eq!((clean.code, clean.error.as_str()), (0, ""), "{clean:?}");
        assert!(clean.out.contains("(revision 1, deployed): 3 objects, no drift"), "{clean:?}");

        let web = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web");
        alice.merge(&web, &json!({"spec": {"replicas": 5}})).await.done().unwrap();
        alice.patch(&web, "remove", ENV, &Value::Null).await.done().unwrap();
        let core = format!("/api/v1/namespaces/{namespace}");
        let secret = json!({"data": {"password": "c3dvcmRmaXNo"}});
        alice.merge(&format!("{core}/secrets/key"), &secret).await.done().unwrap();
        alice.delete(&format!("{core}/configmaps/settings")).await.done().unwrap();
        Self { namespace, alice, web }
    }
}

#[track_caller]
fn assert_shows(ran: &Ran, parts: &[&str]) {
    for part in parts {
        assert!(ran.out.contains(part), "{part} is not in {}", ran.out);
    }
}

#[track_caller]
fn assert_hides_secrets(ran: &Ran) {
    let text = format!("{ran:?}");
    for secret in ["hunter2", "swordfish", "c3dvcmRmaXNo", "aHVudGVyMg"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_compares_live_objects_with_declared_objects() {
    let Drifted { namespace, .. } = Drifted::install().await;
    let drifted = diff(&namespace, &[]);
    assert_eq!((drifted.code, drifted.error.as_str()), (1, ""), "{drifted:?}");
    let parts = [
        "3 of 3 objects drifted",
        "/spec/replicas",
        "/spec/template/spec/containers/[name=app]/env/[name=B]",
        "one element",
        "removed",
        "ConfigMap/settings",
        "missing",
        "(redacted)",
    ];
    assert_shows(&drifted, &parts);
    assert!(!drifted.out.contains('\u{1b}'), "colours for no terminal: {drifted:?}");
    assert_hides_secrets(&drifted);

    let unified = diff(&namespace, &["-o", "unified"]);
    assert_eq!((unified.code, unified.error.as_str()), (1, ""), "{unified:?}");
    let parts = [
        "--- live Deployment/web in namespace",
        "+++ revision 1 Deployment/web in namespace",
        "\n-  replicas: 5\n+  replicas: 2\n",
        ": missing\n",
        "# Secret/key in namespace",
        "# /data/password\n",
    ];
    assert_shows(&unified, &parts);
    assert!(!unified.out.contains('\u{1b}'), "colours for no terminal: {unified:?}");
    assert_hides_secrets(&unified);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_shows_the_patches_of_repairs_and_changes_nothing() {
    let Drifted { namespace, alice, web } = Drifted::install().await;
    let dry_run = ["reconcile", "shop", "-n", &namespace, "--dry-run"];
    let preview = moor(unguarded(), Identity::Alice, &dry_run);
    assert_eq!((preview.code, preview.error.as_str()), (1, ""), "{preview:?}");
    let parts = [
        ": would be restored\n    {\"op\":",
        r#"{"op":"replace","path":"/spec/replicas","value":2}"#,
        "would be restored (its values are secret, so the patch is not shown)",
        ": would be re-created",
    ];
    assert_shows(&preview, &parts);
    let preview = moor(unguarded(), Identity::Alice, &[&dry_run[..], &["-o", "json"]].concat()).json();
    let actions: Vec<_> =
        preview["items"][0]["changes"].as_array().unwrap().iter().map(|it| &it["action"]).collect();
    assert_eq!(actions, [&json!("Restore"), &json!("Restore"), &json!("Recreate")], "{preview}");
    let live = alice.get(&web).await.done().unwrap();
    assert_eq!(live["spec"]["replicas"], 5, "a dry run changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn diff_as_json_has_states_and_patches_that_undo_drift() {
    let Drifted { namespace, alice, web } = Drifted::install().await;
    let report = diff(&namespace, &["-o", "json"]);
    assert_eq!(report.code, 1);
    assert_hides_secrets(&report);
    let release = &report.json()["items"][0];
    assert_eq!((&release["revision"], &release["status"]), (&json!(1), &json!("deployed")));
    let objects = release["objects"].as_array().unwrap();
    let states: Vec<_> = objects.iter().map(|object| (&object["name"], &object["state"])).collect();
    assert_eq!(
        states,
        [
            (&json!("key"), &json!("Drifted")),
            (&json!("web"), &json!("Drifted")),
            (&json!("settings"), &json!("Missing"))
        ]
    );
    assert!(objects[0].get("patch").is_none(), "a patch would show the Secret: {report:?}");
    let patch = objects[1]["patch"].as_array().unwrap();
    assert!(patch.contains(&json!({"op": "replace", "path": "/spec/replicas", "value": 2})), "{patch:?}");
    let is_of_env = |it: &Value| it["path"].as_str().unwrap().starts_with(ENV.trim_end_matches("/1"));
    assert!(patch.iter().any(is_of_env), "{patch:?}");
    // The patch does what it says.
    let mut live = alice.get(&web).await.body;
    let operations: json_patch::Patch = serde_json::from_value(objects[1]["patch"].clone()).unwrap();
    json_patch::patch(&mut live, &operations).unwrap();
    assert_eq!(live["spec"]["replicas"], json!(2));
    assert_eq!(live.pointer(ENV).unwrap()["name"], json!("B"));
    let yaml = diff(&namespace, &["-o", "yaml"]);
    assert!(yaml.out.contains("state: Missing"), "{yaml:?}");
    assert_hides_secrets(&yaml);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn diff_without_a_release_compares_the_whole_namespace() {
    let Drifted { namespace, .. } = Drifted::install().await;
    let whole =
        |flags: &[&str]| moor(unguarded(), Identity::Alice, &[&["diff", "-n", &namespace], flags].concat());
    let (named, unnamed) = (diff(&namespace, &["-o", "json"]).json(), whole(&["-o", "json"]));
    assert_eq!((unnamed.code, unnamed.json()), (1, named), "{unnamed:?}");
    assert_eq!(whole(&["-l", "name=shop"]).code, 1);
    let none = whole(&["-l", "name=other"]);
    assert!(none.code == 0 && none.error.contains("no releases found in namespace"), "{none:?}");
    let all = moor(unguarded(), Identity::Alice, &["diff", "-A"]);
    assert_eq!(all.code, 1, "{all:?}");
    assert!(all.out.contains(&format!("shop in namespace {namespace}")), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn diff_applies_ignore_seal_and_autoscaler_rules_of_matching_cluster_policies() {
    let scene = Scene::on(unguarded()).install("diff-policies", TEMPLATES).await;
    let namespace = scene.namespace.as_str();
    let spec = json!({
        "releases": {"namespaces": [namespace]},
        "clusterSelector": {"matchLabels": {"env": "prod"}},
        "ignore": [{"paths": ["/data/mode"]}],
        "seal": [{"target": {"kind": "Secret"}, "paths": ["/data"]}],
        "autoscalers": "Declared",
    });
    let policy = drift_policy(namespace, spec);
    eventually("the kind is served", SOON, || async {
        scene.admin.post(DRIFT_POLICIES, &policy).await.done()
    })
    .await;
    scene.data("settings", json!({"mode": "slow"})).await.done().unwrap();
    let explain = |label: &str| {
        let explain = ["explain", "cm/settings", "-n", namespace, "-o", "json", "--cluster-label", label];
        moor(unguarded(), Identity::Alice, &explain).json()
    };
    for (label, code, state) in [("env=prod", 0, "as declared"), ("env=dev", 1, "drifted")] {
        let ran = diff(namespace, &["--cluster-label", label]);
        assert_eq!(ran.code, code, "{label}: {ran:?}");
        assert_eq!(explain(label)["state"], json!(state), "{label}");
    }
    assert_eq!(
        explain("env=prod")["fields"][0]["coveredBy"],
        json!([format!("ignored by policy {namespace} at /data/mode")])
    );
    let twice = ["--cluster-label", "env=prod,env=dev"];
    diff(namespace, &twice).assert_failed(&["--cluster-label env", "two values"]);

    // By that policy an autoscaler that no release declares moves nothing, and an addition to a Secret is drift.
    scene.autoscale("web", "web", (1, 4)).await;
    scene.edit(&scene.deployment("web"), json!({"spec": {"replicas": 4}})).await;
    scene.edit(&scene.core("secrets/key"), json!({"data": {"extra": "c3dvcmRmaXNo"}})).await;
    for format in ["table", "json"] {
        let prod = diff(namespace, &["--cluster-label", "env=prod", "-o", format]);
        assert_eq!(prod.code, 1, "{prod:?}");
        assert_shows(&prod, &["/spec/replicas", "/data/extra", "(redacted)"]);
        assert_hides_secrets(&prod);
    }
    let dev = diff(namespace, &["--cluster-label", "env=dev"]);
    assert_eq!(dev.code, 1, "{dev:?}");
    assert!(!dev.out.contains("/spec/replicas") && !dev.out.contains("/data/extra"), "{dev:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_in_a_namespace_nothing_is_learned_of_it() {
    let (own, others) = (install("diff-own", TEMPLATES).await, install("diff-others", TEMPLATES).await);
    let control_plane = unguarded();
    let admin = Caller::new(control_plane, Identity::Admin).await;
    // The rights that the command reference asks for, in one namespace.
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{own}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
            {"apiGroups": ["", "apps"], "resources": ["configmaps", "deployments"], "verbs": ["get"]},
        ],
    });
    admin.post(&format!("{rbac}/roles"), &role).await.done().unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}],
    });
    admin.post(&format!("{rbac}/rolebindings"), &binding).await.done().unwrap();
    let carol = |arguments: &[&str]| {
        moor(
            control_plane,
            Identity::Admin,
            &[arguments, &["--as", "carol", "--as-group", "system:authenticated"]].concat(),
        )
    };
    eventually("carol has her rights", SOON, || async {
        let ran = carol(&["diff", "shop", "-n", &own]);
        (ran.code == 0).then_some(()).ok_or(format!("{ran:?}"))
    })
    .await;
    assert_eq!(carol(&["diff", "-n", &own, "-A"]).code, 2);

    // The same words for a release that is there and for one that is not.
    let there = carol(&["diff", "shop", "-n", &others]);
    there.assert_failed(&["no permission", "carol"]);
    let not_there = carol(&["diff", "nothing", "-n", &others]);
    assert_eq!(there.error.replace("shop", "nothing"), not_there.error);
    let all = carol(&["diff", "-A"]);
    all.assert_failed(&["no permission"]);
    assert!(!all.error.contains(&others) && all.out.is_empty(), "{all:?}");
}

/// Runs a comparison on a pseudo-terminal, its standard output in a file: what the terminal shows, and the file.
fn on_a_terminal(arguments: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let kubeconfig = unguarded().kubeconfig(Identity::Alice);
    let (program, arguments) = (env!("CARGO_BIN_EXE_kubemoor"), arguments.join(" "));
    let line =
        format!("'{program}' diff {arguments} --kubeconfig '{}' > '{}'", kubeconfig.display(), out.display());
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    let shown = script.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(shown.status.code().is_some_and(|code| code < 2), "{shown:?}");
    (String::from_utf8(shown.stdout).unwrap(), std::fs::read_to_string(out).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn progress_bar_appears_only_on_a_terminal() {
    let namespace = install("diff-bar", TEMPLATES).await;
    install("diff-bar", TEMPLATES).await;
    for (arguments, counts) in [(vec!["-A"], "releases"), (vec!["shop", "-n", &namespace], "objects")] {
        let (terminal, out) = on_a_terminal(&arguments);
        assert!(terminal.contains(&format!(" {counts} ")), "{counts}: {terminal:?}");
        // It leaves no trace, neither there nor in the answer.
        assert!(terminal.ends_with("\u{1b}[2K"), "{counts}: {terminal:?}");
        assert!(out.contains("objects") && !out.contains('\u{1b}'), "{counts}: {out}");
        let quiet = moor(unguarded(), Identity::Alice, &[&["diff"], &arguments[..]].concat());
        assert_eq!(quiet.error, "", "{counts}");
    }
    // One object is no long work.
    let small = install("diff-no-bar", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n").await;
    assert_eq!(on_a_terminal(&["shop", "-n", &small]).0, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_a_chart_dropped_from_string_data_is_listed_as_left_behind() {
    let template = r"apiVersion: v1
kind: Secret
metadata: {name: key}
stringData:
  password: hunter2
  {{- if not .Values.short }}
  user: admin
  {{- end }}
";
    let shop = Scene::on(unguarded()).install("left", template).await;
    let commands = || ["diff", "forecast"].map(|command| shop.moor(&[command, "shop"]));
    for ran in commands() {
        assert!(ran.code == 0 && !ran.out.contains("Left behind"), "{ran:?}");
    }
    shop.upgrade(json!({"values": {"short": true}})).await.unwrap();
    assert!(shop.get(&shop.core("secrets/key")).await["data"]["user"].is_string());
    for ran in commands() {
        let said = "Left behind: Secret/key";
        assert!(ran.code == 0 && ran.out.contains(said) && ran.out.contains("/data/user"), "{ran:?}");
        assert!(!ran.out.contains("YWRtaW4=") && !ran.out.contains("password"), "{ran:?}");
    }
    let remove = r#"[{"op": "remove", "path": "/data/user"}]"#;
    let removed = shop.kubectl(&["patch", "secret", "key", "--type", "json", "-p", remove]);
    assert!(removed.status.success(), "{removed:?}");
    for ran in commands() {
        assert!(ran.code == 0 && !ran.out.contains("Left behind"), "{ran:?}");
    }
}
