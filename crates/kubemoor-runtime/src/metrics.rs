//! The program's metrics, one struct per component. The values of every label are a closed set that is spelled out
//! here, so that neither a user nor a rename in the code can add a series. Releases are named only if the settings ask
//! for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use kubemoor_declare::model::ReleaseId;
use kubemoor_verdict::edit::VerdictReason;

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

label! {
    Webhook {
        Edits = "edits", Scale = "scale", Deletes = "deletes", Records = "records", Reverts = "reverts",
        Orders = "orders", Autoscalers = "autoscalers",
    }
}

label! {
    Decision {
        Allow = "allow", Record = "record", Warn = "warn", Revert = "revert", Deny = "deny", Error = "error",
    }
}

label! {
    Port {
        Webhook = "webhook", Admin = "admin",
    }
}

label! {
    ConnectionEnd {
        Closed = "closed", Refused = "refused", Displaced = "displaced", Handshake = "handshake",
        Failed = "failed", Slow = "slow", Stopped = "stopped", CutOff = "cut_off",
    }
}

label! {
    /// Why a record is not used.
    RecordFault {
        Encoding = "encoding", Compression = "compression", TooLarge = "too_large", Syntax = "syntax",
        Disagrees = "disagrees", Unread = "unread",
    }
}

label! {
    /// The outcome of reading a release's records again before a denial.
    RecheckResult {
        Unchanged = "unchanged", Changed = "changed", Failed = "failed", TimedOut = "timed_out",
    }
}

/// A set of one label.
type Label<V> = [(&'static str, V); 1];

#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    port: Port,
    open: Family<Label<Port>, Gauge>,
    ended: Family<EndLabels, Counter>,
}

/// An open connection, counted until this is dropped.
#[derive(Debug)]
pub struct OpenConnection(Gauge);

#[derive(Clone, Debug, Default)]
pub struct EmergencyMetrics {
    open: Gauge,
}

#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    verdicts: Family<VerdictLabels, Counter>,
    duration: Family<Label<Webhook>, Histogram, fn() -> Histogram>,
    malformed: Counter,
    callers_refused: Counter,
}

#[derive(Clone, Debug, Default)]
pub struct RecordMetrics {
    undecodable: Family<Label<RecordFault>, Counter>,
    looks: Family<Label<RecheckResult>, Counter>,
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

/// An empty registry; every metric in it begins with `kubemoor_`.
pub fn registry() -> Registry {
    Registry::with_prefix("kubemoor")
}

/// Creates and registers a metric.
fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a metric in seconds.
fn add_seconds<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

impl ConnectionMetrics {
    /// Registers the metrics of both ports, and returns those of the webhook's port.
    pub fn register(registry: &mut Registry) -> Self {
        let open = new(registry, "connections_open", "Connections that are open now");
        let ended = new(registry, "connections", "Connections by how they ended");
        let metrics = Self { port: Port::Webhook, open, ended };
        // Created at 0, so that an alert sees the first increment.
        for port in [Port::Webhook, Port::Admin] {
            for end in [ConnectionEnd::Refused, ConnectionEnd::Displaced, ConnectionEnd::Handshake] {
                drop(metrics.ended.get_or_create(&EndLabels { port, end }));
            }
        }
        metrics
    }

    /// The same metrics for the connections of `port`.
    pub fn for_port(&self, port: Port) -> Self {
        Self { port, ..self.clone() }
    }

    /// Counts a connection as open until the result is dropped.
    pub fn opened(&self) -> OpenConnection {
        let open = self.open.get_or_create(&[("port", self.port)]).clone();
        open.inc();
        OpenConnection(open)
    }

    pub fn ended(&self, end: ConnectionEnd) {
        self.ended.get_or_create(&EndLabels { port: self.port, end }).inc();
    }
}

impl EmergencyMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        Self { open: new(registry, "emergency", "Whether the emergency is open") }
    }

    pub fn set_enforcement_disabled(&self, is_open: bool) {
        self.open.set(i64::from(is_open));
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl AdmissionMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let duration = Family::new_with_constructor(request_seconds as fn() -> Histogram);
        let metrics = Self {
            verdicts: new(registry, "verdicts", "Reviews by decision and reason"),
            duration: add_seconds(
                registry,
                "admission_duration",
                "Time from a review's arrival to its answer",
                duration,
            ),
            malformed: new(registry, "malformed_reviews", "Requests without an AdmissionReview v1"),
            callers_refused: new(
                registry,
                "callers_refused",
                "Requests to the webhook's port from other callers than the API server",
            ),
        };
        // Created at 0, so that an alert sees the first increment.
        expected_verdicts().for_each(|labels| drop(metrics.verdicts.get_or_create(&labels)));
        metrics
    }

    /// Counts a review, answered `took` after its arrival. `reason` is a name from the verdict's closed set.
    pub fn answered(&self, webhook: Webhook, decision: Decision, reason: &'static str, took: Duration) {
        self.verdicts.get_or_create(&VerdictLabels { webhook, decision, reason }).inc();
        self.duration.get_or_create(&[("webhook", webhook)]).observe(took.as_secs_f64());
    }

    pub fn caller_refused(&self) {
        self.callers_refused.inc();
    }

    pub fn malformed(&self) {
        self.malformed.inc();
    }
}

impl RecordMetrics {
    /// Registers the component's metrics. Every scrape calls `releases` for the number of releases in each state; the
    /// states are names from a closed set, each named once.
    pub fn register<F, I>(registry: &mut Registry, releases: F) -> Self
    where
        F: Fn() -> I + Send + Sync + 'static,
        I: IntoIterator<Item = (&'static str, u64)>,
    {
        let undecodable = "Rejected release records by reason";
        let looks = "Reads of a release's records before a refusal, by outcome";
        let metrics = Self {
            undecodable: new(registry, "records_undecodable", undecodable),
            looks: new(registry, "fresh_looks", looks),
        };
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

    pub fn undecodable(&self, reason: RecordFault) {
        self.undecodable.get_or_create(&[("reason", reason)]).inc();
    }

    pub fn count_recheck(&self, outcome: RecheckResult) {
        self.looks.get_or_create(&[("outcome", outcome)]).inc();
    }
}

/// Buckets from a verdict from memory to the longest timeout of a webhook.
fn request_seconds() -> Histogram {
    Histogram::new([
        0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
        3.0, 10.0, 30.0,
    ])
}

/// The webhooks that deny an edit, and why.
const REFUSING: [(Webhook, VerdictReason); 5] = [
    (Webhook::Edits, VerdictReason::Drift),
    (Webhook::Edits, VerdictReason::Deletion),
    (Webhook::Scale, VerdictReason::Drift),
    (Webhook::Deletes, VerdictReason::Dependants),
    (Webhook::Records, VerdictReason::Record),
];

/// The webhooks that may answer a review without a verdict.
const JUDGING: [Webhook; 4] = [Webhook::Edits, Webhook::Scale, Webhook::Deletes, Webhook::Records];

/// The reasons for such an answer: the guard is overloaded.
const OVERLOADED: [VerdictReason; 2] = [VerdictReason::Busy, VerdictReason::Late];

/// The reason if the webhook's `failurePolicy` decides.
pub const UNREACHED: &str = "unreached";

/// The verdicts that are exported as 0 before the first one: only those that an alert or a user waits for, edits with
/// drift and reviews without a verdict. The series of allowed edits begin with the first edit.
fn expected_verdicts() -> impl Iterator<Item = VerdictLabels> {
    let labels = |webhook, decision, reason| VerdictLabels { webhook, decision, reason };
    let by_mode = [Decision::Record, Decision::Warn, Decision::Deny];
    let refused = REFUSING.into_iter().flat_map(move |(webhook, reason)| {
        by_mode.into_iter().map(move |decision| labels(webhook, decision, reason.as_str()))
    });
    let reverted = labels(Webhook::Reverts, Decision::Revert, VerdictReason::Drift.as_str());
    let unjudged = JUDGING.into_iter().flat_map(move |webhook| {
        let decisions = [Decision::Allow].into_iter().chain(by_mode);
        decisions.flat_map(move |decision| {
            OVERLOADED.into_iter().map(move |reason| labels(webhook, decision, reason.as_str()))
        })
    });
    let passed =
        OVERLOADED.into_iter().map(move |reason| labels(Webhook::Reverts, Decision::Allow, reason.as_str()));
    let unreached = JUDGING.into_iter().map(move |webhook| labels(webhook, Decision::Error, UNREACHED));
    refused.chain([reverted]).chain(unjudged).chain(passed).chain(unreached)
}

label! {
    StatusWrite {
        Written = "written", Failed = "failed",
    }
}

label! {
    EventFate {
        Written = "written", Counted = "counted", Dropped = "dropped", Failed = "failed",
    }
}

label! {
    NotificationFate {
        Delivered = "delivered", Repeated = "repeated", Dropped = "dropped", Failed = "failed",
    }
}

#[derive(Clone, Debug, Default)]
pub struct NoticeMetrics {
    leading: Gauge,
    statuses: Family<Label<StatusWrite>, Counter>,
    statuses_due: Gauge,
    events: Family<Label<EventFate>, Counter>,
    notifications: Family<Label<NotificationFate>, Counter>,
    missed: Counter,
}

impl NoticeMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let due = "Releases whose GuardedRelease still has to be compared, and written if it differs";
        let missed = "Incidents that were not reported because too many came at once";
        let metrics = Self {
            leading: new(registry, "leading", "Whether this replica leads"),
            statuses: new(registry, "status_writes", "Writes of GuardedReleases by their outcome"),
            statuses_due: new(registry, "statuses_due", due),
            events: new(registry, "events", "Kubernetes events by outcome"),
            notifications: new(registry, "notifications", "Notifications by outcome"),
            missed: new(registry, "incidents_missed", missed),
        };
        // Created at 0, so that an alert sees the first increment.
        for outcome in [NotificationFate::Dropped, NotificationFate::Failed] {
            drop(metrics.notifications.get_or_create(&[("outcome", outcome)]));
        }
        metrics
    }

    pub fn leads(&self, leads: bool) {
        self.leading.set(i64::from(leads));
    }

    pub fn status(&self, outcome: StatusWrite) {
        self.statuses.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Sets the number of statuses that are still to be compared.
    pub fn statuses_due(&self, count: usize) {
        self.statuses_due.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn event(&self, outcome: EventFate) {
        self.events.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub fn notification(&self, outcome: NotificationFate) {
        self.notifications.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub fn missed(&self, incidents: u64) {
        self.missed.inc_by(incidents);
    }
}

label! {
    LedgerWriteResult {
        Database = "database", Overflow = "overflow", Unavailable = "unavailable", Lost = "lost",
    }
}

#[derive(Clone, Debug, Default)]
pub struct LedgerMetrics {
    rows: Family<Label<LedgerWriteResult>, Counter>,
    queue: Gauge,
    up: Gauge,
    deleted: Counter,
}

impl LedgerMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            rows: new(registry, "ledger_rows", "Rows of the ledger by outcome"),
            queue: new(registry, "ledger_queue", "Rows that wait for the ledger's writer"),
            up: new(registry, "ledger_up", "Whether the ledger's database accepts rows"),
            deleted: new(registry, "ledger_deleted_rows", "Rows deleted by retention"),
        };
        // Created at 0, so that an alert sees the first increment.
        for outcome in [LedgerWriteResult::Overflow, LedgerWriteResult::Unavailable, LedgerWriteResult::Lost]
        {
            metrics.written(outcome, 0);
        }
        metrics
    }

    pub fn written(&self, outcome: LedgerWriteResult, rows: usize) {
        self.rows.get_or_create(&[("outcome", outcome)]).inc_by(u64::try_from(rows).unwrap_or(u64::MAX));
    }

    pub fn rows_written(&self, outcome: LedgerWriteResult) -> usize {
        usize::try_from(self.rows.get_or_create(&[("outcome", outcome)]).get()).unwrap_or(usize::MAX)
    }

    /// Adds to the number of waiting rows; subtracts when negative.
    pub fn queued(&self, rows: i64) {
        self.queue.inc_by(rows);
    }

    pub fn available(&self, up: bool) {
        self.up.set(i64::from(up));
    }

    /// Counts rows that were deleted for their age or their number.
    pub fn deleted(&self, rows: u64) {
        self.deleted.inc_by(rows);
    }
}

/// The kinds of drift.
const DRIFTS: [&str; 5] = ["missing", "changed", "ownership", "terminating", "unreadable"];

label! {
    RepairResult {
        Repaired = "repaired", Partly = "partly", Present = "present", TakenBack = "taken_back",
        Reported = "reported", Failed = "failed",
    }
}

#[derive(Clone, Debug)]
pub struct GuardMetrics {
    found: Family<Label<&'static str>, Counter>,
    repairs: Family<RepairLabels, Counter>,
    delay: Family<Label<&'static str>, Histogram, fn() -> Histogram>,
    detection: Histogram,
    oldest: Arc<Mutex<Option<Timestamp>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairLabels {
    kind: &'static str,
    outcome: RepairResult,
}

impl GuardMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let delay = Family::new_with_constructor(drift_seconds as fn() -> Histogram);
        let (repair, detection) = (
            "Time from the detection of a drift to its repair",
            "Time from the last write to an object to the detection of its drift",
        );
        let metrics = Self {
            found: new(registry, "drift_found", "Declared objects found drifted"),
            repairs: new(registry, "repairs", "Drifted objects by outcome"),
            delay: add_seconds(registry, "repair_delay", repair, delay),
            detection: add_seconds(registry, "drift_detection_delay", detection, drift_seconds()),
            oldest: Arc::default(),
        };
        // Created at 0, so that an alert sees the first failure.
        for kind in DRIFTS {
            drop(metrics.repairs.get_or_create(&RepairLabels { kind, outcome: RepairResult::Failed }));
        }
        let oldest = Arc::clone(&metrics.oldest);
        collect(registry, move |mut encoder| {
            let age =
                oldest.lock().map_or(SignedDuration::ZERO, |since| Timestamp::now().duration_since(since));
            let gauge = ConstGauge::new(age.as_secs_f64().max(0.0));
            let (help, unit) = ("Age of the oldest open drift", Some(&Unit::Seconds));
            gauge.encode(encoder.encode_descriptor("drift_oldest", help, unit, gauge.metric_type())?)
        });
        metrics
    }

    pub fn found(&self, kind: &'static str) {
        self.found.get_or_create(&[("kind", kind)]).inc();
    }

    pub fn repaired(&self, kind: &'static str, outcome: RepairResult) {
        self.repairs.get_or_create(&RepairLabels { kind, outcome }).inc();
    }

    /// Records the time from the first sight of a drift to its repair.
    pub fn repaired_after(&self, kind: &'static str, delay: SignedDuration) {
        self.delay.get_or_create(&[("kind", kind)]).observe(delay.as_secs_f64().max(0.0));
    }

    /// Records the time from the last write to an object to the detection of its drift. Writes are dated in whole
    /// seconds.
    pub fn detected_after(&self, delay: SignedDuration) {
        self.detection.observe(delay.as_secs_f64().max(0.0));
    }

    /// Sets the start of the oldest drift; `None` without drift.
    pub fn oldest(&self, since: Option<Timestamp>) {
        *self.oldest.lock() = since;
    }
}

/// Buckets from the delay of a watch event to the longest pause between attempts.
fn drift_seconds() -> Histogram {
    Histogram::new([0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0])
}

#[derive(Clone, Debug, PartialEq)]
pub struct ReleaseMetricState {
    pub release: ReleaseId,
    /// Its state in one word of a closed set.
    pub reason: &'static str,
    /// How many of its objects are not as declared.
    pub drifted: u64,
}

/// Registers the metrics of the states of releases. Every scrape calls `standings` for the states of all releases. With
/// `per_release` each release with drift has a separate series.
pub fn register_releases<F, I>(registry: &mut Registry, per_release: bool, standings: F)
where
    F: Fn() -> I + Send + Sync + 'static,
    I: IntoIterator<Item = ReleaseMetricState>,
{
    collect(registry, move |mut encoder| {
        let mut standings: Vec<_> = standings().into_iter().collect();
        standings.sort_by(|left, right| left.release.cmp(&right.release));
        encode_totals(&standings, &mut encoder)?;
        if per_release { encode_each(&standings, &mut encoder) } else { Ok(()) }
    });
}

fn encode_totals(
    standings: &[ReleaseMetricState],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let mut reasons = BTreeMap::<_, u64>::new();
    let mut drifted = 0_u64;
    for standing in standings {
        *reasons.entry(standing.reason).or_default() += 1;
        drifted = drifted.saturating_add(standing.drifted);
    }
    let kind = ConstGauge::new(0_u64).metric_type();
    let mut by_reason =
        encoder.encode_descriptor("releases_guarded", "Guarded releases by state", None, kind)?;
    for (reason, count) in reasons {
        ConstGauge::new(count).encode(by_reason.encode_family(&[("reason", reason)])?)?;
    }
    let all = encoder.encode_descriptor("objects_drifted", "Objects that are not as declared", None, kind)?;
    ConstGauge::new(drifted).encode(all)
}

fn encode_each(
    standings: &[ReleaseMetricState],
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let mut each = encoder.encode_descriptor(
        "release_objects_drifted",
        "Objects of a release that are not as declared; no series without any",
        None,
        ConstGauge::new(0_u64).metric_type(),
    )?;
    for standing in standings.iter().filter(|standing| standing.drifted > 0) {
        let labels =
            [("namespace", standing.release.namespace.as_str()), ("release", standing.release.name.as_str())];
        ConstGauge::new(standing.drifted).encode(each.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Whether a replica can serve requests, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingState {
    /// Whether all conditions of `/readyz` are met.
    pub is_ready: bool,
    /// Begin and end of the validity of the certificate in use; `None` while it is only a placeholder.
    pub validity: Option<(Timestamp, Timestamp)>,
}

/// Registers the metrics of [`ServingState`]. Every scrape calls `ask`.
pub fn register_serving<F>(registry: &mut Registry, ask: F)
where
    F: Fn() -> ServingState + Send + Sync + 'static,
{
    collect(registry, move |mut encoder| {
        let ServingState { is_ready, validity } = ask();
        let ready = ConstGauge::new(i64::from(is_ready));
        let help = "Whether this replica is ready";
        ready.encode(encoder.encode_descriptor("ready", help, None, ready.metric_type())?)?;
        let Some((begin, end)) = validity else { return Ok(()) };
        for (name, help, time) in [
            ("certificate_not_before_timestamp", "Start of the validity of the certificate in use", begin),
            ("certificate_expiration_timestamp", "End of the validity of the certificate in use", end),
        ] {
            let gauge = ConstGauge::new(time.as_second());
            let unit = Some(&Unit::Seconds);
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)?;
        }
        Ok(())
    });
}

/// Registers the metrics of the cache of declared fields. Every scrape calls `counts` for the number of requests for
/// fields, and of those that had to read a document.
pub fn register_declarations<F>(registry: &mut Registry, counts: F)
where
    F: Fn() -> [u64; 2] + Send + Sync + 'static,
{
    collect(registry, move |mut encoder| {
        let names = [
            ("declarations_asked", "Requests for the fields of a declared object"),
            ("declarations_read", "Requests for the fields of a declared object that were not cached"),
        ];
        for ((name, help), count) in names.into_iter().zip(counts()) {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    });
}

struct AtScrape<F>(F);

/// Makes every scrape call `encode`.
fn collect<F>(registry: &mut Registry, encode: F)
where
    F: Fn(DescriptorEncoder<'_>) -> Result<(), fmt::Error> + Send + Sync + 'static,
{
    registry.register_collector(Box::new(AtScrape(encode)));
}

impl<F> fmt::Debug for AtScrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

impl<F> Collector for AtScrape<F>
where
    F: Fn(DescriptorEncoder<'_>) -> Result<(), fmt::Error> + Send + Sync + 'static,
{
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        (self.0)(encoder)
    }
}

#[cfg(test)]
mod tests;
