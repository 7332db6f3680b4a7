//! Metrics of leader election and of the loop's reports.
//!
//! Entry point: [`NoticeMetrics`]. Invariant: names no release.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
        registry.register("events", "Kubernetes events by outcome", metrics.events.clone());
        registry.register("notifications", "Notifications by outcome", metrics.notifications.clone());
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
