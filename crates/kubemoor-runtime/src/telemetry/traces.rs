//! Spans for an OpenTelemetry collector: one for each review, one for each repair.
//!
//! A span holds names, numbers and the guard's own words, never a value of an object and no token. No caller waits for
//! the collector: spans wait in a bounded queue, and are dropped when the collector does not accept them. Without a
//! collector no spans are made.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Bytes;
use jiff::Timestamp;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::runtime::Handle;

use crate::config::CollectorUrl;
use crate::telemetry::{FailureLog, causes_of};
use kubemoor_declare::model::{ObjectId, ReleaseId};

const NAME: &str = "kubemoor";

static TRACES: OnceLock<Traces> = OnceLock::new();

#[derive(Debug, Error)]
pub enum TracesError {
    #[error("traces cannot be sent to {collector}: cannot create an HTTP client: {source}")]
    Client { collector: CollectorUrl, source: reqwest::Error },
    #[error("traces cannot be sent to {collector}; correct the OTEL_ variables of the environment: {source}")]
    Exporter { collector: CollectorUrl, source: ExporterBuildError },
}

struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Sends spans to `collector` from now on. Call it on the runtime that sends them.
pub fn init(collector: &CollectorUrl) -> Result<(), TracesError> {
    let sender =
        SpanSender::new().map_err(|source| TracesError::Client { collector: collector.clone(), source })?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(sender)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(collector.traces())
        .build()
        .map_err(|source| TracesError::Exporter { collector: collector.clone(), source })?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    // The environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) takes precedence.
    let given = Resource::builder().build();
    let resource = Resource::builder_empty().with_service_name(NAME).with_attribute(version);
    let named = given.iter().filter(|(key, value)| {
        key.as_str() != "service.name" || !value.as_str().starts_with("unknown_service")
    });
    let named = named.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = resource.with_attributes(named.collect::<Vec<_>>()).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let tracer = provider.tracer(NAME);
    // Only the first call has an effect.
    let _ = TRACES.set(Traces { provider, tracer });
    Ok(())
}

/// Sends the remaining spans. Takes a few seconds at most.
pub async fn finish() {
    let Some(traces) = TRACES.get() else { return };
    // It fails if the collector does not accept spans, which was logged before.
    let _ = tokio::task::spawn_blocking(|| drop(traces.provider.shutdown())).await;
}

/// Kinds whose names OpenTelemetry has conventions for.
const WORKLOADS: [(&str, &str); 7] = [
    ("CronJob", "k8s.cronjob.name"),
    ("DaemonSet", "k8s.daemonset.name"),
    ("Deployment", "k8s.deployment.name"),
    ("Job", "k8s.job.name"),
    ("Pod", "k8s.pod.name"),
    ("ReplicaSet", "k8s.replicaset.name"),
    ("StatefulSet", "k8s.statefulset.name"),
];

/// A request of the API server, from its arrival.
pub struct RequestSpan {
    began: SystemTime,
    /// The API server's own span, if it traces too.
    parent: Context,
    attributes: Vec<KeyValue>,
}

impl RequestSpan {
    /// The arrival of a request with these headers; `None` without a collector.
    pub fn now(headers: &HeaderMap) -> Option<Self> {
        TRACES.get()?;
        let parent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers));
        Some(Self { began: SystemTime::now(), parent, attributes: Vec::new() })
    }

    pub fn note(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push(KeyValue::new(key, value));
    }

    pub fn note_object(&mut self, object: &ObjectId) {
        self.attributes.extend(names(object));
    }

    pub fn note_release(&mut self, release: &ReleaseId, revision: u64) {
        self.attributes.extend(named(release, revision));
    }

    /// Sends the span of a request that was answered with this status at this route.
    pub fn answered(mut self, route: &'static str, code: u16) {
        let Some(Traces { tracer, .. }) = TRACES.get() else { return };
        self.note("http.request.method", "POST");
        self.note("http.route", route);
        self.note("http.response.status_code", i64::from(code));
        self.note("url.scheme", "https");
        let builder = tracer.span_builder(format!("POST {route}")).with_kind(SpanKind::Server);
        let builder = builder.with_start_time(self.began).with_attributes(self.attributes);
        let mut span = builder.start_with_context(tracer, &self.parent);
        if code >= 500 {
            span.set_status(Status::error("the request could not be judged"));
        }
        span.end();
    }
}

/// Sends the span of a finished repair, from when the guard saw the drift (`since`). `drift` and `outcome` are fixed
/// words.
pub fn repair_ended(
    object: &ObjectId,
    (release, revision): (&ReleaseId, u64),
    drift: &'static str,
    since: Timestamp,
    outcome: &'static str,
) {
    let Some(Traces { tracer, .. }) = TRACES.get() else { return };
    let mut attributes = names(object);
    attributes.extend(named(release, revision));
    attributes.push(KeyValue::new("kubemoor.drift", drift));
    attributes.push(KeyValue::new("kubemoor.outcome", outcome));
    let builder = tracer.span_builder("repair").with_kind(SpanKind::Internal);
    let builder = builder.with_start_time(since).with_attributes(attributes);
    let mut span = builder.start_with_context(tracer, &Context::new());
    if outcome == "failed" {
        span.set_status(Status::error("the object could not be repaired"));
    }
    span.end();
}

fn named(release: &ReleaseId, revision: u64) -> [KeyValue; 3] {
    [
        KeyValue::new("kubemoor.release.name", release.name.to_string()),
        KeyValue::new("kubemoor.release.namespace", release.namespace.to_string()),
        KeyValue::new("kubemoor.release.revision", i64::try_from(revision).unwrap_or(i64::MAX)),
    ]
}

/// The object's names, with OpenTelemetry's conventions where they exist.
fn names(object: &ObjectId) -> Vec<KeyValue> {
    let ObjectId { group, kind, namespace, name } = object;
    let mut names = vec![
        KeyValue::new("kubemoor.object.group", group.to_string()),
        KeyValue::new("kubemoor.object.kind", kind.to_string()),
        KeyValue::new("kubemoor.object.name", name.to_string()),
    ];
    names
        .extend(namespace.iter().map(|namespace| KeyValue::new("k8s.namespace.name", namespace.to_string())));
    let conventional = WORKLOADS.iter().find(|(workload, _)| workload == kind);
    names.extend(conventional.map(|(_, key)| KeyValue::new(*key, name.to_string())));
    names
}

const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum size of the collector's answer.
const CAP: usize = 64 << 10;

#[derive(Debug)]
struct SpanSender {
    client: reqwest::Client,
    runtime: Handle,
    failures: Mutex<FailureLog>,
}

impl SpanSender {
    /// Sends on the current runtime.
    fn new() -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("kubemoor/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, runtime: Handle::current(), failures: Mutex::default() })
    }

    /// Logs only the first of consecutive failures.
    fn note(&self, failure: Option<String>) {
        let mut failures = self.failures.lock();
        match failure {
            None => failures.note_success(),
            Some(why) if failures.note_failure() => {
                tracing::warn!("failed to send traces to the collector; dropping them: {why}");
            }
            Some(_) => {}
        }
    }
}

#[async_trait]
impl HttpClient for SpanSender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = self.runtime.spawn(send(self.client.clone(), request));
        let outcome = sending.await.unwrap_or_else(|error| Err(error.into()));
        self.note(match &outcome {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answers {}", answer.status())),
            Err(error) => Some(causes_of(error.as_ref())),
        });
        outcome
    }
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let answer = client.execute(request.try_into()?).await?;
    let (head, body) = Response::<reqwest::Body>::from(answer).into_parts();
    let body = Limited::new(body, CAP).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
