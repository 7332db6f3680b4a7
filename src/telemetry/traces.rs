//! Spans for an OpenTelemetry collector: one for each review, one for each repair.
//!
//! Entry points: [`init`] and [`finish`], once per process; [`Arrival`] and [`Repair`]. Invariant: a span
//! holds names, numbers and the guard's own words, never a value of an object and no token. No caller waits
//! for the collector: spans wait in a bounded queue, and are dropped when the collector does not accept them.
//! Without a collector no spans are made. Must not decide anything.

mod sender;

use std::sync::OnceLock;
use std::time::SystemTime;

use http::HeaderMap;
use jiff::Timestamp;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use thiserror::Error;

use self::sender::Sender;
use crate::config::CollectorUrl;
use crate::model::{ObjectId, ReleaseId};

/// The name of the tracer.
const NAME: &str = "kubemoor";

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

static TRACES: OnceLock<Traces> = OnceLock::new();

/// Why no spans can be sent.
#[derive(Debug, Error)]
pub enum TracesError {
    /// There is no client for HTTP.
    #[error("traces cannot be sent to {collector}: there is no HTTP client: {source}")]
    Client {
        /// The collector.
        collector: CollectorUrl,
        /// What is wrong.
        source: reqwest::Error,
    },
    /// The exporter does not accept these settings, some of which come from the environment (`OTEL_`).
    #[error("traces cannot be sent to {collector}; correct the OTEL_ variables of the environment: {source}")]
    Exporter {
        /// The collector.
        collector: CollectorUrl,
        /// What is wrong.
        source: ExporterBuildError,
    },
}

/// A request of the API server, from its arrival on.
pub struct Arrival {
    began: SystemTime,
    /// The API server's own span, if it traces too.
    parent: Context,
    attributes: Vec<KeyValue>,
}

/// A repair that is over.
pub struct Repair<'a> {
    /// Of what.
    pub object: &'a ObjectId,
    /// The release that declares it.
    pub release: &'a ReleaseId,
    /// The revision of that.
    pub revision: u64,
    /// The kind of drift, in a word of the guard's own.
    pub drift: &'static str,
    /// When the guard saw it.
    pub since: Timestamp,
    /// The outcome, in a word of the guard's own.
    pub outcome: &'static str,
    /// Whether it failed.
    pub is_failure: bool,
}

struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Sends spans to `collector` from now on. To be called on the runtime that sends them.
///
/// # Errors
/// See [`TracesError`].
pub fn init(collector: &CollectorUrl) -> Result<(), TracesError> {
    let sender =
        Sender::new().map_err(|source| TracesError::Client { collector: collector.clone(), source })?;
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
    // The first one stays.
    let _ = TRACES.set(Traces { provider, tracer });
    Ok(())
}

/// Sends the remaining spans. Takes a few seconds at most.
pub async fn finish() {
    let Some(traces) = TRACES.get() else { return };
    // Fails where the collector takes nothing, which is logged by then.
    let _ = tokio::task::spawn_blocking(|| drop(traces.provider.shutdown())).await;
}

impl Arrival {
    /// The arrival of a request with these headers; `None` without a collector.
    pub fn now(headers: &HeaderMap) -> Option<Self> {
        TRACES.get()?;
        let parent =
            TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers));
        Some(Self { began: SystemTime::now(), parent, attributes: Vec::new() })
    }

    /// Notes a name or a number.
    pub fn note(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push(KeyValue::new(key, value));
    }

    /// Notes which object the request is about.
    pub fn note_object(&mut self, object: &ObjectId) {
        self.attributes.extend(names(object));
    }

    /// Notes which release decides.
    pub fn note_release(&mut self, release: &ReleaseId, revision: u64) {
        self.attributes.extend(named(release, revision));
    }

    /// The request is answered with this status at this route.
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

impl Repair<'_> {
    /// The repair ended just now.
    pub fn ended(self) {
        let Some(Traces { tracer, .. }) = TRACES.get() else { return };
        let mut attributes = names(self.object);
        attributes.extend(named(self.release, self.revision));
        attributes.push(KeyValue::new("kubemoor.drift", self.drift));
        attributes.push(KeyValue::new("kubemoor.outcome", self.outcome));
        let builder = tracer.span_builder("repair").with_kind(SpanKind::Internal);
        let builder = builder.with_start_time(self.since).with_attributes(attributes);
        let mut span = builder.start_with_context(tracer, &Context::new());
        if self.is_failure {
            span.set_status(Status::error("the object could not be repaired"));
        }
        span.end();
    }
}

/// The object's names, by OpenTelemetry's conventions where it has some.
fn names(object: &ObjectId) -> Vec<KeyValue> {
    let ObjectId { group, kind, namespace, name } = object;
    let mut names = vec![
        KeyValue::new("kubemoor.object.group", group.clone()),
        KeyValue::new("kubemoor.object.kind", kind.clone()),
        KeyValue::new("kubemoor.object.name", name.clone()),
    ];
    names.extend(namespace.iter().map(|namespace| KeyValue::new("k8s.namespace.name", namespace.clone())));
    let conventional = WORKLOADS.iter().find(|(workload, _)| workload == kind);
    names.extend(conventional.map(|(_, key)| KeyValue::new(*key, name.clone())));
    names
}

fn named(release: &ReleaseId, revision: u64) -> [KeyValue; 3] {
    [
        KeyValue::new("kubemoor.release.name", release.name.clone()),
        KeyValue::new("kubemoor.release.namespace", release.namespace.clone()),
        KeyValue::new("kubemoor.release.revision", i64::try_from(revision).unwrap_or(i64::MAX)),
    ]
}
