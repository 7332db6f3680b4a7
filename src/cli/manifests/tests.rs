use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use clap::Parser;
use serde_json::Value;

use super::*;

#[derive(Debug, Parser)]
struct ManifestsLine {
    #[command(flatten)]
    args: Args,
}

fn printed(args: &[&str]) -> String {
    match ManifestsLine::try_parse_from(["manifests"].iter().chain(args)).unwrap().args.part {
        ManifestPart::Install(install) => install.text(),
        ManifestPart::Webhook(webhook) => webhook.text().unwrap(),
        ManifestPart::Crds => crds_text().unwrap(),
    }
}

fn objects(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The verbs that a role's rules grant, by group and resource.
fn grants(role: &Value) -> BTreeMap<(String, String), BTreeSet<String>> {
    let list = |rule: &Value, key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut grants = BTreeMap::<_, BTreeSet<String>>::new();
    for rule in role["rules"].as_array().unwrap().iter().filter(|rule| rule["resourceNames"].is_null()) {
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                grants.entry((group.clone(), resource)).or_default().extend(list(rule, "verbs"));
            }
        }
    }
    grants
}

#[test]
fn the_files_in_deploy_are_what_the_command_prints() {
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let read = |file: &str| fs::read_to_string(deploy.join(file)).unwrap();
    let files = ["namespace", "rbac", "people", "networkpolicy", "workload", "availability"];
    let install = files.map(|file| read(&format!("{file}.yaml"))).join("---\n");
    assert_eq!(printed(&["install"]), install);
    assert_eq!(
        printed(&["webhook"]),
        read("static/webhook.yaml"),
        "write it anew: kubemoor manifests webhook > deploy/static/webhook.yaml"
    );
    assert_eq!(
        printed(&["crds"]),
        read("crds.yaml"),
        "write it anew: kubemoor manifests crds > deploy/crds.yaml"
    );
}

#[test]
fn every_flag_of_install_reaches_its_place() {
    let yaml = printed(&[
        "install",
        "--namespace",
        "guard",
        "--image",
        "host:5000/moor@sha256:0a",
        "--edits",
        "Deny",
        "--drift",
        "Repair",
    ]);
    assert!(!yaml.contains(NAMESPACE), "{yaml}");
    let objects = objects(&yaml);
    let deployment = find(&objects, "Deployment", "kubemoor").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["metadata"]["namespace"], "guard");
    assert_eq!(container["image"], "host:5000/moor@sha256:0a");
    assert_eq!(
        container["args"],
        serde_json::json!([
            "serve",
            "--register",
            "--service=guard/kubemoor",
            "--edits=Deny",
            "--drift=Repair",
            "--ledger=sqlite:/var/lib/kubemoor/ledger/ledger.db"
        ])
    );
    let namespace = find(&objects, "Namespace", "guard").unwrap();
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "guard");
    for binding in objects.iter().filter(|object| object["kind"] == "ClusterRoleBinding") {
        assert_eq!(binding["subjects"][0]["namespace"], "guard");
        assert!(find(&objects, "ClusterRole", binding["roleRef"]["name"].as_str().unwrap()).is_some());
    }
}

#[test]
fn cert_manager_flag_prints_issuer_certificate_and_requested_replicas() {
    let check = |args: &[&str], replicas: u8| {
        let objects =
            objects(&printed(&[&["install", "--cert-manager", "--namespace=guard"], args].concat()));
        let certificate = find(&objects, "Certificate", "kubemoor").unwrap();
        assert_eq!(certificate["spec"]["dnsNames"][0], "kubemoor.guard.svc");
        assert!(find(&objects, "Issuer", "kubemoor-ca").is_some());
        let deployment = find(&objects, "Deployment", "kubemoor").unwrap();
        assert_eq!(deployment["spec"]["replicas"], replicas);
        let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume["secret"]["secretName"], certificate["spec"]["secretName"]);
    };
    check(&[], 2);
    check(&["--replicas=3"], 3);
    let alone = objects(&printed(&["install", "--replicas=1"]));
    assert_eq!(find(&alone, "Deployment", "kubemoor").unwrap()["spec"]["replicas"], 1);
}

#[test]
fn disruption_budget_follows_cluster_version_and_number_of_replicas() {
    let budget = |args: &[&str]| {
        let objects = objects(&printed(&[&["install"], args].concat()));
        find(&objects, "PodDisruptionBudget", "kubemoor").cloned()
    };
    let check = |version: &str, api: &str, evicts: bool| {
        let budget = budget(&["--kube-version", version]).unwrap();
        assert_eq!(budget["apiVersion"], api, "{version}");
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"].is_string(), evicts, "{version}");
        assert_eq!(budget["spec"]["maxUnavailable"], 1, "{version}");
    };
    check("1.20", "policy/v1beta1", false);
    check("v1.20.2", "policy/v1beta1", false);
    check("1.21", "policy/v1", false);
    check("1.26", "policy/v1", false);
    check("1.27", "policy/v1", true);
    check("1.34.0", "policy/v1", true);
    assert_eq!(budget(&[]), budget(&["--kube-version=1.27"]));
    assert_eq!(budget(&["--replicas=1"]), None);
    assert!(ManifestsLine::try_parse_from(["manifests", "install", "--kube-version", "latest"]).is_err());
}

#[test]
fn rights_to_write_come_only_with_deny_and_repair() {
    let check = |args: &[&str], arbiter: bool, repair: bool| {
        let objects = objects(&printed(&[&["install"], args].concat()));
        assert_eq!(find(&objects, "ClusterRole", "kubemoor-arbiter").is_some(), arbiter, "{args:?}");
        assert_eq!(find(&objects, "ClusterRole", "kubemoor-repair").is_some(), repair, "{args:?}");
        let roles = ["kubemoor", "kubemoor-cluster"];
        let reading = roles.map(|role| grants(find(&objects, "ClusterRole", role).unwrap()));
        for (resource, verbs) in reading.into_iter().flatten() {
            let known: &[&str] = match resource.1.as_str() {
                "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => {
                    &["get", "list", "watch", "create"]
                }
                // What people are told, and what they ask for.
                "driftpolicies/status" => &["patch"],
                "driftallowances" => &["get", "list", "watch", "create", "delete"],
                // Questions, which the API server answers and does not keep, and events.
                "tokenreviews" | "subjectaccessreviews" | "events" => &["create"],
                "guardedreleases" => &["get", "list", "watch", "create", "delete"],
                "guardedreleases/status" => &["update"],
                _ => &["get", "list", "watch"],
            };
            assert!(verbs.iter().all(|verb| known.contains(&verb.as_str())), "{resource:?}: {verbs:?}");
        }
    };
    check(&[], false, false);
    check(&["--edits", "Record"], false, false);
    check(&["--edits", "Deny"], true, false);
    check(&["--drift", "Repair"], true, true);
    check(&["--edits", "Deny", "--drift", "Repair"], true, true);
}

#[test]
fn guard_roles_cannot_grant_rights_or_create_never_repaired_kinds() {
    let objects = objects(&printed(&["install", "--edits", "Deny", "--drift", "Repair"]));
    let mut arbiter = grants(find(&objects, "ClusterRole", "kubemoor-arbiter").unwrap());
    arbiter.extend(grants(find(&objects, "ClusterRole", "kubemoor-arbiter-cluster").unwrap()));
    let repair = grants(find(&objects, "ClusterRole", "kubemoor-repair").unwrap());
    for (group, resource) in arbiter.keys().chain(repair.keys()) {
        let handing_on =
            ["rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io"];
        assert!(!handing_on.contains(&group.as_str()), "{group}/{resource}");
    }
    for never in [
        "jobs",
        "pods",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "customresourcedefinitions",
    ] {
        let (_, verbs) = arbiter.iter().find(|((_, resource), _)| resource == never).unwrap();
        assert!(!verbs.contains("create"), "{never}");
        assert!(repair.keys().all(|(_, resource)| resource != never), "{never}");
    }
    for (resource, verbs) in &arbiter {
        assert_eq!(repair.contains_key(resource), verbs.contains("create"), "{resource:?}");
    }
}

#[test]
fn guard_may_read_every_resource_of_the_static_webhook() {
    let objects = objects(RBAC_YAML);
    let mut reading = grants(find(&objects, "ClusterRole", "kubemoor").unwrap());
    reading.extend(grants(find(&objects, "ClusterRole", "kubemoor-cluster").unwrap()));
    for resource in chart_resources() {
        let key = (resource.group.clone(), resource.plural.clone());
        let verbs = reading.get(&key).unwrap_or_else(|| panic!("{key:?} may not be read"));
        assert!(["get", "list", "watch"].iter().all(|&verb| verbs.contains(verb)), "{key:?}: {verbs:?}");
    }
}

#[test]
fn static_webhook_names_only_core_kinds_and_each_resource_once() {
    for kind in CHART_KINDS.split(' ') {
        assert!(catalog::core().kinds().any(|facts| facts.kind == kind), "{kind} is no core kind");
    }
    let objects = objects(&printed(&["webhook"]));
    let mut met = BTreeSet::new();
    for webhook in objects[0]["webhooks"].as_array().unwrap() {
        for rule in webhook["rules"].as_array().unwrap() {
            for plural in rule["resources"].as_array().unwrap() {
                let edits = rule["operations"].as_array().unwrap().contains(&"UPDATE".into());
                let path =
                    (rule["apiGroups"].to_string(), rule["apiVersions"].to_string(), plural.to_string());
                let judges_edits =
                    webhook["name"] != "records.kubemoor.dev" && webhook["name"] != "deletes.kubemoor.dev";
                assert!(!judges_edits || !edits || met.insert(path.clone()), "{path:?} is named twice");
            }
        }
    }
}

#[test]
fn the_pod_asks_for_no_privilege() {
    let objects = objects(WORKLOAD_YAML);
    let pod = &find(&objects, "Deployment", "kubemoor").unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"]["drop"], serde_json::json!(["ALL"]));
}

#[test]
fn the_arguments_of_the_pod_are_ones_that_serve_takes() {
    let objects = objects(&printed(&["install", "--edits", "Deny", "--drift", "Repair"]));
    let container =
        &find(&objects, "Deployment", "kubemoor").unwrap()["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let line = std::iter::once("kubemoor").chain(args);
    let Ok(super::super::Cli { command: super::super::Command::Serve(settings) }) =
        super::super::Cli::try_parse_from(line)
    else {
        panic!("{container}")
    };
    settings.check().unwrap();
    assert_eq!((settings.listen.port(), settings.admin_listen.port()), (9443, 9080));
    assert_eq!(container["env"][0]["name"], "KUBEMOOR_TLS_SECRET");
}

#[test]
fn the_static_webhook_takes_a_url_and_a_ca() {
    let ca = tempfile::NamedTempFile::new().unwrap();
    fs::write(ca.path(), "CA").unwrap();
    let yaml = printed(&[
        "webhook",
        "--webhook-url",
        "https://127.0.0.1:9443",
        "--ca-file",
        ca.path().to_str().unwrap(),
        "--no-caller-token",
    ]);
    let objects = objects(&yaml);
    for webhook in objects[0]["webhooks"].as_array().unwrap() {
        let path = if webhook["name"] == "autoscalers.kubemoor.dev" { "observe" } else { "validate" };
        let url = format!("https://127.0.0.1:9443/{path}");
        assert_eq!(webhook["clientConfig"], serde_json::json!({"url": url, "caBundle": "Q0E="}));
    }
}

#[test]
fn static_webhook_path_contains_token_from_file_or_placeholder() {
    let paths = |yaml: &str| {
        let objects = objects(yaml);
        let webhooks = objects.iter().flat_map(|object| object["webhooks"].as_array().unwrap());
        let path = |webhook: &Value| webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
        webhooks.map(path).collect::<BTreeSet<_>>()
    };
    let (file, token) = (tempfile::NamedTempFile::new().unwrap(), "a1".repeat(32));
    fs::write(file.path(), format!("{token}\n{}\n", "b2".repeat(32))).unwrap();
    let path = file.path().to_str().unwrap();
    let yaml = printed(&["webhook", "--edits=Revert", "--caller-token-file", path]);
    let all_paths =
        |suffix: &str| ["mutate", "observe", "validate"].map(|stage| format!("/{stage}{suffix}")).into();
    assert_eq!(paths(&yaml), all_paths(&format!("/{token}")));
    assert!(!yaml.contains("CALLER_TOKEN"), "{yaml}");
    assert_eq!(paths(&printed(&["webhook"])), all_paths("/CALLER_TOKEN"));
    assert_eq!(paths(&printed(&["webhook", "--no-caller-token"])), all_paths(""));
    let both = ["manifests", "webhook", "--no-caller-token", "--caller-token-file", path];
    assert!(ManifestsLine::try_parse_from(both).is_err());
}

#[test]
fn only_the_secrets_of_callers_and_certificate_may_be_updated() {
    let objects = objects(RBAC_YAML);
    let role = find(&objects, "Role", "kubemoor").unwrap();
    let rules = role["rules"].as_array().unwrap();
    let secrets: Vec<_> = rules.iter().filter(|rule| rule["resources"][0] == "secrets").collect();
    let named = serde_json::json!([
        kubemoor_guard::webhook::registration::shared_secrets::CALLER_SECRET,
        "kubemoor-certificate"
    ]);
    assert!(secrets[0]["resourceNames"].is_null() && secrets[0]["verbs"] == serde_json::json!(["create"]));
    assert!(
        secrets[1]["resourceNames"] == named && secrets[1]["verbs"] == serde_json::json!(["get", "update"])
    );
    assert_eq!(secrets.len(), 2);
}

#[test]
fn a_namespace_or_an_image_that_is_none_is_refused() {
    let check = |args: &[&str]| {
        let error = ManifestsLine::try_parse_from(["manifests", "install"].iter().chain(args)).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{args:?}");
    };
    check(&["--namespace", "Guard"]);
    check(&["--namespace", "a\nb"]);
    check(&["--image", "a: b"]);
    check(&["--image", "a\nb"]);
    check(&["--image", ""]);
}
