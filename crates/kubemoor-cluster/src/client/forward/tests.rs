use serde_json::{Value, json};

use super::*;

/// A pod with this name and condition, and what `change` makes of it.
fn pod(name: &str, ready: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [
            {"name": "beside"},
            {"name": "kubemoor", "ports": [
                {"name": "webhook", "containerPort": 9443}, {"name": "admin", "containerPort": 9080},
            ]},
        ]},
        "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

#[test]
fn ready_leader_pod_is_preferred_over_first_pod_by_name() {
    let check = |pods: &[Pod], holder: &str, chosen: Option<&str>| {
        let first = preferred(pods, holder).into_iter().next();
        assert_eq!(first.map(|it| (it.pod, it.port)), chosen.map(|pod| (pod.to_owned(), 9080)), "{holder:?}");
    };
    let ready = |name: &str| pod(name, "True", |_| ());
    let three = ["moor-c", "moor-a", "moor-ab"].map(ready);
    check(&three, "", Some("moor-a"));
    check(&three, "moor-c_7_1f", Some("moor-c"));
    // A name that only begins alike is another's.
    check(&three, "moor-ab_7_1f", Some("moor-ab"));
    check(&three, "elsewhere_7_1f", Some("moor-a"));
    check(&[pod("moor-a", "False", |_| ()), ready("moor-b")], "moor-a_7_1f", Some("moor-b"));
    let ending = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:00:00Z");
    check(&[pod("moor-a", "True", ending), ready("moor-b")], "", Some("moor-b"));
    check(&[pod("moor-a", "True", |pod| pod["spec"]["containers"][1]["ports"] = json!([]))], "", None);
    check(&[pod("moor-a", "True", |pod| pod["status"] = json!({}))], "", None);
    check(&[], "moor-a_7_1f", None);
}

#[test]
fn every_pod_with_a_ledger_of_its_own_is_asked() {
    let with = |name: &str, arguments: Value, variables: Value| {
        pod(name, "True", |pod| {
            pod["spec"]["containers"][1]["args"] = arguments;
            pod["spec"]["containers"][1]["env"] = variables;
        })
    };
    let none = || json!([]);
    let of_secret = || json!([{"name": "KUBEMOOR_LEDGER", "valueFrom": {"secretKeyRef": {"name": "ledger", "key": "url"}}}]);
    let variable = |url: &str| json!([{"name": "KUBEMOOR_LEDGER", "value": url}]);
    let postgres = "postgres://moor@db/ledger";
    for (arguments, variables, asked) in [
        (json!(["serve", "--ledger=sqlite:/var/lib/kubemoor/ledger.db"]), none(), 2),
        (json!(["serve", "--ledger", "sqlite:ledger.db"]), of_secret(), 2),
        (json!(["serve"]), none(), 2),
        (json!(["serve"]), variable("sqlite:ledger.db"), 2),
        (json!(["serve"]), of_secret(), 1),
        (json!(["serve"]), variable(postgres), 1),
        (json!(["serve", format!("--ledger={postgres}")]), none(), 1),
        (json!(["serve", "--ledger", postgres]), none(), 1),
    ] {
        let pods = ["moor-a", "moor-b"].map(|name| with(name, arguments.clone(), variables.clone()));
        let found: Vec<_> = preferred(&pods, "moor-b_7_1f").into_iter().map(|it| it.pod).collect();
        assert_eq!(found, ["moor-b", "moor-a"][..asked], "{arguments} {variables}");
    }
    // While the database changes, the shared one is asked once.
    let file = json!(["serve", "--ledger=sqlite:ledger.db"]);
    let pods = [with("a", none(), of_secret()), with("b", file, none()), with("c", none(), of_secret())];
    let found: Vec<_> = preferred(&pods, "").into_iter().map(|it| it.pod).collect();
    assert_eq!(found, ["a", "b"]);
}

#[test]
fn lease_without_a_certificate_in_its_authority_is_not_believed() {
    for text in ["", "none", "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n"] {
        assert!(connection::parse_certificates(text.as_bytes()).is_err(), "{text:?}");
    }
    let made = rcgen::generate_simple_self_signed(["moor".to_owned()]).unwrap().cert;
    let parsed = connection::parse_certificates(made.pem().as_bytes());
    assert_eq!(parsed.unwrap(), [made.der().to_vec()]);
}
