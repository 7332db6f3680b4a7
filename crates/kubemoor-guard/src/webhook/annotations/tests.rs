use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::sample_releases::deployed;
use crate::webhook::case::ReviewSubject;
use crate::webhook::look::ReleaseSource;
use crate::webhook::review;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_helm::index::Index;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::edit::Rules;

fn texts(annotations: Value) -> AllowAnnotations {
    let object = json!({"metadata": {"name": "web", "annotations": annotations}}).to_string();
    excerpted(Excerpt::new(&object).as_ref())
}

#[test]
fn the_three_annotations_are_read_and_others_are_not() {
    let read = texts(json!({ALLOW: "*", ALLOW_UNTIL: "t", ALLOW_REASON: "r", "other": "x"}));
    let expected = AllowAnnotations {
        allow: Some("*".to_owned()),
        until: Some("t".to_owned()),
        reason: Some("r".to_owned()),
    };
    assert_eq!(read, expected);
}

#[test]
fn missing_or_malformed_allow_annotations_request_nothing() {
    for annotations in
        [json!(null), json!({}), json!({"other": ALLOW}), json!("kubemoor.dev/allow"), json!({ALLOW: 5})]
    {
        assert_eq!(texts(annotations.clone()), AllowAnnotations::default(), "{annotations}");
    }
    assert_eq!(excerpted(None), AllowAnnotations::default());
}

#[test]
fn chart_annotations_written_beside_user_annotations_belong_to_the_chart() {
    let of = |allow: &str, until: &str, reason: &str| {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        AllowAnnotations { allow: text(allow), until: text(until), reason: text(reason) }
    };
    let chart = of("/a", "", "c");
    for (before, after, follows) in [
        (of("", "", ""), of("/a", "", "c"), true),
        (of("", "past", ""), of("/a", "past", "c"), true),
        (of("/b", "past", "mine"), of("/a", "past", "c"), true),
        (of("/a", "t", "c"), of("/a", "", "c"), true),
        (of("/a", "", "c"), of("/a", "t", "c"), false),
        (of("/a", "", "c"), of("/b", "", "c"), false),
        (of("", "", ""), of("/a", "t", "c"), false),
        (of("", "", ""), of("*", "", ""), false),
    ] {
        assert_eq!(after.follows(&before, &chart), follows, "{before:?} {after:?}");
    }
}

/// What comes of a request that could not be looked into, of an edit that
/// passes otherwise.
async fn unknown(mode: EditsMode) -> Result<Vec<String>, JudgementError> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "settings", "namespace": "shop", "operation": "UPDATE", "userInfo": {"username": "alice"},
            "object": {"metadata": {"name": "settings"}}, "oldObject": {"metadata": {"name": "settings"}},
        },
    })
    .to_string();
    let request = review::AdmissionRequest::parse(review.as_bytes()).unwrap();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {k: v}\n";
    let release = Arc::new(deployed(manifest));
    let index = Index::default();
    let subject = ReviewSubject::from_head(&request.head, &index, RecordDriver::Secret).unwrap();
    let case = ReviewCase::new(subject, request, RecordDriver::Secret);
    let resolver = PolicyResolver::new(Policy::new(mode, DriftMode::Report, Duration::from_secs(60)));
    let source = ReleaseSource::Fixed(parking_lot::RwLock::new(index));
    let rules = Rules { resolver: &resolver, own_account: None };
    let looker =
        CaseJudge { source: &source, rules: &rules, deadline: Instant::now() + Duration::from_secs(1) };
    let mut judgement = Judgement {
        verdict: Verdict::allow(VerdictReason::Unchanged),
        message: message::EditMessage::default(),
        required_releases: Vec::new(),
        named: None,
        facts: None,
        claims: vec![release],
        uid: String::new(),
        settled: None,
        request_refused: None,
    };
    let error = JudgementError::Ask(Box::new(ClusterError::Late { within: Duration::from_secs(1) }));
    settle(AnnotationRequest::Unknown(error), &case, &mut judgement, &looker).await
}

#[tokio::test]
async fn failed_lookup_rejects_changes_only_in_deny_and_revert_mode() {
    for mode in [EditsMode::Allow, EditsMode::Record, EditsMode::Warn] {
        let said = unknown(mode).await.unwrap();
        assert!(said.len() == 2 && said[0].contains("has no effect here"), "{mode:?}: {said:?}");
    }
    for mode in [EditsMode::Revert, EditsMode::Deny] {
        assert!(matches!(unknown(mode).await, Err(JudgementError::Ask(_))), "{mode:?}");
    }
}
