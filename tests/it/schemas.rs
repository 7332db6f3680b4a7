//! The JSON Schemas in `docs/schemas`: they are those of the program, and what commands print keeps to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support::{
    ControlPlane, DRIFT_POLICIES, Identity, RELEASE, Ran, SOON, Scene, Service, ServiceKind, charts,
    drift_policy, eventually, moor, root, run,
};

const TEMPLATES: &str = concat!(
    charts::deployment!(r#"{name: app, image: "app:1"}"#),
    "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hunter2}\n",
);

/// The files of a folder.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(|entry| read(entry.unwrap())).collect()
}

/// The schema of what a command prints.
fn schema(name: &str) -> Validator {
    let text = fs::read_to_string(root().join(format!("docs/schemas/{name}.json"))).unwrap();
    jsonschema::draft202012::new(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// Asserts that what a command printed keeps to its schema, and that the schema says something.
pub(crate) fn check(name: &str, ran: &Ran) -> Value {
    let (schema, printed) = (schema(name), ran.json());
    let errors: Vec<_> =
        schema.iter_errors(&printed).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(ran.code < 2 && errors.is_empty(), "{name}: {errors:?}\n{printed:#}");
    let mut less = printed.clone();
    let object = less.as_object_mut().unwrap();
    let required = object.keys().find(|key| !schema.is_valid(&without(&printed, key))).cloned();
    let required = required.unwrap_or_else(|| panic!("{name}: no field is required"));
    object.insert(required, json!([[]]));
    assert!(!schema.is_valid(&less), "{name}: {less:#}");
    printed
}

fn without(value: &Value, key: &str) -> Value {
    let mut less = value.clone();
    less.as_object_mut().unwrap().remove(key);
    less
}

#[test]
fn schemas_are_those_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&["schemas", folder.path().to_str().unwrap()], "");
    assert_eq!(ran.code, 0, "{ran:?}");
    let (printed, kept) = (files(folder.path()), files(&root().join("docs/schemas")));
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&kept), names(&printed), "`make reference` writes them");
    for (name, text) in &printed {
        assert!(kept[name] == *text, "docs/schemas/{name} is not up to date: `make reference` writes it");
    }
}

/// What permits a change that a policy of its own lets pass with a warning.
async fn would_deny(shop: &Scene, database: &str) -> Ran {
    let name = format!("warn-{}", shop.namespace);
    let releases = json!({"namespaces": [shop.namespace]});
    let policy = drift_policy(&name, json!({"priority": 9000, "releases": releases, "edits": "Warn"}));
    shop.admin.post(DRIFT_POLICIES, &policy).await.done().unwrap();
    let (web, image) = (shop.deployment("web"), "/spec/template/spec/containers/0/image");
    eventually("the change passes", SOON, || async {
        shop.alice.patch(&web, "replace", image, &json!("app:2")).await.done()
    })
    .await;
    let arguments = ["audit", database, "-n", &shop.namespace, "--would-deny", "-o", "json"];
    let permits = eventually("the change would be denied", SOON, || async {
        let ran = run(&arguments, "");
        if ran.code != 0 || ran.items().is_empty() { Err(format!("{ran:?}")) } else { Ok(ran) }
    });
    let permits = permits.await;
    shop.admin.delete(&format!("{DRIFT_POLICIES}/{name}")).await.done().unwrap();
    permits
}

#[tokio::test(flavor = "multi_thread")]
async fn command_output_matches_its_schema() {
    let shop = Scene::policed().install("schemas", TEMPLATES).await;
    let web = shop.deployment("web");
    shop.wait_until_guarded(&web).await;
    shop.wait_for_confirmed(3).await;
    let moor = |arguments: &[&str]| {
        let ran = shop.moor(&[arguments, &["-o", "json"]].concat());
        assert!(ran.code < 2, "{arguments:?}: {ran:?}");
        ran
    };
    let allow = ["allow", "deploy/web", "--path", "/spec/replicas", "--for", "1h", "--reason", "INC-7"];
    check("allow", &moor(&allow));
    let scaled = json!({"spec": {"replicas": 5}});
    eventually("the change passes", SOON, || async { shop.alice.merge(&web, &scaled).await.done() }).await;

    let releases = check("get-releases", &moor(&["get", "releases"]));
    assert_eq!(releases["items"][0]["name"], json!(RELEASE), "{releases}");
    let allowances = check("get-allowances", &moor(&["get", "allowances"]));
    assert_eq!(allowances["items"][0]["reason"], json!("INC-7"), "{allowances}");
    check("diff", &moor(&["diff"]));
    check("diff", &moor(&["diff", RELEASE]));
    check("forecast", &moor(&["forecast", RELEASE]));
    let explained = check("explain", &moor(&["explain", "deploy/web", "--path", "/spec/replicas"]));
    assert!(explained["fields"][0]["nextUpgrade"].is_string(), "{explained}");
    check("explain", &moor(&["explain", "configmap/kube-root-ca.crt"]));
    check("reconcile-dry-run", &moor(&["reconcile", RELEASE, "--dry-run"]));
    check("reconcile", &moor(&["reconcile", RELEASE]));
    check("reconcile-all", &moor(&["reconcile", "--all"]));
    check("suspend", &moor(&["suspend", RELEASE, "--for", "1h"]));
    check("resume", &moor(&["resume", RELEASE]));
    check("revoke", &moor(&["revoke", "deploy/web"]));
    // They are of the whole cluster.
    for (name, arguments) in [("get-policies", ["get", "policies"]), ("emergency", ["emergency", "status"])] {
        let arguments = [&arguments[..], &["-o", "json"]].concat();
        check(name, &crate::support::moor(&shop.control_plane, Identity::Alice, &arguments));
    }
    // A template picks from the same.
    let names = shop.moor(&["get", "releases", "-o", "jsonpath={.items[*].name}"]);
    assert_eq!((names.code, names.out.as_str()), (0, RELEASE), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn ledger_output_matches_its_schema() {
    let shop = Scene::policed().install("schemas-ledger", TEMPLATES).await;
    shop.wait_until_guarded(&shop.deployment("web")).await;
    let database = shop.guard().database();
    let audit = eventually("the ledger has rows", SOON, || async {
        let ran = run(&["audit", &database, "-n", &shop.namespace, "-o", "json"], "");
        if ran.items().is_empty() { Err(format!("{ran:?}")) } else { Ok(ran) }
    })
    .await;
    check("audit", &audit);
    let permits = would_deny(&shop, &database).await;
    check("audit-would-deny", &permits);
    let policies = root().join("policies");
    let replay =
        ["policy", "replay", policies.to_str().unwrap(), &database, "-n", &shop.namespace, "-o", "json"];
    let replayed = check("policy-replay", &run(&replay, ""));
    assert!(replayed["edits"].as_u64().unwrap_or_default() > 0, "{replayed}");
    // They are policies that the API server takes.
    shop.admin.post(&format!("{DRIFT_POLICIES}?dryRun=All"), &permits.items()[0]).await.done().unwrap();
    // A template picks from the same.
    let verdicts = ["audit", &database, "-n", &shop.namespace, "-o", "jsonpath={.items[*].verdict}"];
    let verdicts = run(&verdicts, "");
    assert!(verdicts.code == 0 && verdicts.out.split(' ').count() >= audit.items().len(), "{verdicts:?}");
}

#[test]
fn output_of_file_commands_matches_its_schema() {
    let policies = root().join("policies");
    let policies = policies.to_str().unwrap();
    check("policy-test", &run(&["policy", "test", &format!("{policies}/tests"), "-o", "json"], ""));
    check("policy-lint", &run(&["policy", "lint", policies, "-o", "json"], ""));
    check("version", &run(&["version", "--client", "-o", "json"], ""));
    let folder = tempfile::tempdir().unwrap();
    let directory = format!("--tls-dir={}", folder.path().display());
    check("certs", &run(&["certs", &directory, "--service", "kubemoor-system/kubemoor", "-o", "json"], ""));
    check("check", &crate::check::check(5, &["-o", "json"]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn answer_of_a_receiver_keeps_to_its_schema() {
    let service = Service::open(ServiceKind::Slack, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notifiers.yaml");
    fs::write(&file, format!("notifiers:\n- {{name: a, url: '{}', format: slack}}\n", service.url)).unwrap();
    let ran = run(&["notify", "test", "a", "--notifiers", file.to_str().unwrap(), "-o", "json"], "");
    assert_eq!(check("notify-test", &ran)["delivered"], json!(true));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn answers_of_emergency_and_uninstall_keep_to_their_schemas() {
    let control_plane = ControlPlane::start();
    let moor =
        |arguments: &[&str]| moor(&control_plane, Identity::Admin, &[arguments, &["-o", "json"]].concat());
    assert_eq!(check("uninstall", &moor(&["uninstall"]))["withdrawn"], json!(false));
    for arguments in
        [&["emergency", "open", "--reason", "INC-7"][..], &["emergency", "status"], &["emergency", "close"]]
    {
        check("emergency", &moor(arguments));
    }
}
