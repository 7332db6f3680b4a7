//! Traces, as an OpenTelemetry collector gets them.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::json;

use crate::support::{Collector, Guard, Scene, attribute, charts, data_review, reply, wait_until_recreated};

/// What no span may hold.
const VALUE: &str = "hunter2";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Posts an edit of the declared ConfigMap to `image`, as an API server does that traces as well.
async fn edit(guard: &Guard, image: &str) -> bool {
    let [old, new] = ["a", image].map(|image| json!({"image": image}));
    let review = data_review(("shop", "web"), "settings", &old, &new);
    let post = guard.https().post(guard.review_url()).header("content-type", "application/json");
    let post = post.header("traceparent", format!("00-{TRACE}-{PARENT}-01"));
    reply(post.body(review)).await.passes()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn review_span_joins_api_servers_trace_and_contains_no_values() {
    let collector = Collector::open().await;
    let mut guard = Guard::start_embedded(&["--edits=Deny", &collector.flag()]).await;
    assert!(!edit(&guard, VALUE).await);
    assert!(edit(&guard, "a").await);
    let token = guard.token();
    // What waits is sent before the end.
    assert!(guard.terminate().success());
    let span = collector.wait_for("POST /validate/{token}", "kubemoor.decision", "Deny").await;
    assert_eq!(
        (hexadecimal(&span.trace_id), hexadecimal(&span.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(span.kind(), SpanKind::Server);
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/validate/{token}"),
        ("http.response.status_code", "200"),
        ("k8s.namespace.name", "shop"),
        ("kubemoor.object.kind", "ConfigMap"),
        ("kubemoor.object.name", "settings"),
        ("kubemoor.operation", "UPDATE"),
        ("kubemoor.reason", "drift"),
        ("kubemoor.release.name", "web"),
        ("kubemoor.release.namespace", "shop"),
        ("kubemoor.release.revision", "1"),
        ("kubemoor.review.uid", "posted"),
    ] {
        assert_eq!(attribute(&span, key).as_deref(), Some(value), "{key}: {span:#?}");
    }
    collector.wait_for("POST /validate/{token}", "kubemoor.decision", "Allow").await;
    assert_eq!(collector.spans().len(), 2, "{:#?}", collector.spans());
    assert!(collector.services().iter().all(|name| name == "kubemoor"), "{:?}", collector.services());
    assert!(!collector.has_heard(VALUE) && !collector.has_heard(&token) && collector.has_heard("settings"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn each_repair_is_a_span() {
    let collector = Collector::open().await;
    let scene = Scene::own().install("traced", charts::DEPLOYMENT).await;
    let _guard = scene.start_guard(&["--drift=Repair", &collector.flag()]).await;
    scene.wait_for_confirmed(1).await;
    let web = scene.deployment("web");
    let old = scene.get(&web).await["metadata"]["uid"].take();
    scene.control_plane.delete_unhindered(&web).await;
    wait_until_recreated(&scene.alice, &web, &old).await;
    let span = collector.wait_for("repair", "k8s.deployment.name", "web").await;
    for (key, value) in [
        ("k8s.namespace.name", scene.namespace.as_str()),
        ("kubemoor.drift", "missing"),
        ("kubemoor.outcome", "repaired"),
        ("kubemoor.release.name", "shop"),
        ("kubemoor.release.revision", "1"),
    ] {
        assert_eq!(attribute(&span, key).as_deref(), Some(value), "{key}: {span:#?}");
    }
    assert_eq!(span.kind(), SpanKind::Internal);
    assert!(span.status.is_none_or(|status| status.code() == StatusCode::Unset));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn missing_collector_is_reported_once_and_delays_nobody() {
    let mut guard = Guard::start_embedded(&["--edits=Deny", "--otlp-endpoint=http://127.0.0.1:1"]).await;
    assert!(!edit(&guard, "b").await);
    guard.wait_for_log("failed to send traces to the collector").await;
    assert!(!edit(&guard, "c").await);
    assert!(guard.terminate().success());
    assert_eq!(guard.log().matches("failed to send traces").count(), 1, "{}", guard.log());
}
