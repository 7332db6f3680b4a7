//! Metrics of leader election, of the loop's reports, and of the states of releases.
//!
//! Entry points: [`NoticeMetrics`], [`ReleaseFigures`]. Invariant: only [`ReleaseFigures`] names releases,
//! and only where the settings ask for that.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::model::ReleaseId;

label! {
    /// The result of writing a status.
    StatusWrite {
        /// It is written.
        Written = "written",
        /// The API server refused it, or did not answer; it is tried again.
        Failed = "failed",
    }
}

label! {
    /// The result of publishing an event.
    EventFate {
        /// It is written.
        Written = "written",
        /// It was said a moment ago and is counted in its series.
        Counted = "counted",
        /// Too many were to be written.
        Dropped = "dropped",
        /// The API server refused it, or did not answer.
        Failed = "failed",
    }
}

label! {
    /// The result of sending a notification.
    NotificationFate {
        /// Its receiver took it.
        Delivered = "delivered",
        /// The same was sent a moment ago.
        Repeated = "repeated",
        /// It began and ended in quiet hours.
        Settled = "settled",
        /// Too many waited.
        Dropped = "dropped",
        /// Its receiver did not take it, after all attempts.
        Failed = "failed",
    }
}

/// Leading, statuses, events and notifications.
#[derive(Clone, Debug, Default)]
pub struct NoticeMetrics {
    leading: Gauge,
    statuses: Family<StatusLabels, Counter>,
    statuses_due: Gauge,
    events: Family<EventLabels, Counter>,
    notifications: Family<NotificationLabels, Counter>,
    missed: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    outcome: StatusWrite,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    outcome: EventFate,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NotificationLabels {
    outcome: NotificationFate,
}

/// The state of one release.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The release.
    pub release: ReleaseId,
    /// Its state in one word of a closed set.
    pub reason: &'static str,
    /// How many of its objects are not as declared.
    pub drifted: u64,
}

/// The states of releases, computed at each scrape, so that no gauge can be outdated.
pub struct ReleaseFigures<F> {
    standings: F,
    /// Whether each release has a series of its own.
    per_release: bool,
}

impl NoticeMetrics {
    /// Registers the component's metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // An alert sees the first of them if it has seen none before.
        for outcome in [NotificationFate::Dropped, NotificationFate::Failed] {
            drop(metrics.notifications.get_or_create(&NotificationLabels { outcome }));
        }
        registry.register("leading", "Whether this replica leads", metrics.leading.clone());
        registry.register(
            "status_writes",
            "Writes of GuardedReleases by their outcome",
            metrics.statuses.clone(),
        );
        registry.register(
            "statuses_due",
            "Releases whose GuardedRelease has still to be compared, and written if it differs",
            metrics.statuses_due.clone(),
        );
        registry.register("events", "Kubernetes events by what became of them", metrics.events.clone());
        registry.register(
            "notifications",
            "Notifications by what became of them",
            metrics.notifications.clone(),
        );
        registry.register(
            "incidents_missed",
            "Incidents of which nobody was told, because too many came at once",
            metrics.missed.clone(),
        );
        metrics
    }

    /// Says whether this replica leads.
    pub fn leads(&self, leads: bool) {
        self.leading.set(i64::from(leads));
    }

    /// Counts a write of a GuardedRelease.
    pub fn status(&self, outcome: StatusWrite) {
        self.statuses.get_or_create(&StatusLabels { outcome }).inc();
    }

    /// Says how many statuses have still to be compared.
    pub fn statuses_due(&self, count: usize) {
        self.statuses_due.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts an event.
    pub fn event(&self, outcome: EventFate) {
        self.events.get_or_create(&EventLabels { outcome }).inc();
    }

    /// Counts a notification.
    pub fn notification(&self, outcome: NotificationFate) {
        self.notifications.get_or_create(&NotificationLabels { outcome }).inc();
    }

    /// Counts incidents without a notification.
    pub fn missed(&self, incidents: u64) {
        self.missed.inc_by(incidents);
    }
}

impl<F, I> ReleaseFigures<F>
where
    F: Fn() -> I + Send + Sync + 'static,
    I: IntoIterator<Item = Standing>,
{
    /// Registers them; every scrape calls `standings`. With `per_release` each release with drift has a
    /// separate series.
    pub fn register(registry: &mut Registry, per_release: bool, standings: F) {
        registry.register_collector(Box::new(Self { standings, per_release }));
    }
}

impl<F> fmt::Debug for ReleaseFigures<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReleaseFigures")
    }
}

impl<F, I> Collector for ReleaseFigures<F>
where
    F: Fn() -> I + Send + Sync + 'static,
    I: IntoIterator<Item = Standing>,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut standings: Vec<_> = (self.standings)().into_iter().collect();
        standings.sort_by(|left, right| left.release.cmp(&right.release));
        let mut reasons = std::collections::BTreeMap::<_, u64>::new();
        let mut drifted = 0_u64;
        for standing in &standings {
            *reasons.entry(standing.reason).or_default() += 1;
            drifted = drifted.saturating_add(standing.drifted);
        }
        let kind = ConstGauge::new(0_u64).metric_type();
        let mut by_reason = encoder.encode_descriptor(
            "releases_guarded",
            "Guarded releases by how they stand",
            None,
            kind,
        )?;
        for (reason, count) in reasons {
            ConstGauge::new(count).encode(by_reason.encode_family(&[("reason", reason)])?)?;
        }
        let all =
            encoder.encode_descriptor("objects_drifted", "Objects that are not as declared", None, kind)?;
        ConstGauge::new(drifted).encode(all)?;
        if self.per_release {
            let mut each = encoder.encode_descriptor(
                "release_objects_drifted",
                "Objects of a release that are not as declared; no series without any",
                None,
                kind,
            )?;
            for standing in standings.iter().filter(|standing| standing.drifted > 0) {
                let labels = [
                    ("namespace", standing.release.namespace.as_str()),
                    ("release", standing.release.name.as_str()),
                ];
                ConstGauge::new(standing.drifted).encode(each.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
