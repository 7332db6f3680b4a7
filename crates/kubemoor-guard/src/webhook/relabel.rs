//! Warns the user whose labels of a namespace have its releases follow a milder policy.
//!
//! Entry points: [`concerns`], then [`warning`]. Invariant: the change passes in any case, because labels of namespaces are their
//! owner's; the ledger has a row for it from the watch. Must not do I/O.

use serde_json::Value;

use super::case::{Aspect, Case};
use super::review;
use kubemoor_declare::model::{DriftMode, Operation, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::{Labels, Policies};

/// Whether an edit is an update of a namespace.
pub(super) fn concerns(case: &Case<'_>) -> bool {
    let object = &case.subject.object;
    let is_namespace = object.group.is_empty() && object.kind == "Namespace";
    is_namespace && case.subject.aspect == Aspect::Object && case.operation == Operation::Update
}

/// The warning about an update of a namespace.
pub(super) fn warning(case: &Case<'_>, policies: &Policies, index: &Index) -> Option<String> {
    let object = &case.subject.object;
    let (old, new) = case.texts();
    let [old, new] = [labels(old?.get())?, labels(new?.get())?];
    let is_same =
        old == new || policies.of_namespace(&object.name, &old) == policies.of_namespace(&object.name, &new);
    if is_same {
        return None;
    }
    let here =
        index.releases().map(|release| &release.id).filter(|id| id.namespace.as_str() == &*object.name);
    let mut milder: Vec<_> = here.filter(|id| is_milder(policies, id, &old, &new)).collect();
    milder.sort();
    let first = milder.first()?;
    let (before, after) = (policies.of(first, &old), policies.of(first, &new));
    let others = match milder.len().saturating_sub(1) {
        0 => String::new(),
        others => format!(", and of {others} more"),
    };
    Some(format!(
        "these labels make the policy of Helm release {:?}{others} milder: edits {:?} -> {:?}, drift {:?} -> {:?}",
        first.name, before.edits, after.edits, before.drift, after.drift
    ))
}

/// Whether a release in a namespace follows milder modes with the labels `new` than with `old`.
fn is_milder(policies: &Policies, release: &ReleaseId, old: &Labels, new: &Labels) -> bool {
    let (before, after) = (policies.of(release, old), policies.of(release, new));
    let strictness = |policy: &Policy| match policy.drift {
        DriftMode::Ignore => 0,
        DriftMode::Report => 1,
        DriftMode::Repair => 2,
    };
    after.edits < before.edits || strictness(&after) < strictness(&before)
}

/// The labels of an object; `None` if it cannot be read.
fn labels(text: &str) -> Option<Labels> {
    let object = review::object(text).ok()?;
    let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
    labels.filter(|labels| !labels.is_null()).map_or(Some(Labels::new()), read)
}

fn read(labels: &Value) -> Option<Labels> {
    serde_json::from_value(labels.clone()).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::sample_releases::{Given, assembled};
    use crate::webhook::case::Subject;
    use kubemoor_declare::model::EditsMode;
    use kubemoor_policy::read;
    use kubemoor_runtime::config::RecordDriver;

    fn policies() -> Policies {
        let strict = |name: &str, releases: Value| {
            let spec = json!({"edits": "Deny", "drift": "Repair", "releases": releases});
            let kind = json!({
                "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": name},
                "spec": spec,
            });
            Arc::new(read::policy(kind).unwrap())
        };
        let accepted = [
            strict("labelled", json!({"namespaceSelector": {"matchLabels": {"tier": "prod"}}})),
            strict("pinned", json!({"namespaces": ["pinned"]})),
        ];
        let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
        Policies::new(defaults, &Labels::new(), accepted)
    }

    fn warned(namespace: &str, [old, new]: [Value; 2]) -> Option<String> {
        let mut index = Index::default();
        for (namespace, name) in [("shop", "web"), ("shop", "api"), ("pinned", "web"), ("bank", "web")] {
            index.set(assembled(Given { namespace, name, ..Given::default() }, None));
        }
        let object = |labels: Value| json!({"metadata": {"name": namespace, "labels": labels}});
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "r", "kind": {"group": "", "version": "v1", "kind": "Namespace"},
                "resource": {"group": "", "version": "v1", "resource": "namespaces"},
                "name": namespace, "operation": "UPDATE", "userInfo": {"username": "alice"},
                "object": object(new), "oldObject": object(old),
            },
        })
        .to_string();
        let request = review::Request::parse(review.as_bytes()).unwrap();
        let subject = Subject::of(&request.head, &index, RecordDriver::Secret).unwrap();
        let case = Case::of(subject, request, RecordDriver::Secret);
        warning(&case, &policies(), &index)
    }

    #[test]
    fn labels_that_make_a_policy_milder_warn_their_user() {
        let prod = || json!({"tier": "prod"});
        let expected = "these labels make the policy of Helm release \"api\", and of 1 more milder: \
                        edits Deny -> Warn, drift Repair -> Report";
        for milder in [json!({"tier": "test"}), json!({}), json!(null)] {
            assert_eq!(warned("shop", [prod(), milder]).as_deref(), Some(expected));
        }
        assert_eq!(warned("shop", [json!({}), prod()]), None);
        assert_eq!(warned("shop", [prod(), json!({"tier": "prod", "team": "a"})]), None);
        assert_eq!(warned("empty", [prod(), json!({})]), None);
        // Its name does not change.
        assert_eq!(warned("pinned", [prod(), json!({})]), None);
    }
}
