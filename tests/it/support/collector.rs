//! An OpenTelemetry collector that takes traces over HTTP and keeps them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;

use super::wait::{SOON, eventually};

/// What it took. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    url: String,
    taken: Arc<Mutex<Vec<(Bytes, ExportTraceServiceRequest)>>>,
}

impl Collector {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { url, ..Self::default() };
        let router =
            Router::new().route("/v1/traces", axum::routing::post(take)).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    /// The flag that names it.
    pub(crate) fn flag(&self) -> String {
        format!("--otlp-endpoint={}", self.url)
    }

    /// Waits for a span of this name with this attribute.
    pub(crate) async fn wait_for(&self, name: &str, key: &str, value: &str) -> Span {
        eventually(&format!("a span {name} has {key}={value}"), SOON, || async {
            let spans = self.spans();
            let meant = |span: &&Span| span.name == name && attribute(span, key).as_deref() == Some(value);
            spans.iter().find(meant).cloned().ok_or_else(|| format!("{spans:#?}"))
        })
        .await
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let taken = self.taken.lock().unwrap();
        let resources = taken.iter().flat_map(|(_, request)| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The names under which it was told that spans were made.
    pub(crate) fn services(&self) -> Vec<String> {
        let taken = self.taken.lock().unwrap();
        let resources = taken.iter().flat_map(|(_, request)| &request.resource_spans);
        let attributes = resources.filter_map(|it| it.resource.as_ref()).flat_map(|it| &it.attributes);
        let named = attributes.filter(|it| it.key == "service.name");
        named.map(|it| text(it.value.as_ref().and_then(|it| it.value.as_ref()))).collect()
    }

    /// Whether anything that it took holds these words.
    pub(crate) fn has_heard(&self, words: &str) -> bool {
        let taken = self.taken.lock().unwrap();
        taken.iter().any(|(bytes, _)| bytes.windows(words.len()).any(|window| window == words.as_bytes()))
    }
}

/// An attribute of a span as text.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == key)?;
    Some(text(found.value.as_ref().and_then(|it| it.value.as_ref())))
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?} is neither text nor a number"),
    }
}

async fn take(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> StatusCode {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
    collector.taken.lock().unwrap().push((body, request));
    StatusCode::OK
}
