use serde_json::{Value, json};

use super::keep::merge;
use super::*;
use kubemoor_runtime::callers::CallerToken;

mod coverage;

fn endpoint() -> Endpoint {
    Endpoint::Service("kubemoor-system/kubemoor".parse().unwrap())
}

fn surface(endpoint: &Endpoint) -> WebhookSettings<'_> {
    WebhookSettings {
        endpoint,
        address: WebhookAddress::Bare,
        ca_bundle: Some(b"CA"),
        own_namespace: Some("kubemoor-system"),
        record_driver: RecordDriver::Secret,
        select_all: false,
        reverts: false,
        conditions: false,
    }
}

fn resource(group: &str, version: &str, plural: &str, scale: bool) -> WebhookResource {
    WebhookResource { group: group.to_owned(), version: version.to_owned(), plural: plural.to_owned(), scale }
}

fn declared() -> BTreeSet<WebhookResource> {
    BTreeSet::from([
        resource("", "v1", "secrets", false),
        resource("", "v1", "configmaps", false),
        resource("apps", "v1", "deployments", true),
        resource("example.org", "v1beta1", "widgets", true),
        resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", false),
    ])
}

fn named<'a>(configuration: &'a Value, name: &str) -> &'a Value {
    configuration["webhooks"].as_array().unwrap().iter().find(|webhook| webhook["name"] == name).unwrap()
}

fn built(surface: &WebhookSettings<'_>) -> Value {
    serde_json::to_value(configuration(&declared(), surface)).unwrap()
}

#[test]
fn the_rules_name_what_releases_declare_and_nothing_else() {
    let endpoint = endpoint();
    let seen = built(&surface(&endpoint));
    let names: Vec<_> = seen["webhooks"].as_array().unwrap().iter().map(|webhook| &webhook["name"]).collect();
    assert_eq!(
        json!(names),
        json!([
            "v1.core.edits.kubemoor.dev",
            "v1.apps.edits.kubemoor.dev",
            "v1beta1.example.org.edits.kubemoor.dev",
            "scale.kubemoor.dev",
            "autoscalers.kubemoor.dev",
            "deletes.kubemoor.dev",
            "records.kubemoor.dev"
        ])
    );
    assert_eq!(
        named(&seen, "v1.core.edits.kubemoor.dev")["rules"],
        json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "secrets"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*"
        }])
    );
    assert_eq!(
        named(&seen, "scale.kubemoor.dev")["rules"],
        json!([
            {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"],
             "operations": ["UPDATE"], "scope": "*"},
            {"apiGroups": ["example.org"], "apiVersions": ["v1beta1"], "resources": ["widgets/scale"],
             "operations": ["UPDATE"], "scope": "*"}
        ])
    );
    assert_eq!(
        named(&seen, "deletes.kubemoor.dev")["rules"],
        json!([
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
             "operations": ["DELETE"], "scope": "*"},
            {"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"],
             "resources": ["customresourcedefinitions"], "operations": ["DELETE"], "scope": "*"},
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
             "operations": ["UPDATE"], "scope": "*"},
            {"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["v1"],
             "resources": ["customresourcedefinitions"], "operations": ["UPDATE"], "scope": "*"}
        ])
    );
    assert_eq!(
        named(&seen, "autoscalers.kubemoor.dev")["rules"],
        json!([
            {"apiGroups": ["autoscaling"], "apiVersions": ["*"], "resources": ["horizontalpodautoscalers"],
             "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*"},
            {"apiGroups": ["keda.sh"], "apiVersions": ["*"], "resources": ["scaledobjects"],
             "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*"}
        ])
    );
    assert_eq!(named(&seen, "records.kubemoor.dev")["rules"][0]["resources"], json!(["secrets"]));
}

#[test]
fn revert_webhooks_are_registered_only_when_a_policy_reverts() {
    let endpoint = endpoint();
    let quiet = serde_json::to_value(mutating(&declared(), &surface(&endpoint))).unwrap();
    let orders = named(&quiet, ORDERS).clone();
    assert_eq!(quiet["webhooks"], json!([orders]));
    assert_eq!(orders["clientConfig"]["service"]["path"], "/mutate");
    assert_eq!(orders["failurePolicy"], "Ignore");
    assert_eq!(
        orders["rules"],
        json!([{
            "apiGroups": ["kubemoor.dev"], "apiVersions": ["v1alpha1"], "resources": ["guardedreleases"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*"
        }])
    );
    let surface = WebhookSettings { reverts: true, ..surface(&endpoint) };
    let wanted = mutating(&declared(), &surface);
    let seen = serde_json::to_value(&wanted).unwrap();
    let names: Vec<_> = seen["webhooks"].as_array().unwrap().iter().map(|webhook| &webhook["name"]).collect();
    assert_eq!(
        json!(names),
        json!([
            "orders.kubemoor.dev",
            "v1.core.reverts.kubemoor.dev",
            "v1.apps.reverts.kubemoor.dev",
            "v1beta1.example.org.reverts.kubemoor.dev"
        ])
    );
    let edits = built(&surface);
    assert_eq!(*named(&seen, ORDERS), orders);
    for webhook in seen["webhooks"].as_array().unwrap().iter().filter(|webhook| webhook["name"] != ORDERS) {
        let name = webhook["name"].as_str().unwrap();
        let sibling = named(&edits, &name.replace(REVERTS, EDITS)).clone();
        assert_eq!(webhook["rules"][0]["operations"], json!(["UPDATE"]), "{name}");
        assert_eq!(webhook["rules"][0]["resources"], sibling["rules"][0]["resources"], "{name}");
        assert_eq!(webhook["clientConfig"]["service"]["path"], "/mutate", "{name}");
        assert_eq!(webhook["reinvocationPolicy"], "IfNeeded", "{name}");
        for same in ["objectSelector", "namespaceSelector", "failurePolicy", "sideEffects", "matchPolicy"] {
            assert_eq!(webhook[same], sibling[same], "{name}: {same}");
        }
    }
    // Written once, it is as desired; the admin's settings stay, the guard's come back.
    assert_eq!(merge(&wanted, &wanted), None);
    let mut live = wanted.clone();
    let first = &mut live.webhooks.as_mut().unwrap()[0];
    first.failure_policy = Some("Fail".to_owned());
    assert_eq!(merge(&live, &wanted), None);
    live.webhooks.as_mut().unwrap()[0].reinvocation_policy = Some("Never".to_owned());
    let merged = merge(&live, &wanted).unwrap().webhooks.unwrap();
    assert_eq!(merged[0].reinvocation_policy.as_deref(), Some("IfNeeded"));
    assert_eq!(merged[0].failure_policy.as_deref(), Some("Fail"));
}

#[test]
fn without_releases_only_records_and_deletions_are_sent() {
    let endpoint = endpoint();
    let seen = serde_json::to_value(configuration(&BTreeSet::new(), &surface(&endpoint))).unwrap();
    let names: Vec<_> = seen["webhooks"].as_array().unwrap().iter().map(|webhook| &webhook["name"]).collect();
    assert_eq!(json!(names), json!(["deletes.kubemoor.dev", "records.kubemoor.dev"]));
}

#[test]
fn webhooks_fail_open_after_three_seconds_and_exclude_guard_namespace() {
    let endpoint = endpoint();
    let seen = built(&surface(&endpoint));
    for webhook in seen["webhooks"].as_array().unwrap() {
        let name = webhook["name"].as_str().unwrap();
        assert_eq!(webhook["failurePolicy"], "Ignore", "{name}");
        assert_eq!(webhook["timeoutSeconds"], 3, "{name}");
        assert_eq!(webhook["sideEffects"], "NoneOnDryRun", "{name}");
        assert_eq!(webhook["matchPolicy"], "Equivalent", "{name}");
        assert_eq!(webhook["admissionReviewVersions"], json!(["v1"]), "{name}");
        let path = if name == AUTOSCALERS { "/observe" } else { "/validate" };
        assert_eq!(
            webhook["clientConfig"],
            json!({
                "service": {"namespace": "kubemoor-system", "name": "kubemoor", "path": path, "port": 443},
                "caBundle": "Q0E="
            }),
            "{name}"
        );
        let expression = &webhook["namespaceSelector"]["matchExpressions"][0];
        let excluded = if name == DELETES {
            json!(["kubemoor-system"])
        } else {
            json!(["kube-node-lease", "kube-system", "kubemoor-system"])
        };
        assert_eq!(
            *expression,
            json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}),
            "{name}"
        );
    }
}

#[test]
fn selectors_keep_away_what_helm_did_not_write() {
    let endpoint = endpoint();
    let mut surface = surface(&endpoint);
    let helms = json!({"matchLabels": {"app.kubernetes.io/managed-by": "Helm"}});
    let seen = built(&surface);
    assert_eq!(named(&seen, "v1.apps.edits.kubemoor.dev")["objectSelector"], helms);
    assert_eq!(named(&seen, RECORDS)["objectSelector"], json!({"matchLabels": {"owner": "helm"}}));
    assert_eq!(named(&seen, SCALE).get("objectSelector"), None);
    assert_eq!(named(&seen, DELETES).get("objectSelector"), None);

    surface.select_all = true;
    surface.record_driver = RecordDriver::Configmap;
    let seen = built(&surface);
    assert_eq!(named(&seen, "v1.apps.edits.kubemoor.dev").get("objectSelector"), None);
    assert_eq!(named(&seen, RECORDS)["rules"][0]["resources"], json!(["configmaps"]));
    assert_eq!(named(&seen, RECORDS)["objectSelector"], json!({"matchLabels": {"owner": "helm"}}));
}

#[test]
fn url_webhook_outside_the_cluster_excludes_no_own_namespace() {
    let endpoint = Endpoint::Url("https://127.0.0.1:9443/".parse().unwrap());
    let surface = WebhookSettings { ca_bundle: None, own_namespace: None, ..surface(&endpoint) };
    let seen = built(&surface);
    assert_eq!(named(&seen, RECORDS)["clientConfig"], json!({"url": "https://127.0.0.1:9443/validate"}));
    assert_eq!(named(&seen, DELETES).get("namespaceSelector"), None);
    assert_eq!(
        named(&seen, RECORDS)["namespaceSelector"]["matchExpressions"][0]["values"],
        json!(["kube-node-lease", "kube-system"])
    );
}

#[test]
fn names_are_unique_and_within_the_api_server_s_bound() {
    let endpoint = endpoint();
    let long = |letter: char| vec![letter.to_string().repeat(60); 4].join(".");
    let resources = BTreeSet::from([
        resource(&long('a'), "v1", "widgets", false),
        resource(&long('b'), "v1", "widgets", false),
    ]);
    let webhooks = configuration(&resources, &surface(&endpoint)).webhooks.unwrap();
    let names: BTreeSet<_> = webhooks.iter().map(|webhook| webhook.name.clone()).collect();
    assert_eq!(names.len(), webhooks.len());
    assert!(names.iter().all(|name| name.len() <= NAME_LIMIT && name.ends_with("kubemoor.dev")), "{names:?}");
}

/// `built` as the API server gives it back, changed by `edit`.
fn live(edit: impl FnOnce(&mut Value)) -> ValidatingWebhookConfiguration {
    let endpoint = endpoint();
    let mut value = built(&surface(&endpoint));
    value["metadata"]["resourceVersion"] = json!("7");
    for webhook in value["webhooks"].as_array_mut().unwrap() {
        for selector in ["objectSelector", "namespaceSelector"] {
            if webhook.get(selector).is_none() {
                webhook[selector] = json!({});
            }
        }
    }
    edit(&mut value);
    serde_json::from_value(value).unwrap()
}

fn merged(live: &ValidatingWebhookConfiguration) -> Option<ValidatingWebhookConfiguration> {
    let endpoint = endpoint();
    merge(live, &configuration(&declared(), &surface(&endpoint)))
}

#[test]
fn nothing_is_written_when_nothing_of_kubemoor_s_own_differs() {
    let check = |what: &str, edit: fn(&mut Value)| {
        assert_eq!(merged(&live(edit)), None, "{what}");
    };
    check("the server's own form", |_| {});
    check("the admin's failure policy", |value| value["webhooks"][0]["failurePolicy"] = json!("Fail"));
    check("the admin's timeout", |value| value["webhooks"][0]["timeoutSeconds"] = json!(10));
    check("the admin's namespaces", |value| value["webhooks"][0]["namespaceSelector"] = json!({}));
    check("the admin's conditions", |value| {
        value["webhooks"][0]["matchConditions"] = json!([{"name": "people", "expression": "true"}]);
    });
    check("foreign labels and annotations", |value| {
        value["metadata"]["labels"]["team"] = json!("platform");
        value["metadata"]["annotations"] = json!({"note": "x"});
    });
}

#[test]
fn changed_kubemoor_webhook_fields_are_restored_and_admin_changes_kept() {
    let check = |what: &str, edit: fn(&mut Value)| {
        let live = live(|value| {
            value["webhooks"][0]["failurePolicy"] = json!("Fail");
            value["metadata"]["labels"]["team"] = json!("platform");
            edit(value);
        });
        let merged = merged(&live).unwrap_or_else(|| panic!("{what} was not seen"));
        let value = serde_json::to_value(&merged).unwrap();
        assert_eq!(named(&value, "v1.core.edits.kubemoor.dev")["failurePolicy"], "Fail", "{what}");
        assert_eq!(value["metadata"]["labels"]["team"], "platform", "{what}");
        assert_eq!(value["metadata"]["resourceVersion"], "7", "{what}");
        assert_eq!(self::merged(&merged), None, "{what}: written once, it is as desired");
    };
    check("a rule less", |value| {
        value["webhooks"][0]["rules"][0]["resources"].as_array_mut().unwrap().remove(0);
    });
    check("an operation less", |value| {
        value["webhooks"][0]["rules"][0]["operations"] = json!(["CREATE"]);
    });
    check("a narrower scope", |value| value["webhooks"][0]["rules"][0]["scope"] = json!("Cluster"));
    check("another CA", |value| value["webhooks"][0]["clientConfig"]["caBundle"] = json!("T0xE"));
    check("another path", |value| {
        value["webhooks"][0]["clientConfig"]["service"]["path"] = json!("/elsewhere");
    });
    check("an object selector", |value| {
        value["webhooks"][1]["objectSelector"] = json!({"matchLabels": {"a": "b"}});
    });
    check("an exact match", |value| value["webhooks"][0]["matchPolicy"] = json!("Exact"));
    check("a webhook less", |value| {
        value["webhooks"].as_array_mut().unwrap().remove(2);
    });
    check("a foreign webhook", |value| {
        let mut foreign = value["webhooks"][0].clone();
        foreign["name"] = json!("v2.gone.edits.kubemoor.dev");
        value["webhooks"].as_array_mut().unwrap().push(foreign);
    });
    check("its own label", |value| {
        value["metadata"]["labels"].as_object_mut().unwrap().remove("app.kubernetes.io/name");
    });
}

#[test]
fn new_group_webhook_adopts_failure_policy_common_to_its_siblings() {
    let check = |edit: fn(&mut Value), expected: &str| {
        let live = live(|value| {
            value["webhooks"].as_array_mut().unwrap().remove(2);
            edit(value);
        });
        let merged = serde_json::to_value(merged(&live).unwrap()).unwrap();
        let added = named(&merged, "v1beta1.example.org.edits.kubemoor.dev");
        assert_eq!(added["failurePolicy"], expected);
        assert_eq!(added["rules"][0]["resources"], json!(["widgets"]));
    };
    check(|_| {}, "Ignore");
    check(
        |value| {
            for webhook in &mut value["webhooks"].as_array_mut().unwrap()[..2] {
                webhook["failurePolicy"] = json!("Fail");
            }
        },
        "Fail",
    );
    check(|value| value["webhooks"][0]["failurePolicy"] = json!("Fail"), "Ignore");
}

#[test]
fn a_ca_that_somebody_else_injects_is_left_alone() {
    let endpoint = endpoint();
    let surface = WebhookSettings { ca_bundle: None, ..surface(&endpoint) };
    assert_eq!(merge(&live(|_| {}), &configuration(&declared(), &surface)), None);
}

#[test]
fn every_webhook_path_contains_the_token_and_changes_with_it() {
    let endpoint = endpoint();
    let [old, new] = ["a", "b"].map(|letter| CallerToken::parse(&letter.repeat(64)).unwrap());
    let addressed = |address| configuration(&declared(), &WebhookSettings { address, ..surface(&endpoint) });
    let paths = |configuration: &ValidatingWebhookConfiguration| {
        let config =
            |webhook: &ValidatingWebhook| webhook.client_config.service.clone().unwrap().path.unwrap();
        configuration.webhooks.iter().flatten().map(config).collect::<BTreeSet<_>>()
    };
    let registered = addressed(WebhookAddress::Token(&old));
    let expected = |proof: &str| ["validate", "observe"].map(|base| format!("/{base}/{proof}")).into();
    assert_eq!(paths(&registered), expected(old.expose()));
    assert_eq!(merge(&registered, &registered.clone()), None);
    let merged = merge(&registered, &addressed(WebhookAddress::Token(&new))).unwrap();
    assert_eq!(paths(&merged), expected(new.expose()));
    assert_eq!(paths(&addressed(WebhookAddress::Placeholder)), expected("CALLER_TOKEN"));
}

#[test]
fn a_message_that_quotes_an_address_loses_the_token_alone() {
    let token = "a1".repeat(32);
    for (text, veiled) in [
        (String::new(), ""),
        ("no address".to_owned(), "no address"),
        (format!("url \"https://h/validate/{token}\" is bad"), "url \"https://h/validate/…\" is bad"),
        (format!("/mutate/{token}?timeout=3s /validate/{token}"), "/mutate/…?timeout=3s /validate/…"),
        ("/validate/".to_owned(), "/validate/"),
        ("é/validate/é".to_owned(), "é/validate/é"),
    ] {
        assert_eq!(redact_tokens(&text), veiled);
    }
}
