use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use crate::sample_verdicts::{context, drift, object, refused};
use kubemoor_declare::model::{ObjectId, Operation};
use kubemoor_verdict::claims::Dependant;
use kubemoor_verdict::edit::VerdictReason;
use kubemoor_verdict::message::{self, EditMessage, UnrepairedReason};
use kubemoor_verdict::records::RecordViolation;
use kubemoor_verdict::revert::RevertedField;

#[track_caller]
fn check(text: &str, wanted: Option<(&str, Option<&str>, &[&str])>) {
    let found = ExplainQuery::parse(text);
    let paths = |denial: &ExplainQuery| denial.paths.clone();
    let found = found.as_ref().map(|it| (it.object.as_str(), it.namespace.as_deref(), paths(it)));
    let wanted = wanted.map(|(object, namespace, paths)| {
        (object, namespace, paths.iter().map(|path| (*path).to_owned()).collect())
    });
    assert_eq!(found, wanted, "{text}");
}

/// A message, whole and in all its forms.
#[track_caller]
fn check_message(message: &EditMessage, object: &str, namespace: Option<&str>, paths: &[&str]) {
    let denial = message.denial();
    let around = format!(
        "Error from server (Forbidden): admission webhook \"v1.apps.edits.kubemoor.dev\" denied the request: {denial}\n"
    );
    let warnings: String = message.warnings().iter().map(|it| format!("Warning: {it}\n")).collect();
    for text in [denial.as_str(), &around, &around.replace(' ', "\n"), &warnings] {
        check(text, Some((object, namespace, paths)));
    }
}

fn cluster_role() -> ObjectId {
    ObjectId { namespace: None, ..object("rbac.authorization.k8s.io", "ClusterRole") }
}

fn widget() -> ObjectId {
    ObjectId { namespace: Some("other".into()), ..object("example.org", "Widget") }
}

#[test]
fn messages_on_edits_are_understood() {
    let (web, role) = (object("apps", "Deployment"), cluster_role());
    let image = "/spec/template/spec/containers/[name=app]/image";
    let changes = || {
        vec![
            ("/spec/replicas", [json!(2), json!(2), json!(5)]),
            (image, [json!("a"), json!("a: b -> c"), json!("it's; /spec/x")]),
            ("/spec/paused", [json!(null), json!(null), json!(true)]),
            ("/metadata/annotations/example.org~1it's", [json!("1"), json!("1"), json!("2")]),
        ]
    };
    let paths = ["/spec/replicas", image, "/spec/paused", "/metadata/annotations/example.org~1it's"];
    check_message(&drift(&web, changes()), "deployment/web", Some("shop"), &paths);
    check_message(&drift(&role, changes()), "clusterrole/web", Some("shop"), &paths);
    check_message(&drift(&widget(), changes()), "widget.example.org/web", Some("other"), &paths);
    let path: Path = "/spec/replicas".parse().unwrap();
    let reverted = [RevertedField { path, wanted: None, now: None }];
    let of_revert =
        context(&web, Operation::Update).of_revert(&refused(VerdictReason::Drift, Vec::new()), &reverted);
    check_message(&of_revert, "deployment/web", Some("shop"), &["/spec/replicas"]);
}

#[test]
fn messages_on_deletions_and_records_are_understood() {
    let web = object("apps", "Deployment");
    let of_deletion = |object: &ObjectId, operation| {
        context(object, operation).of_edit(&refused(VerdictReason::Deletion, Vec::new()))
    };
    for operation in [Operation::Delete, Operation::Update] {
        check_message(&of_deletion(&web, operation), "deployment/web", Some("shop"), &[]);
        check_message(&of_deletion(&cluster_role(), operation), "clusterrole/web", Some("shop"), &[]);
    }
    let record = ObjectId { name: "sh.helm.release.v1.shop.v7".into(), ..object("", "Secret") };
    for falsified in [
        RecordViolation::Manifest,
        RecordViolation::LastDeployed,
        RecordViolation::Disagreement,
        RecordViolation::Stranger,
    ] {
        let (message, name) = (message::of_record(&record, falsified), "secret/sh.helm.release.v1.shop.v7");
        check_message(&message, name, Some("shop"), &[]);
    }
    let place = ObjectId { namespace: None, name: "shop".into(), ..object("", "Namespace") };
    let crd = ObjectId {
        namespace: None,
        name: "widgets.example.org".into(),
        ..object("apiextensions.k8s.io", "CustomResourceDefinition")
    };
    let dependants = [Dependant { release: Arc::new(assembled(SampleRecord::default(), None)), object: web }];
    check_message(
        &message::of_dependants(&place, Operation::Delete, &dependants),
        "namespace/shop",
        None,
        &[],
    );
    let name = "customresourcedefinition.apiextensions.k8s.io/widgets.example.org";
    check_message(&message::of_dependants(&crd, Operation::Update, &dependants), name, None, &[]);
}

#[test]
fn messages_on_exceptions_and_orders_are_understood() {
    let web = object("apps", "Deployment");
    let release = assembled(SampleRecord::default(), None);
    let reason = "NoRight: bob may not create driftallowances.kubemoor.dev in namespace shop";
    check_message(&message::refused(&web, &release.id, reason), "deployment/web", Some("shop"), &[]);
    check_message(&message::without_effect(&web, reason), "deployment/web", Some("shop"), &[]);
    let until = "2026-05-01T12:00:00Z".parse().unwrap();
    let granted = message::granted(&web, ("shop", "web-1"), (&["/spec/replicas".to_owned()], until), false);
    check_message(&granted, "deployment/web", Some("shop"), &[]);
    check_message(&message::withdrawn(&web, &release.id), "deployment/web", Some("shop"), &[]);
    let (user, verb) = ("bob", "update");
    let reasons = [
        UnrepairedReason::OnlyHelm,
        UnrepairedReason::NoRight { user, verb },
        UnrepairedReason::Unchecked { user, verb, error: "no answer within 2s", is_outage: true },
        UnrepairedReason::Unchecked { user, verb, error: "it is forbidden", is_outage: false },
        UnrepairedReason::TooManyObjects,
    ];
    for why in reasons {
        check(&message::of_order(&web, &release.id, why), Some(("deployment/web", None, &[])));
        check(&message::of_order(&widget(), &release.id, why), Some(("widget/web", Some("other"), &[])));
    }
}

#[test]
fn messages_on_unjudged_edits_are_understood() {
    let web = object("apps", "Deployment");
    for is_record in [true, false] {
        for message in [message::of_beyond_judgement(&web, is_record), message::of_overload(&web, is_record)]
        {
            check_message(&message, "deployment/web", Some("shop"), &[]);
        }
    }
    let nameless = ObjectId { name: "".into(), ..web };
    for message in [message::of_overload(&nameless, false), message::of_beyond_judgement(&nameless, false)] {
        check(&message.denial(), None);
    }
}

#[test]
fn first_sentence_alone_is_understood() {
    let web = object("apps", "Deployment");
    let message = drift(&web, vec![("/spec/replicas", [json!(2), json!(2), json!(5)])]);
    let release = Some(ReleaseId { namespace: "shop".into(), name: "shop".into() });
    let warning = message.warnings().remove(0);
    for text in [warning, message.line()] {
        check(&text, Some(("deployment/web", None, &["/spec/replicas"])));
    }
    let message = drift(&cluster_role(), vec![("/rules", [json!(1), json!(1), json!(2)])]);
    let found = ExplainQuery::parse(&message.warnings()[0]).unwrap();
    assert_eq!((found.object.as_str(), &found.release), ("clusterrole/web", &release));
}

#[test]
fn other_text_is_no_message() {
    for text in
        ["", " is managed by Helm release ", "web is managed by Helm release \"a\"", "x", "kubemoor explain"]
    {
        check(text, None);
    }
}
