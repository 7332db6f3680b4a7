use serde_json::{Value, json};

use super::target::preferred;
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
        let expected = chosen.map(|pod| Target { pod: pod.to_owned(), port: 9080 });
        assert_eq!(preferred(pods, holder), expected, "{holder:?}");
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
fn lease_without_a_certificate_in_its_authority_is_not_believed() {
    for text in ["", "none", "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
    let made = rcgen::generate_simple_self_signed(["moor".to_owned()]).unwrap().cert;
    assert_eq!(parse(&made.pem()).unwrap(), [made.der().to_vec()]);
}
