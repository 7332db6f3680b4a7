//! The spans of a review and of a repair.
//!
//! Entry points: [`Arrival`], [`Repair`]. Invariant: a span holds names, numbers and the guard's own words, never a value of
//! an object and no token. Without a collector no spans are made.

use std::time::SystemTime;

use http::HeaderMap;
use jiff::Timestamp;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::{TRACES, Traces};
use kubemoor_declare::model::{ObjectId, ReleaseId};

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

pub(super) fn named(release: &ReleaseId, revision: u64) -> [KeyValue; 3] {
    [
        KeyValue::new("kubemoor.release.name", release.name.to_string()),
        KeyValue::new("kubemoor.release.namespace", release.namespace.to_string()),
        KeyValue::new("kubemoor.release.revision", i64::try_from(revision).unwrap_or(i64::MAX)),
    ]
}

/// The object's names, by OpenTelemetry's conventions where it has some.
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
