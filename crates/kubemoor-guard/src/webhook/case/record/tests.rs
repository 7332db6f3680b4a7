use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::super::{Basis, Case, Subject};
use super::*;
use crate::sample_releases::{Given, assembled};
use crate::sample_verdicts::resolver;
use kubemoor_declare::model::EditsMode;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::circumstances::Circumstances;
use kubemoor_verdict::edit::Evidence;

/// The verdict on a change of a Secret that may be a record of `shop/web`, as `Outcome reason`.
fn verdict(name: &str, old: Value, new: Value) -> String {
    let object = |mut object: Value| {
        object["metadata"]["name"] = json!(name);
        object
    };
    let operation = match (old.is_null(), new.is_null()) {
        (true, _) => "CREATE",
        (_, true) => "DELETE",
        _ => "UPDATE",
    };
    let [old, new] = [old, new].map(|it| if it.is_null() { it } else { object(it) });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": "", "version": "v1", "kind": "Secret"},
            "resource": {"group": "", "version": "v1", "resource": "secrets"},
            "name": name, "namespace": "shop", "operation": operation, "userInfo": {"username": "mallory"},
            "object": new, "oldObject": old,
        },
    })
    .to_string();
    let manifest =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: declared, namespace: shop}\ndata: {a: MQ==}\n";
    let mut index = Index::default();
    index.set(assembled(Given { manifest, namespace: "shop", name: "web", ..Given::default() }, None));
    let index = RwLock::new(index);
    let resolver = resolver(EditsMode::Deny);
    let rules = Rules { resolver: &resolver, own_account: None };
    let request = review::Request::parse(review.as_bytes()).unwrap();
    let subject = Subject::of(&request.head, &index.read(), RecordDriver::Secret).unwrap();
    let case = Case::of(subject, request, RecordDriver::Secret);
    let circumstances = Circumstances::default();
    let (circumstances, evidence, now) = (&circumstances, Evidence::None, Timestamp::UNIX_EPOCH);
    let verdict = case.judge(Basis { index: &index, circumstances, rules: &rules, evidence, now }).verdict;
    format!("{} {}", verdict.outcome.as_str(), verdict.reason.as_str())
}

#[test]
fn secret_with_helms_labels_is_a_record_whatever_its_name() {
    let labelled = || json!({"metadata": {"labels": {"owner": "helm", "name": "web"}}});
    let plain = || json!({"metadata": {"labels": {"owner": "me", "name": "web"}}});
    for (old, new) in
        [(Value::Null, labelled()), (plain(), labelled()), (labelled(), plain()), (labelled(), Value::Null)]
    {
        assert_eq!(verdict("backup", old, new), "Allow record-intact");
    }
    assert_eq!(verdict("backup", plain(), plain()), "Allow not-declared");
    // It may be declared as well, and these labels excuse no change.
    let with = |data: &str| {
        let mut secret = labelled();
        secret["data"] = json!({"a": data});
        secret
    };
    assert_eq!(verdict("declared", with("MQ=="), with("Mg==")), "Deny drift");
    assert_eq!(verdict("declared", plain(), labelled()), "Allow unchanged");
}

#[test]
fn record_in_deletion_only_loses_finalizers() {
    let record = |change: fn(&mut Value)| {
        let mut record = json!({
            "metadata": {
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/held"],
                "labels": {"owner": "helm", "name": "web", "version": "2", "status": "deployed"},
            },
            "data": {"release": "MQ=="},
        });
        change(&mut record);
        record
    };
    let name = "sh.helm.release.v1.web.v2";
    let free = |record: &mut Value| record["metadata"]["finalizers"] = json!([]);
    assert_eq!(verdict(name, record(|_| {}), record(free)), "Allow being-deleted");
    assert_eq!(verdict(name, record(|_| {}), Value::Null), "Allow being-deleted");
    let bare = |record: &mut Value| record["metadata"]["labels"] = Value::Null;
    let other = |record: &mut Value| record["data"] = json!({"release": "Mg=="});
    assert_eq!(verdict(name, record(bare), record(|_| {})), "Allow record-intact");
    assert_eq!(verdict(name, record(|_| {}), record(other)), "Allow record-intact");
}
