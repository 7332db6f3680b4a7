//! Spans for an OpenTelemetry collector: one for each review, one for each repair.
//!
//! Entry points: [`init`] and [`finish`], once per process; [`Arrival`] and [`Repair`]. Invariant: a span
//! holds names, numbers and the guard's own words, never a value of an object and no token. No caller waits
//! for the collector: spans wait in a bounded queue, and are dropped when the collector does not accept them.
//! Without a collector no spans are made. Must not decide anything.

mod sender;
mod spans;

use std::sync::OnceLock;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use thiserror::Error;

use self::sender::Sender;
pub use self::spans::{Arrival, Repair};
use crate::config::CollectorUrl;

/// The name of the tracer.
const NAME: &str = "kubemoor";

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
