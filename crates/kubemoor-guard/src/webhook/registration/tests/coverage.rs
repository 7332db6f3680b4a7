//! Which requests are sent, how often, and by which selector.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use super::*;

/// The rules of every webhook whose resources hold `plural`, with its selector.
fn sent(configuration: &Value, plural: &str) -> Vec<(String, Value, bool)> {
    let webhooks = configuration["webhooks"].as_array().unwrap().iter();
    let rules = webhooks
        .flat_map(|webhook| webhook["rules"].as_array().unwrap().iter().map(move |rule| (webhook, rule)));
    rules
        .filter(|(_, rule)| rule["resources"].as_array().unwrap().contains(&json!(plural)))
        .map(|(webhook, rule)| {
            let by_label = webhook["objectSelector"]["matchLabels"]["app.kubernetes.io/managed-by"] == "Helm";
            (webhook["name"].as_str().unwrap().to_owned(), rule["operations"].clone(), by_label)
        })
        .collect()
}

#[test]
fn frequently_written_resources_are_sent_only_by_label() {
    let endpoint = endpoint();
    let resources = BTreeSet::from([
        resource("", "v1", "configmaps", false),
        resource("", "v1", "events", false),
        resource("", "v1", "endpoints", false),
        resource("", "v1", "nodes", false),
        resource("", "v1", "pods", false),
        resource("", "v1", "bindings", false),
        resource("", "v1", "componentstatuses", false),
        resource("authentication.k8s.io", "v1", "tokenreviews", false),
        resource("authorization.k8s.io", "v1", "subjectaccessreviews", false),
        resource("coordination.k8s.io", "v1", "leases", false),
        resource("discovery.k8s.io", "v1", "endpointslices", false),
        resource("events.k8s.io", "v1", "events", false),
        resource("metrics.k8s.io", "v1beta1", "nodes", false),
    ]);
    for select_all in [false, true] {
        let surface = WebhookSettings { select_all, reverts: true, conditions: true, ..surface(&endpoint) };
        let judging = serde_json::to_value(configuration(&resources, &surface)).unwrap();
        let reverting = serde_json::to_value(mutating(&resources, &surface)).unwrap();
        for seen in [&judging, &reverting] {
            for plural in ["events", "endpoints", "nodes", "pods", "leases", "endpointslices"] {
                let sent = sent(seen, plural);
                assert!(
                    !sent.is_empty() && sent.iter().all(|(_, _, by_label)| *by_label),
                    "{plural}: {sent:?}"
                );
            }
            for plural in ["bindings", "componentstatuses", "tokenreviews", "subjectaccessreviews"] {
                assert_eq!(sent(seen, plural), [], "{plural}");
            }
            let names: Vec<_> = seen["webhooks"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
            let distinct: BTreeSet<_> = names.iter().map(|name| name.as_str().unwrap()).collect();
            assert_eq!(distinct.len(), names.len(), "{names:?}");
            assert!(!json!(names).to_string().contains("metrics.k8s.io"), "{names:?}");
        }
        let (name, _, by_label) = sent(&judging, "configmaps").swap_remove(0);
        assert_eq!((name.as_str(), by_label), ("v1.core.edits.kubemoor.dev", !select_all));
    }
}

#[test]
fn each_version_of_a_kind_is_sent_once() {
    let endpoint = endpoint();
    let resources = BTreeSet::from([
        resource("autoscaling", "v1", "horizontalpodautoscalers", false),
        resource("autoscaling", "v2", "horizontalpodautoscalers", false),
        resource("example.org", "v1", "widgets", true),
        resource("example.org", "v2", "widgets", true),
    ]);
    let seen = serde_json::to_value(configuration(&resources, &surface(&endpoint))).unwrap();
    let names = |plural: &str| sent(&seen, plural).into_iter().map(|(name, _, _)| name).collect::<Vec<_>>();
    assert_eq!(
        names("horizontalpodautoscalers"),
        ["v1.autoscaling.edits.kubemoor.dev", "v2.autoscaling.edits.kubemoor.dev", AUTOSCALERS]
    );
    assert_eq!(names("widgets"), ["v1.example.org.edits.kubemoor.dev", "v2.example.org.edits.kubemoor.dev"]);
    // A Scale is the same in all of them: the API server asks one webhook once.
    assert_eq!(names("widgets/scale"), ["scale.kubemoor.dev", "scale.kubemoor.dev"]);
}

#[test]
fn a_deletion_that_takes_others_along_is_sent_once() {
    let endpoint = endpoint();
    let resources = BTreeSet::from([
        resource("", "v1", "configmaps", false),
        resource("", "v1", "namespaces", false),
        resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", false),
    ]);
    let seen = serde_json::to_value(configuration(&resources, &surface(&endpoint))).unwrap();
    for plural in ["configmaps", "namespaces", "customresourcedefinitions"] {
        let sent = sent(&seen, plural);
        let deletions = sent
            .iter()
            .filter(|(_, operations, _)| operations.as_array().unwrap().contains(&json!("DELETE")));
        assert_eq!(deletions.count(), 1, "{plural}: {sent:?}");
    }
}

#[test]
fn updates_after_which_the_garbage_collector_may_delete_are_sent() {
    let endpoint = endpoint();
    let (namespaces, definitions) = ("namespaces", "customresourcedefinitions");
    for (conditions, wanted) in [
        (false, [json!([namespaces]), json!([definitions])]),
        (
            true,
            [
                json!([namespaces, "namespaces/finalize", "namespaces/status"]),
                json!([definitions, "customresourcedefinitions/status"]),
            ],
        ),
    ] {
        let seen = built(&WebhookSettings { conditions, ..surface(&endpoint) });
        let rules = named(&seen, DELETES)["rules"].as_array().unwrap().iter();
        let updated = rules.filter(|rule| rule["operations"] == json!(["UPDATE"]));
        let resources: Vec<_> = updated.map(|rule| rule["resources"].clone()).collect();
        assert_eq!(resources, wanted, "{conditions}");
    }
}

#[test]
fn subresources_that_can_change_metadata_are_sent_like_a_status() {
    let endpoint = endpoint();
    let resources = BTreeSet::from([
        resource("", "v1", "namespaces", false),
        resource("certificates.k8s.io", "v1", "certificatesigningrequests", false),
    ]);
    let seen = json!(configuration(
        &resources,
        &WebhookSettings { conditions: true, select_all: false, ..surface(&endpoint) }
    ));
    for (name, paths) in [
        ("v1.core.status.kubemoor.dev", ["namespaces/finalize", "namespaces/status"]),
        (
            "v1.certificates.k8s.io.status.kubemoor.dev",
            ["certificatesigningrequests/approval", "certificatesigningrequests/status"],
        ),
    ] {
        assert_eq!(named(&seen, name)["rules"][0]["resources"], json!(paths));
    }
}

/// The condition under which a change of an object in deletion is sent.
const BEING_DELETED: &str = "oldObject == null || !has(oldObject.metadata.deletionTimestamp) || (object != null && (\
    object.exists(k, !(k in ['metadata']) && !(k in oldObject && object[k] == oldObject[k])) \
    || oldObject.exists(k, !(k in ['metadata']) && !(k in object)) \
    || object.metadata.exists(k, !(k in ['finalizers', 'managedFields', 'resourceVersion', 'generation', \
    'deletionTimestamp', 'deletionGracePeriodSeconds']) \
    && !(k in oldObject.metadata && object.metadata[k] == oldObject.metadata[k])) \
    || oldObject.metadata.exists(k, !(k in ['finalizers', 'managedFields', 'resourceVersion', 'generation', \
    'deletionTimestamp', 'deletionGracePeriodSeconds']) && !(k in object.metadata))))";

/// The condition under which an update is sent for its owners.
const OWNERS_CHANGE: &str = "(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) \
    != (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : [])";

/// The condition under which a status is sent, before that for its owners.
const HELMS_METADATA_CHANGES: &str = "(has(object.metadata.labels) && 'app.kubernetes.io/managed-by' in object.metadata.labels \
    ? object.metadata.labels['app.kubernetes.io/managed-by'] : '') \
    != (has(oldObject.metadata.labels) && 'app.kubernetes.io/managed-by' in oldObject.metadata.labels \
    ? oldObject.metadata.labels['app.kubernetes.io/managed-by'] : '') \
    || (has(object.metadata.annotations) && 'meta.helm.sh/release-name' in object.metadata.annotations \
    ? object.metadata.annotations['meta.helm.sh/release-name'] : '') \
    != (has(oldObject.metadata.annotations) && 'meta.helm.sh/release-name' in oldObject.metadata.annotations \
    ? oldObject.metadata.annotations['meta.helm.sh/release-name'] : '') \
    || (has(object.metadata.annotations) && 'meta.helm.sh/release-namespace' in object.metadata.annotations \
    ? object.metadata.annotations['meta.helm.sh/release-namespace'] : '') \
    != (has(oldObject.metadata.annotations) && 'meta.helm.sh/release-namespace' in oldObject.metadata.annotations \
    ? oldObject.metadata.annotations['meta.helm.sh/release-namespace'] : '')";

#[test]
fn status_webhooks_require_match_conditions_and_changed_helm_metadata() {
    let endpoint = endpoint();
    let statuses = |surface: &WebhookSettings<'_>| {
        let seen = built(surface);
        let webhooks = seen["webhooks"].as_array().unwrap().iter();
        let statuses = webhooks.filter(|webhook| webhook["name"].as_str().unwrap().ends_with(STATUS));
        statuses.cloned().collect::<Vec<_>>()
    };
    assert_eq!(statuses(&surface(&endpoint)), Vec::<Value>::new());
    for select_all in [false, true] {
        let statuses = statuses(&WebhookSettings { conditions: true, select_all, ..surface(&endpoint) });
        let names: Vec<_> = statuses.iter().map(|webhook| &webhook["name"]).collect();
        assert_eq!(
            json!(names),
            json!([
                "v1.core.status.kubemoor.dev",
                "v1.apps.status.kubemoor.dev",
                "v1beta1.example.org.status.kubemoor.dev"
            ])
        );
        for webhook in &statuses {
            let helms = json!({"matchLabels": {"app.kubernetes.io/managed-by": "Helm"}});
            assert_eq!(webhook["objectSelector"], helms);
            assert_eq!(webhook["rules"][0]["operations"], json!(["UPDATE"]));
            let resources = webhook["rules"][0]["resources"].as_array().unwrap();
            assert!(resources.iter().all(|it| it.as_str().unwrap().ends_with("/status")), "{resources:?}");
        }
        let conditions = json!([
            {
                "name": "helms-metadata-changes",
                "expression": format!("{HELMS_METADATA_CHANGES} || {OWNERS_CHANGE}")
            },
            {
                "name": "not-being-deleted",
                "expression": BEING_DELETED
            }
        ]);
        assert_eq!(statuses[1]["matchConditions"], conditions);
    }
}

/// The condition under which a Secret is sent as a record.
const RECORD_OF_HELMS: &str = "(object != null && ((has(object.metadata.name) && object.metadata.name.startsWith('sh.helm.release.v1.')) \
    || (has(object.metadata.labels) && 'owner' in object.metadata.labels \
    && object.metadata.labels['owner'] == 'helm'))) \
    || (oldObject != null && ((has(oldObject.metadata.name) && oldObject.metadata.name.startsWith('sh.helm.release.v1.')) \
    || (has(oldObject.metadata.labels) && 'owner' in oldObject.metadata.labels \
    && oldObject.metadata.labels['owner'] == 'helm')))";

/// Without its own condition a webhook would be sent all that controllers write.
#[test]
fn own_conditions_are_added_to_those_of_the_admin() {
    let endpoint = endpoint();
    let wanted = configuration(&declared(), &WebhookSettings { conditions: true, ..surface(&endpoint) });
    let mut live = wanted.clone();
    let status = |configuration: &mut ValidatingWebhookConfiguration| {
        let webhooks = configuration.webhooks.as_mut().unwrap();
        webhooks.iter().position(|webhook| webhook.name == "v1.apps.status.kubemoor.dev").unwrap()
    };
    let place = status(&mut live);
    let admins = MatchCondition { name: "people".to_owned(), expression: "true".to_owned() };
    live.webhooks.as_mut().unwrap()[place].match_conditions = Some(vec![admins]);
    let merged = merge(&live, &wanted).unwrap();
    let names: Vec<_> = merged.webhooks.as_ref().unwrap()[place]
        .match_conditions
        .iter()
        .flatten()
        .map(|it| it.name.clone())
        .collect();
    assert_eq!(names, ["people", "helms-metadata-changes", "not-being-deleted"]);
    assert_eq!(merge(&merged, &wanted), None);
}

#[test]
fn requests_that_are_always_allowed_are_skipped_since_1_28() {
    let endpoint = endpoint();
    let cleanup = json!({
        "name": "not-a-controllers-cleanup",
        "expression": "request.operation != 'DELETE' || !(request.userInfo.username in \
            ['system:kube-controller-manager', 'system:serviceaccount:kube-system:namespace-controller', \
            'system:serviceaccount:kube-system:generic-garbage-collector'])"
    });
    let deleted = json!({
        "name": "not-being-deleted",
        "expression": BEING_DELETED
    });
    for conditions in [false, true] {
        let surface = WebhookSettings { conditions, reverts: true, select_all: true, ..surface(&endpoint) };
        let resources: BTreeSet<_> =
            declared().into_iter().chain([resource("", "v1", "pods", false)]).collect();
        let judging = json!(configuration(&resources, &surface));
        let reverting = json!(mutating(&resources, &surface));
        let webhooks =
            [&judging, &reverting].map(|it| it["webhooks"].as_array().unwrap()).into_iter().flatten();
        let mut counts = [0; 2];
        for webhook in webhooks {
            let name = webhook["name"].as_str().unwrap();
            let is = |suffix: &str| name.ends_with(suffix);
            let expected = if !conditions || is(SCALE) || is(ORDERS) {
                Value::Null
            } else if is(REVERTS) {
                counts[0] += 1;
                json!([deleted])
            } else if is(STATUS) {
                continue;
            } else if is(RECORDS) {
                json!([cleanup, {"name": "a-record-of-helms", "expression": RECORD_OF_HELMS}])
            } else if is(DELETES) {
                counts[1] += 1;
                let labels = "(has(object.metadata.labels) ? object.metadata.labels : {}) \
                    != (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {})";
                let expression = format!("request.operation != 'UPDATE' || {OWNERS_CHANGE} || {labels}");
                json!([cleanup, deleted, {"name": "owners-or-labels-change", "expression": expression}])
            } else {
                counts[1] += 1;
                json!([cleanup, deleted])
            };
            assert_eq!(webhook["matchConditions"], expected, "{name}");
        }
        assert_eq!(counts, if conditions { [4, 6] } else { [0, 0] });
        // A selector knows no names.
        let selector = if conditions { Value::Null } else { json!({"matchLabels": {"owner": "helm"}}) };
        assert_eq!(named(&judging, RECORDS)["objectSelector"], selector);
    }
}

#[test]
fn own_conditions_follow_the_version_and_the_admins_stay() {
    let endpoint = endpoint();
    let wanted =
        |conditions: bool| configuration(&declared(), &WebhookSettings { conditions, ..surface(&endpoint) });
    let names = |configuration: &ValidatingWebhookConfiguration, webhook: &str| {
        let webhook = configuration.webhooks.iter().flatten().find(|it| it.name == webhook).unwrap();
        webhook.match_conditions.iter().flatten().map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    let mut live = wanted(false);
    for webhook in live.webhooks.iter_mut().flatten() {
        let admins = MatchCondition { name: "people".to_owned(), expression: "true".to_owned() };
        webhook.match_conditions = Some(vec![admins]);
        webhook.failure_policy = Some("Fail".to_owned());
    }
    // One webhook is not there yet: it gets the admin's settings, and the guard's own conditions.
    let all = live.webhooks.as_mut().unwrap();
    all.retain(|webhook| webhook.name != "v1.apps.edits.kubemoor.dev");
    let after = merge(&live, &wanted(true)).unwrap();
    for webhook in ["v1.core.edits.kubemoor.dev", "v1.apps.edits.kubemoor.dev", RECORDS, DELETES] {
        let mut expected = vec!["people", "not-a-controllers-cleanup"];
        expected.push(if webhook == RECORDS { "a-record-of-helms" } else { "not-being-deleted" });
        expected.extend((webhook == DELETES).then_some("owners-or-labels-change"));
        assert_eq!(names(&after, webhook), expected, "{webhook}");
    }
    assert_eq!(merge(&after, &wanted(true)), None);
    let mut without = after.clone();
    without.webhooks.as_mut().unwrap().retain(|it| it.name != "v1.apps.edits.kubemoor.dev");
    let again = merge(&without, &wanted(true)).unwrap();
    let added = again.webhooks.iter().flatten().find(|it| it.name == "v1.apps.edits.kubemoor.dev").unwrap();
    assert_eq!(added.failure_policy.as_deref(), Some("Fail"));
    let before = merge(&after, &wanted(false)).unwrap();
    assert_eq!(names(&before, RECORDS), ["people"]);
}
