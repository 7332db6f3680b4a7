//! Answers as the API server reads them.

use futures::FutureExt;
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::webhook::review::{Request, ReviewError};

fn read(response: Response<Body>) -> (u16, Value) {
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let status = response.status().as_u16();
    let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn warnings(given: &[String]) -> Vec<String> {
    let answer = given.iter().fold(Answer::allow(), |answer, warning| answer.warn(warning.as_str()));
    let (_, review) = read(answer.respond("u"));
    serde_json::from_value(review["response"].get("warnings").cloned().unwrap_or(json!([]))).unwrap()
}

#[test]
fn an_allowance_says_nothing_else() {
    let (status, review) = read(Answer::allow().respond("u-1"));
    assert_eq!(status, 200);
    assert_eq!(
        review,
        json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": "u-1", "allowed": true},
        })
    );
}

#[test]
fn patch_is_base64_json_and_hidden_from_debug_output() {
    let patch: Patch = serde_json::from_value(json!([{"op": "remove", "path": "/spec/paused"}])).unwrap();
    let answer = Answer::allow().patch(patch);
    let (_, review) = read(answer.respond("u"));
    assert_eq!(review["response"]["patchType"], "JSONPatch");
    let sent = STANDARD.decode(review["response"]["patch"].as_str().unwrap()).unwrap();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent, json!([{"op": "remove", "path": "/spec/paused"}]));
    assert!(!format!("{answer:?}").contains("paused"));
    // An empty patch is none: the API server would refuse one without operations.
    let (_, review) = read(Answer::allow().patch(Patch::default()).respond("u"));
    assert_eq!(review["response"], json!({"uid": "u", "allowed": true}));
}

#[test]
fn a_denial_is_403_forbidden_with_its_message() {
    let answer = Answer::deny("line 1\nline 2")
        .annotate(AuditKey::Decision, "allow")
        .annotate(AuditKey::Decision, "deny")
        .annotate(AuditKey::Release, "shop/web")
        .warn("careful");
    assert!(!answer.allowed());
    let (status, review) = read(answer.respond("u\"2"));
    assert_eq!(status, 200);
    assert_eq!(
        review["response"],
        json!({
            "uid": "u\"2",
            "allowed": false,
            "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "line 1\nline 2"},
            "auditAnnotations": {"decision": "deny", "release": "shop/web"},
            "warnings": ["careful"],
        })
    );
}

#[test]
fn audit_keys_are_qualified_names_without_a_prefix() {
    for key in AuditKey::ALL {
        let name = key.as_str();
        assert!(name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
        assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()));
        assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()));
    }
}

#[test]
fn malformed_review_returns_http_400_and_failure_returns_500() {
    let error = Request::parse(b"{").unwrap_err();
    assert!(matches!(error, ReviewError::Truncated));
    assert_eq!(read(malformed(&error)), (400, json!({"error": "the body ends before the review does"})));
    assert_eq!(read(failed("no look")), (500, json!({"error": "no look"})));
}

#[test]
fn a_warning_is_one_line_of_at_most_256_characters() {
    let long = "ä".repeat(257);
    let just = "ä".repeat(256);
    let given = ["a\nb\tc\u{7f}\u{85}d".to_owned(), long, just.clone()];
    assert_eq!(warnings(&given), ["a b c  d".to_owned(), format!("{}…", "ä".repeat(255)), just]);
}

#[test]
fn the_same_warning_is_given_once() {
    assert_eq!(warnings(&["a".to_owned(), "b".to_owned(), "a".to_owned()]), ["a", "b"]);
}

#[test]
fn warnings_that_fill_the_room_are_all_given() {
    let given: Vec<String> = (0..16).map(|n| format!("{n:0256}")).collect();
    assert_eq!(warnings(&given), given);
}

#[test]
fn warnings_beyond_the_room_are_counted() {
    let given: Vec<String> = (0..100).map(|n| format!("{n:0200}")).collect();
    let kept = warnings(&given);
    assert_eq!(kept.len(), 21);
    assert_eq!(kept[..20], given[..20]);
    assert_eq!(kept[20], "… and 80 more warnings");
}

proptest! {
    #[test]
    fn warnings_keep_the_limits(given in proptest::collection::vec("(?s).{0,400}", 0..40)) {
        let kept = warnings(&given);
        prop_assert!(kept.iter().map(|warning| warning.chars().count()).sum::<usize>() <= 4096);
        prop_assert!(kept.iter().all(|warning| warning.chars().count() <= 256));
        prop_assert!(!kept.iter().any(|warning| warning.chars().any(char::is_control)));
        prop_assert_eq!(kept.is_empty(), given.is_empty());
    }
}
