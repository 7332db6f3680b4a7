//! The loop's metrics.
//!
//! Entry point: [`GuardMetrics`]. Invariant: as for all metrics, closed sets of label values. Must not decide
//! anything.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

label! {
    /// What is wrong with a declared object.
    DriftFound {
        /// It is not there.
        Missing = "missing",
        /// Declared fields have other values.
        Changed = "changed",
        /// Declared fields belong to a manager that would make Helm fail.
        Ownership = "ownership",
        /// Its deletion does not end.
        Terminating = "terminating",
        /// It is nested too deep.
        Unreadable = "unreadable",
    }
}

label! {
    /// The result of a repair.
    Repair {
        /// It was put right.
        Repaired = "repaired",
        /// It was put right but for fields that cannot change any more.
        Partly = "partly",
        /// The object had already been repaired.
        Present = "present",
        /// A missing object was created, and taken back because its release
        /// dropped it.
        TakenBack = "taken_back",
        /// It may not be repaired; it was reported.
        Reported = "reported",
        /// The API server refused it, did not answer, or held something else
        /// afterwards.
        Failed = "failed",
    }
}

/// The loop.
#[derive(Clone, Debug)]
pub struct GuardMetrics {
    found: Family<DriftLabels, Counter>,
    repairs: Family<RepairLabels, Counter>,
    delay: Family<DriftLabels, Histogram, fn() -> Histogram>,
    detection: Histogram,
    oldest: Arc<Mutex<Option<Timestamp>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriftLabels {
    kind: DriftFound,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairLabels {
    kind: DriftFound,
    outcome: Repair,
}

/// Computes the age of the oldest drift at each scrape.
#[derive(Debug)]
struct Oldest(Arc<Mutex<Option<Timestamp>>>);

impl GuardMetrics {
    /// Registers the component's metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            found: Family::default(),
            repairs: Family::default(),
            delay: Family::new_with_constructor(drift_seconds),
            detection: drift_seconds(),
            oldest: Arc::default(),
        };
        // An alert sees the first failure if it has seen none before.
        let kinds = [
            DriftFound::Missing,
            DriftFound::Changed,
            DriftFound::Ownership,
            DriftFound::Terminating,
            DriftFound::Unreadable,
        ];
        for kind in kinds {
            drop(metrics.repairs.get_or_create(&RepairLabels { kind, outcome: Repair::Failed }));
        }
        registry.register("drift_found", "Declared objects found drifted", metrics.found.clone());
        registry.register("repairs", "Drifted objects by outcome", metrics.repairs.clone());
        registry.register_with_unit(
            "repair_delay",
            "Time from the first sight of a drift to its repair",
            Unit::Seconds,
            metrics.delay.clone(),
        );
        registry.register_with_unit(
            "drift_detection_delay",
            "Time from the last write to an object to its being found drifted",
            Unit::Seconds,
            metrics.detection.clone(),
        );
        registry.register_collector(Box::new(Oldest(Arc::clone(&metrics.oldest))));
        metrics
    }

    /// Counts a declared object that was found drifted.
    pub fn found(&self, kind: DriftFound) {
        self.found.get_or_create(&DriftLabels { kind }).inc();
    }

    /// Counts what became of a drifted object.
    pub fn repaired(&self, kind: DriftFound, outcome: Repair) {
        self.repairs.get_or_create(&RepairLabels { kind, outcome }).inc();
    }

    /// Takes note that a drift was put right this long after it was first seen.
    pub fn repaired_after(&self, kind: DriftFound, delay: SignedDuration) {
        self.delay.get_or_create(&DriftLabels { kind }).observe(delay.as_secs_f64().max(0.0));
    }

    /// Takes note that a drift was seen this long after the last write to its
    /// object. Writes are dated in whole seconds.
    pub fn detected_after(&self, delay: SignedDuration) {
        self.detection.observe(delay.as_secs_f64().max(0.0));
    }

    /// Sets the start of the oldest drift; `None` without drift.
    pub fn oldest(&self, since: Option<Timestamp>) {
        *self.oldest.lock() = since;
    }
}

impl Collector for Oldest {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let since = *self.0.lock();
        let age = since.map_or(0.0, |since| Timestamp::now().duration_since(since).as_secs_f64().max(0.0));
        let gauge = ConstGauge::new(age);
        let help = "Age of the oldest drift that lasts";
        let metric =
            encoder.encode_descriptor("drift_oldest", help, Some(&Unit::Seconds), gauge.metric_type())?;
        gauge.encode(metric)
    }
}

/// From a watch event's way to the longest pause between attempts.
fn drift_seconds() -> Histogram {
    Histogram::new([0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0])
}
