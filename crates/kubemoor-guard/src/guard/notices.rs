//! Sends what the loop finds and does to the notifiers, and records drift that ended without a repair in the ledger.
//!
//! [`OpenConditions`] holds the conditions that were announced and have not ended, so that receivers get exactly one
//! end for each of them, even if the guard did not end it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::state::LoopState;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{LedgerRow, Repaired};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Notification, NotificationSubject};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_reconcile::drifts::ObjectDrift;
use kubemoor_reconcile::report::{Incident, LoopAnnouncement, LoopReport};
use kubemoor_runtime::metrics::NoticeMetrics;
use kubemoor_verdict::health::{ObjectState, RecordState};

pub struct NotificationPublisher {
    pub state: Arc<LoopState>,
    pub notifiers: Notifiers,
    pub resolver: Arc<PolicyResolver>,
    pub metrics: NoticeMetrics,
    pub ledger: LedgerHandle,
    /// Only the leader records it: the others do not repair, so they do not know who did.
    pub leadership: Leadership,
}

/// The conditions that were announced and have not ended.
#[derive(Debug, Default)]
struct OpenConditions {
    of_releases: BTreeMap<ReleaseId, OpenReleaseConditions>,
    /// The namespaces in which repairs have stopped; `None` stands for all.
    braked: BTreeMap<Option<String>, Timestamp>,
}

#[derive(Debug, Default)]
struct OpenReleaseConditions {
    revision: u64,
    open: BTreeMap<ReleaseCondition, Timestamp>,
}

/// A condition of a release, and the object that it is about.
type ReleaseCondition = (ConditionKind, Option<Arc<ObjectId>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConditionKind {
    Contest,
    Drift,
    Stuck,
}

impl NotificationPublisher {
    pub async fn run(self, stop: CancellationToken) {
        let (mut happenings, changes) = (self.state.happenings(), self.state.changes());
        let mut standing = OpenConditions::default();
        loop {
            let messages = tokio::select! {
                // A happening is sent before a later report.
                biased;
                () = stop.cancelled() => return,
                happening = happenings.recv() => match happening {
                    Ok(happening) => standing.happened(&happening, Timestamp::now()),
                    Err(RecvError::Lagged(missed)) => {
                        self.metrics.missed(missed);
                        continue;
                    }
                    Err(RecvError::Closed) => return,
                },
                release = changes.next() => {
                    standing.reported(&release, self.state.report(&release).as_deref(), Timestamp::now())
                }
            };
            for message in messages {
                self.keep(&message);
                let policy = message.release.as_ref().map(|release| self.resolver.policy(release));
                let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
                self.notifiers.send(names, message);
            }
        }
    }

    /// Records that a drift ended without a repair by the guard.
    fn keep(&self, message: &Notification) {
        let Notification { subject: NotificationSubject::DriftEnded, since, at, .. } = *message else {
            return;
        };
        let Some(((release, revision), object)) =
            message.release.as_ref().zip(message.revision).zip(message.object.as_ref())
        else {
            return;
        };
        if self.leadership.is_leader() {
            let detail = format!("it had drifted since {since}, and the guard did not repair it");
            let of = (release, revision);
            self.ledger.record(LedgerRow::repair(at, of, object, Repaired::Ended, Vec::new(), &detail));
        }
    }
}

impl OpenConditions {
    fn happened(&mut self, happening: &LoopAnnouncement, now: Timestamp) -> Vec<Notification> {
        match happening {
            LoopAnnouncement::Object(incident) => vec![self.of_incident(incident, now)],
            LoopAnnouncement::Braked { namespace, drifting, declared } => {
                self.braked.entry(namespace.clone()).or_insert(now);
                let detail = format!("{drifting} of {declared} declared objects drift");
                vec![Notification {
                    namespace: namespace.clone(),
                    detail: Some(detail),
                    ..Notification::new(NotificationSubject::Braked, now)
                }]
            }
            LoopAnnouncement::Eased { namespace } => {
                let since = self.braked.remove(namespace).unwrap_or(now);
                vec![Notification {
                    namespace: namespace.clone(),
                    since,
                    ..Notification::new(NotificationSubject::BrakeReleased, now)
                }]
            }
        }
    }

    /// The messages about a new report of a release; without a report the release is gone.
    fn reported(
        &mut self,
        release: &ReleaseId,
        report: Option<&LoopReport>,
        now: Timestamp,
    ) -> Vec<Notification> {
        let known = self.of_releases.entry(release.clone()).or_default();
        known.revision = report.map_or(known.revision, |report| report.records.revision);
        let lasting = report.map(conditions).unwrap_or_default();
        let about = |subject, (_, object): &ReleaseCondition, revision| {
            message_about(subject, release, revision, object.as_deref(), now)
        };
        let ended: Vec<ReleaseCondition> =
            known.open.keys().filter(|condition| !lasting.contains_key(*condition)).cloned().collect();
        let mut messages = Vec::new();
        for condition in ended {
            let Some(since) = known.open.remove(&condition) else { continue };
            let subject = match condition.0 {
                ConditionKind::Contest => NotificationSubject::ContestEnded,
                ConditionKind::Drift => NotificationSubject::DriftEnded,
                ConditionKind::Stuck => NotificationSubject::OperationEnded,
            };
            let remaining = known.count(condition.0);
            messages.push(Notification { since, remaining, ..about(subject, &condition, known.revision) });
        }
        for (condition, by) in lasting {
            let subject = match condition.0 {
                // Its incident announces it.
                ConditionKind::Drift => continue,
                ConditionKind::Contest => NotificationSubject::Contested,
                ConditionKind::Stuck => NotificationSubject::OperationStuck,
            };
            if !known.open.contains_key(&condition) {
                messages.push(Notification { by, ..about(subject, &condition, known.revision) });
                known.open.insert(condition, now);
            }
        }
        if known.open.is_empty() {
            self.of_releases.remove(release);
        }
        messages
    }

    fn of_incident(&mut self, incident: &Incident, now: Timestamp) -> Notification {
        let Incident { release, revision, drifted } = incident;
        let ObjectDrift { object, since, .. } = drifted;
        let known = self.of_releases.entry(release.clone()).or_default();
        known.revision = *revision;
        let subject = match &drifted.repaired {
            Some(Ok(())) => NotificationSubject::Repaired,
            Some(Err(_)) => NotificationSubject::NotRepaired,
            None => NotificationSubject::Drifted,
        };
        let detail = match &drifted.repaired {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.as_str()),
            None => drifted.unrepaired_reason.as_deref(),
        };
        let condition = (ConditionKind::Drift, Some(Arc::clone(object)));
        if subject == NotificationSubject::Repaired {
            known.open.remove(&condition);
        } else {
            known.open.insert(condition, *since);
        }
        Notification {
            remaining: known.count(ConditionKind::Drift),
            since: *since,
            drift: Some(drifted.kind.as_str()),
            fields: drifted.findings.clone(),
            by: drifted.by.clone(),
            detail: detail.map(str::to_owned),
            ..message_about(subject, release, *revision, Some(object), now)
        }
    }
}

impl OpenReleaseConditions {
    fn count(&self, kind: ConditionKind) -> usize {
        self.open.keys().filter(|condition| condition.0 == kind).count()
    }
}

/// The conditions in a report, each with the user or field manager that causes it.
fn conditions(report: &LoopReport) -> BTreeMap<ReleaseCondition, Option<String>> {
    let mut found = BTreeMap::new();
    for drifted in &report.drifted {
        let object = || Some(Arc::clone(&drifted.object));
        if drifted.state() != ObjectState::Allowed {
            found.insert((ConditionKind::Drift, object()), None);
        }
        if let Some(by) = drifted.contested_by() {
            found.insert((ConditionKind::Contest, object()), Some(by.to_owned()).filter(|by| !by.is_empty()));
        }
    }
    if report.records.state == RecordState::Locked {
        found.insert((ConditionKind::Stuck, None), None);
    }
    found
}

fn message_about(
    subject: NotificationSubject,
    release: &ReleaseId,
    revision: u64,
    object: Option<&ObjectId>,
    now: Timestamp,
) -> Notification {
    Notification {
        release: Some(release.clone()),
        revision: Some(revision),
        object: object.cloned(),
        ..Notification::new(subject, now)
    }
}

#[cfg(test)]
mod tests;
