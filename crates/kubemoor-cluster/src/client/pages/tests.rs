//! What is asked for page by page, and what comes of it.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// A client of a server that gives these answers, one after the other; what it
/// was asked.
fn server(answers: &[(u16, Value)]) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let answers = Mutex::new(answers.iter().cloned().collect::<VecDeque<_>>());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().push(request.uri().to_string());
        let (status, body) = answers.lock().pop_front().unwrap();
        std::future::ready(Response::builder().status(status).body(Body::from(body.to_string().into_bytes())))
    });
    (kube::Client::new(service, "default"), asked)
}

fn policies() -> ApiResource {
    ApiResource::new("kubemoor.dev", "v1alpha1", "DriftPolicy", "driftpolicies")
}

/// What all pages of this server hold, or why there is no list, of which the first may have two objects.
async fn check(answers: &[(u16, Value)], expected: Result<&[i64], u16>, asked: &[&str]) {
    let (client, uris) = server(answers);
    let listed = Pages::<i64>::objects(&client, &policies(), None).unwrap().starting_with(2).all().await;
    let listed = listed.map_err(|error| match error {
        ClusterError::Refused { code, .. } => code,
        other => panic!("{other}"),
    });
    assert_eq!(listed, expected.map(<[i64]>::to_vec), "{answers:?}");
    let path = "/apis/kubemoor.dev/v1alpha1/driftpolicies?&limit=";
    assert_eq!(*uris.lock(), asked.iter().map(|end| format!("{path}{end}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn list_is_read_to_its_end() {
    let page = |next: Value, items: Value| (200, json!({"metadata": {"continue": next}, "items": items}));
    check(&[page(Value::Null, json!([1, 2]))], Ok(&[1, 2]), &["2"]).await;
    check(&[page(json!(""), Value::Null)], Ok(&[]), &["2"]).await;
    check(&[(200, json!({}))], Ok(&[]), &["2"]).await;
    check(
        &[page(json!("a"), json!([1, 2])), page(json!("b"), json!([])), page(json!(""), json!([3]))],
        Ok(&[1, 2, 3]),
        &["2", "4&continue=a", "8&continue=b"],
    )
    .await;
}

#[tokio::test]
async fn page_that_is_too_large_is_asked_for_with_fewer_objects() {
    let page = |next: &str, items: Value| (200, json!({"metadata": {"continue": next}, "items": items}));
    let long = json!("x".repeat(5 << 20));
    check(
        &[page("", long.clone()), page("a", json!([1])), page("", long), page("", json!([2]))],
        Ok(&[1, 2]),
        &["2", "1", "2&continue=a", "1&continue=a"],
    )
    .await;
}

#[tokio::test]
async fn page_that_cannot_be_had_is_no_end() {
    let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
    let first = (200, json!({"metadata": {"continue": "a"}, "items": [1]}));
    check(&[first, (410, gone)], Err(410), &["2", "4&continue=a"]).await;
}

#[tokio::test]
async fn last_page_is_known_as_the_last() {
    let (client, _) = server(&[(200, json!({"metadata": {"continue": "a"}})), (200, json!({}))]);
    let mut pages = Pages::<Value>::objects(&client, &policies(), Some("shop")).unwrap();
    assert!(pages.next().await.unwrap().is_some() && !pages.is_over());
    assert!(pages.next().await.unwrap().is_some() && pages.is_over());
    assert!(pages.next().await.unwrap().is_none());
}

#[test]
fn pages_grow_while_they_are_small_and_shrink_when_they_are_large() {
    for (begins, pages, expected) in [
        (50, vec![1_000, 1_000, 1_000, 1_000, 1_000], vec![100, 200, 400, 500, 500]),
        (50, vec![ENOUGH / 2, ENOUGH / 2 + 1, ENOUGH, ENOUGH + 1], vec![100, 100, 100, 50]),
        (3, vec![ENOUGH * 2, ENOUGH * 2, ENOUGH * 2], vec![1, 1, 1]),
    ] {
        let mut size = PageSize(begins);
        let mut adapted = |bytes| {
            size.adapt(bytes);
            size.0
        };
        let adapted: Vec<u32> = pages.iter().map(|bytes| adapted(*bytes)).collect();
        assert_eq!(adapted, expected, "{begins}, then {pages:?} bytes");
    }
}

#[test]
fn page_of_one_object_is_not_halved() {
    let mut size = PageSize(2);
    assert!(size.halve());
    assert_eq!((size.0, size.cap()), (1, BODY_CAP));
    assert!(!size.halve());
    assert_eq!(size.0, 1);
}
