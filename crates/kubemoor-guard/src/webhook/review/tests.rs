//! Reading reviews and writing answers within the limits.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A review as the API server writes one, field for field in its order.
pub(super) const UPDATE: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"9f6d7b2e-1f0c-4b63-8a51-5c4b8a1a0001","kind":{"group":"apps","version":"v1","kind":"Deployment"},"resource":{"group":"apps","version":"v1","resource":"deployments"},"requestKind":{"group":"apps","version":"v1","kind":"Deployment"},"requestResource":{"group":"apps","version":"v1","resource":"deployments"},"name":"web","namespace":"shop","operation":"UPDATE","userInfo":{"username":"jane","groups":["dev","system:authenticated"],"extra":{"scopes":["a"]}},"object":{"kind":"Deployment","spec":{"replicas":3}},"oldObject":{"kind":"Deployment","spec":{"replicas":2}},"dryRun":true,"options":{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-edit"}}}"#;

fn update() -> Value {
    serde_json::from_str(UPDATE).unwrap()
}

/// `UPDATE` with the request's field `name` set to `value`, in JSON's text.
fn with(name: &str, value: Value) -> String {
    let mut review = update();
    review["request"][name] = value;
    review.to_string()
}

fn without(name: &str) -> String {
    let mut review = update();
    review["request"].as_object_mut().unwrap().remove(name);
    review.to_string()
}

/// Writes a review with these fields of its request.
fn in_order(request: &[(String, Value)]) -> String {
    let fields: Vec<String> =
        request.iter().map(|(name, value)| format!("{}: {value}", Value::from(name.as_str()))).collect();
    let envelope = r#""kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1""#;
    format!("{{{envelope}, \"request\": {{{}}}}}", fields.join(", "))
}

#[test]
fn the_head_names_the_object_and_what_is_done() {
    let head = ReviewHead::parse(UPDATE.as_bytes()).unwrap();
    assert_eq!(head.uid, "9f6d7b2e-1f0c-4b63-8a51-5c4b8a1a0001");
    assert_eq!((head.kind.group.as_ref(), head.kind.kind.as_ref()), ("apps", "Deployment"));
    assert_eq!(head.resource.resource, "deployments");
    assert_eq!(head.subresource, None);
    assert_eq!(head.namespace.as_deref(), Some("shop"));
    assert_eq!(head.name.as_deref(), Some("web"));
    assert_eq!(head.operation, Some(Operation::Update));
}

#[test]
fn a_request_holds_its_objects_as_they_were_sent() {
    let request = AdmissionRequest::parse(UPDATE.as_bytes()).unwrap();
    assert_eq!(request.head, ReviewHead::parse(UPDATE.as_bytes()).unwrap());
    assert_eq!(request.actor.user, "jane");
    assert_eq!(request.actor.groups, ["dev", "system:authenticated"]);
    let object = |replicas: u8| Some(json!({"kind": "Deployment", "spec": {"replicas": replicas}}));
    assert_eq!(request.object.unwrap().value(), object(3));
    assert_eq!(request.old_object.unwrap().value(), object(2));
    assert!(request.dry_run);
    assert_eq!(request.field_manager.as_deref(), Some("kubectl-edit"));
}

#[test]
fn the_head_is_read_without_what_follows_it() {
    let (front, _) = UPDATE.split_once(r#""userInfo""#).unwrap();
    let broken = format!("{front}\"userInfo\": what follows is no JSON");
    assert_eq!(ReviewHead::parse(broken.as_bytes()).unwrap(), ReviewHead::parse(UPDATE.as_bytes()).unwrap());
    assert!(matches!(AdmissionRequest::parse(broken.as_bytes()), Err(ReviewError::Parse(_))));
}

#[test]
fn a_head_that_is_cut_off_is_truncated() {
    let enough = UPDATE.find(r#""userInfo""#).unwrap() + r#""userInfo""#.len();
    for end in 0..enough {
        let error = ReviewHead::parse(&UPDATE.as_bytes()[..end]).unwrap_err();
        assert!(matches!(error, ReviewError::Truncated), "{end}: {error}");
    }
    assert!(ReviewHead::parse(&UPDATE.as_bytes()[..enough]).is_ok());
}

#[test]
fn null_and_empty_stand_for_absent() {
    for absent in [Value::Null, json!("")] {
        let text = with("namespace", absent.clone());
        assert_eq!(AdmissionRequest::parse(text.as_bytes()).unwrap().head.namespace, None);
        let text = with("name", absent.clone());
        assert_eq!(AdmissionRequest::parse(text.as_bytes()).unwrap().head.name, None);
        let text = with("subResource", absent);
        assert_eq!(AdmissionRequest::parse(text.as_bytes()).unwrap().head.subresource, None);
    }
    for name in ["object", "oldObject", "dryRun", "options", "userInfo"] {
        let text = with(name, Value::Null);
        let request = AdmissionRequest::parse(text.as_bytes()).unwrap();
        assert_eq!(request.object.is_none(), name == "object");
        assert_eq!(request.old_object.is_none(), name == "oldObject");
        assert_eq!(request.dry_run, name != "dryRun");
        assert_eq!(request.field_manager.is_none(), name == "options");
        assert_eq!(request.actor == Actor::default(), name == "userInfo");
    }
}

#[test]
fn a_namespace_lies_in_no_namespace() {
    let mut review = update();
    review["request"]["resource"] = json!({"group": "", "version": "v1", "resource": "namespaces"});
    review["request"]["name"] = json!("shop");
    let text = review.to_string();
    let head = ReviewHead::parse(text.as_bytes()).unwrap();
    assert_eq!((head.namespace, head.name.as_deref()), (None, Some("shop")));
}

#[test]
fn an_operation_that_changes_no_object_is_none() {
    let text = with("operation", json!("CONNECT"));
    assert_eq!(ReviewHead::parse(text.as_bytes()).unwrap().operation, None);
}

#[test]
fn escapes_are_read_as_what_they_stand_for() {
    let text = UPDATE.replace(r#""name":"web""#, r#""na\u006de":"w\u0065b\n""#);
    assert_eq!(ReviewHead::parse(text.as_bytes()).unwrap().name.as_deref(), Some("web\n"));
    assert_eq!(AdmissionRequest::parse(text.as_bytes()).unwrap().head.name.as_deref(), Some("web\n"));
}

#[test]
fn malformed_review_is_rejected_with_a_clear_error() {
    let v1beta1 = UPDATE.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let twice = UPDATE.replace(r#""name":"web""#, r#""name":"web","name":"db""#);
    let two_requests = UPDATE.replace(r#","request":"#, r#","request":null,"request":{},"request":"#);
    let cases: &[(&str, &str)] = &[
        ("", "the body ends before the review does"),
        ("{}", "the body is no kind of no apiVersion"),
        ("[]", "the body is not an AdmissionReview in JSON: invalid length"),
        ("kind: AdmissionReview", "the body is not an AdmissionReview in JSON: expected value"),
        (&v1beta1, "only AdmissionReview of admission.k8s.io/v1 is supported"),
        (&twice, "duplicate field `name`"),
        (&two_requests, "duplicate field `request`"),
        (r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#, "the review lacks request"),
        (
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}"#,
            "the review lacks request",
        ),
        (
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":7}"#,
            "the body is not an AdmissionReview in JSON: invalid type: integer",
        ),
        (&without("uid"), "the review lacks request.uid"),
        (&with("uid", json!("")), "the review lacks request.uid"),
        (&with("uid", json!(7)), "the body is not an AdmissionReview in JSON: invalid type"),
        (&without("kind"), "the review lacks request.kind"),
        (&without("resource"), "the review lacks request.resource"),
        (&without("operation"), "the review lacks request.operation"),
        (&format!("{UPDATE} and more"), "the body is not an AdmissionReview in JSON: trailing characters"),
    ];
    for (body, expected) in cases {
        let error = AdmissionRequest::parse(body.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{body}\n gives: {error}\n and not: {expected}");
    }
    let no_text = [UPDATE.as_bytes(), b"\xff"].concat();
    assert!(matches!(AdmissionRequest::parse(&no_text), Err(ReviewError::Parse(_))));
}

#[test]
fn a_review_of_any_depth_is_read_without_recursion() {
    let deep = format!("{}{}", r#"{"a":["#.repeat(100_000), "]}".repeat(100_000));
    for field in ["object", "oldObject", "options", "userInfo", "kind", "requestKind", "future"] {
        let mut text = without(field);
        let end = text.rfind("}}").unwrap();
        text.insert_str(end, &format!(r#","{field}":{deep}"#));
        // A field of another shape is malformed; what counts is that it returns.
        match AdmissionRequest::parse(text.as_bytes()) {
            Ok(request) if field == "object" => {
                assert_eq!(request.object.unwrap().value(), None);
            }
            Ok(_) => assert_ne!(field, "kind"),
            Err(error) => assert!(matches!(error, ReviewError::Missing(_)), "{field}: {error}"),
        }
    }
}

/// How far the fields stand in the API server's order.
fn rank(field: &str) -> usize {
    const ORDER: [&str; 15] = [
        "uid",
        "kind",
        "resource",
        "subResource",
        "requestKind",
        "requestResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "dryRun",
        "options",
    ];
    ORDER.iter().position(|name| *name == field).unwrap_or(ORDER.len())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9-]{0,12}", "\\PC{0,8}", "[\\\\\"\u{0}-\u{1f}]{0,4}"]
}

prop_compose! {
    fn fields()(
        uid in text(),
        kind in text(),
        resource in text(),
        optional in proptest::collection::vec(proptest::option::of(text()), 3),
        operation in prop_oneof![Just("CREATE"), Just("UPDATE"), Just("DELETE"), Just("CONNECT")],
        depth in 0..4_usize,
        dry_run in proptest::option::of(any::<bool>()),
    )(
        order in {
            let mut fields = vec![
                ("uid".to_owned(), json!(uid)),
                ("kind".to_owned(), json!({"group": "g", "version": "v1", "kind": kind})),
                ("resource".to_owned(), json!({"group": "g", "version": "v1", "resource": resource})),
                ("requestKind".to_owned(), json!({"group": "other"})),
                ("requestResource".to_owned(), json!({"group": "other"})),
                ("operation".to_owned(), json!(operation)),
                ("userInfo".to_owned(), json!({"username": uid, "groups": [kind]})),
                ("object".to_owned(), (0..depth).fold(json!({"namespace": "decoy"}), |inner, _| json!([inner]))),
                ("oldObject".to_owned(), Value::Null),
            ];
            let names = ["subResource", "name", "namespace"];
            for (name, value) in names.iter().zip(optional) {
                fields.extend(value.map(|value| ((*name).to_owned(), json!(value))));
            }
            fields.extend(dry_run.map(|dry_run| ("dryRun".to_owned(), json!(dry_run))));
            fields.sort_by_key(|(name, _)| rank(name));
            Just(fields)
        }
    ) -> Vec<(String, Value)> {
        order
    }
}

proptest! {
    #[test]
    fn the_head_is_that_of_the_whole(request in fields()) {
        let text = in_order(&request);
        match (ReviewHead::parse(text.as_bytes()), AdmissionRequest::parse(text.as_bytes())) {
            (Ok(head), Ok(request)) => prop_assert_eq!(head, request.head),
            (Err(head), Err(request)) => prop_assert_eq!(head.to_string(), request.to_string()),
            (head, request) => prop_assert!(false, "{:?} and {:?}", head, request),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ReviewHead::parse(&bytes);
        let _ = AdmissionRequest::parse(&bytes);
    }

    #[test]
    fn a_changed_byte_is_read_or_refused(at in 0..UPDATE.len(), byte in any::<u8>()) {
        let mut bytes = UPDATE.as_bytes().to_vec();
        bytes[at] = byte;
        let _ = ReviewHead::parse(&bytes);
        let _ = AdmissionRequest::parse(&bytes);
    }
}

#[test]
fn user_is_read_with_uid_and_extra_scopes() {
    let actor = AdmissionRequest::parse(UPDATE.as_bytes()).unwrap().actor;
    assert_eq!((actor.uid.as_str(), actor.extra), ("", [("scopes".to_owned(), vec!["a".to_owned()])].into()));
    let more = UPDATE.replacen(r#""extra":{"#, r#""uid":"7","extra":{"none":null,"#, 1);
    let actor = AdmissionRequest::parse(more.as_bytes()).unwrap().actor;
    let extra = [("scopes".to_owned(), vec!["a".to_owned()]), ("none".to_owned(), Vec::new())];
    assert_eq!((actor.uid.as_str(), actor.extra), ("7", extra.into()));
}

#[test]
fn user_is_read_from_the_front_of_a_truncated_review() {
    let front = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",
        "kind":{"group":"","version":"v1","kind":"ConfigMap"},
        "resource":{"group":"","version":"v1","resource":"configmaps"},
        "requestKind":{"group":"","version":"v1","kind":"ConfigMap"},
        "requestResource":{"group":"","version":"v1","resource":"configmaps"},
        "name":"settings","namespace":"shop","operation":"UPDATE",
        "userInfo":{"username":"alice","groups":["people"]},"object":{"data":{"a":"bbbb"#;
    let alice = Actor { user: "alice".to_owned(), groups: vec!["people".to_owned()], ..Actor::default() };
    assert_eq!(author(front.as_bytes()), alice);
    // Cut off within, or not in the API server's order: it is not guessed.
    let (before, _) = front.split_once("people").unwrap();
    assert_eq!(author(before.as_bytes()), Actor::default());
    let (before, _) = front.split_once("\"userInfo").unwrap();
    assert_eq!(author(format!("{before}\"object\":{{").as_bytes()), Actor::default());
    assert_eq!(author(b"{"), Actor::default());
}

#[test]
fn an_editor_cannot_pass_another_object_off() {
    let decoys = [
        r#"{"oldObject":{"spec":{}},"object":{"a":1}}"#,
        r#"{"metadata":{"annotations":{"a":"},\"oldObject\":{\"kind\":\"X\"},\"dryRun\":true}}"}}}"#,
        r#"{"a\"oldObject":{},"oldObject\\":{"oldObject":{}},"\u006fldObject":1}"#,
        r#"{"a":"\\","b":"\\\"","c":"\\\\","oldObject":"]}","d":["\"",{"]":"["}]}"#,
        r#"{"a":"\u0022},\u0022oldObject\u0022:{","dryRun":[{"dryRun":true}]}"#,
        r#"{"oldObject":1,"oldObject":2,"":{"":""}}"#,
    ];
    let (front, rest) = UPDATE.split_once(r#""object":"#).unwrap();
    let (_, tail) = rest.split_once(r#","dryRun""#).unwrap();
    for (new, old) in decoys.iter().flat_map(|new| decoys.iter().map(move |old| (new, old))) {
        let body = format!(r#"{front}"object":{new},"oldObject":{old},"dryRun"{tail}"#);
        let request = AdmissionRequest::parse(body.as_bytes()).unwrap();
        assert_eq!(request.object.unwrap().value(), serde_json::from_str(new).ok());
        assert_eq!(request.old_object.unwrap().value(), serde_json::from_str(old).ok());
    }
}

mod answers {
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::*;

    fn read(response: Response<Body>) -> (u16, Value) {
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn warnings(given: &[String]) -> Vec<String> {
        let answer =
            given.iter().fold(AdmissionResponse::allow(), |answer, warning| answer.warn(warning.as_str()));
        let (_, review) = read(answer.respond("u"));
        serde_json::from_value(review["response"].get("warnings").cloned().unwrap_or(json!([]))).unwrap()
    }

    #[test]
    fn an_allowance_says_nothing_else() {
        let (status, review) = read(AdmissionResponse::allow().respond("u-1"));
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
        let answer = AdmissionResponse::allow().patch(patch);
        let (_, review) = read(answer.respond("u"));
        assert_eq!(review["response"]["patchType"], "JSONPatch");
        let sent = STANDARD.decode(review["response"]["patch"].as_str().unwrap()).unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!(sent, json!([{"op": "remove", "path": "/spec/paused"}]));
        assert!(!format!("{answer:?}").contains("paused"));
        // An empty patch is not sent: the API server would refuse one without operations.
        let (_, review) = read(AdmissionResponse::allow().patch(Patch::default()).respond("u"));
        assert_eq!(review["response"], json!({"uid": "u", "allowed": true}));
    }

    #[test]
    fn a_denial_is_403_forbidden_with_its_message() {
        let answer = AdmissionResponse::deny("line 1\nline 2")
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
        let keys =
            [AuditKey::Decision, AuditKey::Reason, AuditKey::Release, AuditKey::Revision, AuditKey::Fields];
        for key in keys {
            let name = serde_json::to_value(key).unwrap();
            let name = name.as_str().unwrap();
            assert!(name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
            assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()));
            assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn malformed_review_returns_http_400_and_failure_returns_500() {
        let error = AdmissionRequest::parse(b"{").unwrap_err();
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
}
