//! The program's metrics about itself, one struct per component.
//!
//! Entry points: [`registry`], and `register` of each struct. Invariant: the values of every label are a
//! closed set, written out here, so that neither a user nor a rename of code can add a series. Must not
//! decide anything.

/// Declares a label's values and how each is written.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)+
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
                fmt::Write::write_str(encoder, match self { $(Self::$value => $text,)+ })
            }
        }
    };
}

mod collector;
pub mod declarations;
mod guard;
mod ledger;
pub mod releases;
pub mod serving;
mod verdicts;

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use self::collector::collect;
pub use self::guard::{DriftFound, GuardMetrics, Repair};
pub use self::ledger::{LedgerMetrics, Written};
pub use self::verdicts::UNREACHED;

label! {
    /// Which webhook a review was sent to.
    Webhook {
        /// Edits of the declared kinds.
        Edits = "edits",
        /// Edits through the scale subresource.
        Scale = "scale",
        /// Deletions of namespaces and definitions that declared objects need.
        Deletes = "deletes",
        /// Edits of Helm's records.
        Records = "records",
        /// Edits of the declared kinds, before they are judged.
        Reverts = "reverts",
        /// Orders of repairs.
        Orders = "orders",
    }
}

label! {
    /// The outcome of a request.
    Decision {
        /// It passed.
        Allow = "allow",
        /// It passed and was recorded.
        Record = "record",
        /// It passed with a warning.
        Warn = "warn",
        /// It passed without what drifts.
        Revert = "revert",
        /// It was refused.
        Deny = "deny",
        /// No verdict could be reached.
        Error = "error",
    }
}

label! {
    /// Which port a connection is to.
    Port {
        /// The webhook's.
        Webhook = "webhook",
        /// Health, metrics and the ledger's.
        Admin = "admin",
    }
}

label! {
    /// How a connection ended.
    ConnectionEnd {
        /// The client was done.
        Closed = "closed",
        /// It was never served, because too many were open.
        Refused = "refused",
        /// It was idle, and another one needed its place.
        Displaced = "displaced",
        /// Its TLS handshake failed or took too long.
        Handshake = "handshake",
        /// It broke, or sent what is not HTTP.
        Failed = "failed",
        /// It sent no request, or only a part of its head, for too long.
        Slow = "slow",
        /// The server was stopped.
        Stopped = "stopped",
        /// The server was stopped and its request did not end in time.
        CutOff = "cut_off",
    }
}

label! {
    /// Why a record does not count.
    RecordFault {
        /// It is not base64.
        Encoding = "encoding",
        /// It is not gzip, or its gzip is broken.
        Compression = "compression",
        /// It is larger than the cap when decompressed.
        TooLarge = "too_large",
        /// It is not a release in JSON.
        Syntax = "syntax",
        /// Its name, labels and content disagree.
        Disagrees = "disagrees",
        /// It could not be read from the API server.
        Unread = "unread",
    }
}

label! {
    /// What a fresh look at a release's records showed.
    Look {
        /// The index was up to date.
        Unchanged = "unchanged",
        /// The index lagged.
        Changed = "changed",
        /// The API server gave an error.
        Failed = "failed",
        /// The API server gave no answer in time.
        TimedOut = "timed_out",
    }
}

mod notices;

pub use self::notices::{EventFate, NoticeMetrics, NotificationFate, StatusWrite};

/// A port's connections.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    port: Port,
    open: Family<PortLabels, Gauge>,
    ended: Family<EndLabels, Counter>,
}

/// An open connection, counted until this is dropped.
#[derive(Debug)]
pub struct OpenConnection(Gauge);

/// The emergency switch.
#[derive(Clone, Debug, Default)]
pub struct EmergencyMetrics {
    open: Gauge,
}

/// The reviews and their verdicts.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    verdicts: Family<VerdictLabels, Counter>,
    duration: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    malformed: Counter,
    callers_refused: Counter,
}

/// Helm's records and what is known from them.
#[derive(Clone, Debug, Default)]
pub struct RecordMetrics {
    undecodable: Family<FaultLabels, Counter>,
    looks: Family<LookLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PortLabels {
    port: Port,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    port: Port,
    end: ConnectionEnd,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    webhook: Webhook,
    decision: Decision,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    webhook: Webhook,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FaultLabels {
    reason: RecordFault,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookLabels {
    outcome: Look,
}

/// An empty registry; every metric in it begins with `kubemoor_`.
pub fn registry() -> Registry {
    Registry::with_prefix("kubemoor")
}

impl ConnectionMetrics {
    /// Registers the component's metrics, and gives those of the webhook's port.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self { port: Port::Webhook, open: Family::default(), ended: Family::default() };
        // An alert sees the first of them if it has seen none before.
        for port in [Port::Webhook, Port::Admin] {
            for end in [ConnectionEnd::Refused, ConnectionEnd::Displaced, ConnectionEnd::Handshake] {
                drop(metrics.ended.get_or_create(&EndLabels { port, end }));
            }
        }
        registry.register("connections_open", "Connections that are open now", metrics.open.clone());
        registry.register("connections", "Connections by how they ended", metrics.ended.clone());
        metrics
    }

    /// The same metrics for the connections of `port`.
    pub fn of(&self, port: Port) -> Self {
        Self { port, ..self.clone() }
    }

    /// Counts a connection as open until the result is dropped.
    pub fn opened(&self) -> OpenConnection {
        let open = self.open.get_or_create(&PortLabels { port: self.port }).clone();
        open.inc();
        OpenConnection(open)
    }

    /// Counts the end of a connection.
    pub fn ended(&self, end: ConnectionEnd) {
        self.ended.get_or_create(&EndLabels { port: self.port, end }).inc();
    }
}

impl EmergencyMetrics {
    /// Registers the component's metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("emergency", "Whether the emergency is open", metrics.open.clone());
        metrics
    }

    /// Takes note whether everything is open.
    pub fn open(&self, is_open: bool) {
        self.open.set(i64::from(is_open));
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl AdmissionMetrics {
    /// Registers the component's metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            verdicts: Family::default(),
            duration: Family::new_with_constructor(request_seconds),
            malformed: Counter::default(),
            callers_refused: Counter::default(),
        };
        // An alert sees the first one if it has seen none before.
        verdicts::expected().for_each(|labels| drop(metrics.verdicts.get_or_create(&labels)));
        registry.register("verdicts", "Reviews by decision and reason", metrics.verdicts.clone());
        registry.register_with_unit(
            "admission_duration",
            "Time from a review's arrival to its answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "malformed_reviews",
            "Requests that held no AdmissionReview v1",
            metrics.malformed.clone(),
        );
        registry.register(
            "callers_refused",
            "Requests to the webhook's port by others than the API server",
            metrics.callers_refused.clone(),
        );
        metrics
    }

    /// Counts a review, answered `took` after its arrival. `reason` is a name
    /// from the verdict's closed set.
    pub fn answered(&self, webhook: Webhook, decision: Decision, reason: &'static str, took: Duration) {
        self.verdicts.get_or_create(&VerdictLabels { webhook, decision, reason }).inc();
        self.duration.get_or_create(&WebhookLabels { webhook }).observe(took.as_secs_f64());
    }

    /// Counts a request that did not come from the API server.
    pub fn caller_refused(&self) {
        self.callers_refused.inc();
    }

    /// Counts a request that held no review.
    pub fn malformed(&self) {
        self.malformed.inc();
    }
}

impl RecordMetrics {
    /// Registers the component's metrics. Every scrape calls `releases` for the number of releases in each
    /// state; the states are names from a closed set, each named once.
    pub fn register<F, I>(registry: &mut Registry, releases: F) -> Self
    where
        F: Fn() -> I + Send + Sync + 'static,
        I: IntoIterator<Item = (&'static str, u64)>,
    {
        let metrics = Self::default();
        registry.register(
            "records_undecodable",
            "Release records that do not count, by what is wrong with them",
            metrics.undecodable.clone(),
        );
        registry.register(
            "fresh_looks",
            "Readings of a release's records before a refusal, by their outcome",
            metrics.looks.clone(),
        );
        collect(registry, move |mut encoder| {
            let kind = ConstGauge::new(0_u64).metric_type();
            let mut metric = encoder.encode_descriptor("releases", "Releases by their state", None, kind)?;
            for (state, count) in releases() {
                ConstGauge::new(count).encode(metric.encode_family(&[("state", state)])?)?;
            }
            Ok(())
        });
        metrics
    }

    /// Counts a record that does not count.
    pub fn undecodable(&self, reason: RecordFault) {
        self.undecodable.get_or_create(&FaultLabels { reason }).inc();
    }

    /// Counts a fresh look.
    pub fn looked(&self, outcome: Look) {
        self.looks.get_or_create(&LookLabels { outcome }).inc();
    }
}

/// From a verdict out of memory to the longest timeout of a webhook.
fn request_seconds() -> Histogram {
    Histogram::new([
        0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
        3.0, 10.0, 30.0,
    ])
}

#[cfg(test)]
mod tests;
