//! Tells notifiers what the loop finds and does, and the ledger which drift ended without a repair.
//!
//! [`OpenConditions`] keeps what was announced and has not ended, so that every condition whose beginning receivers know of
//! also gets an end, once, even if the guard did not end it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::state::LoopState;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_ledger::LedgerHandle;
use kubemoor_ledger::row::{GuardedObject, LedgerRow, Repaired};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Notification, NotificationSubject};
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_reconcile::report::{Drifted, Happening, Incident, LoopReport};
use kubemoor_runtime::metrics::NoticeMetrics;
use kubemoor_verdict::health::{ObjectState, RecordState};

pub struct Teller {
    pub state: Arc<LoopState>,
    pub notifiers: Notifiers,
    pub resolver: Arc<PolicyResolver>,
    pub metrics: NoticeMetrics,
    /// Where the end of a drift is kept.
    pub ledger: LedgerHandle,
    /// Only the leader keeps it: the others do not repair, so they do not know who did.
    pub leadership: Leadership,
}

/// The conditions that were announced and have not ended.
#[derive(Debug, Default)]
struct OpenConditions {
    of_releases: BTreeMap<ReleaseId, OfRelease>,
    /// The namespaces in which repairs have stopped; `None` stands for all.
    braked: BTreeMap<Option<String>, Timestamp>,
}

#[derive(Debug, Default)]
struct OfRelease {
    revision: u64,
    drifted: BTreeMap<Arc<ObjectId>, Timestamp>,
    contested: BTreeMap<Arc<ObjectId>, Timestamp>,
    stuck: Option<Timestamp>,
}

impl Teller {
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
                    standing.reported(&release, self.state.of(&release).as_deref(), Timestamp::now())
                }
            };
            for message in messages {
                self.keep(&message);
                let policy = message.release.as_ref().map(|release| self.resolver.of(release));
                let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
                self.notifiers.send(names, message);
            }
        }
    }

    /// Keeps that a drift ended, and the guard did not end it.
    fn keep(&self, message: &Notification) {
        let Notification { subject: NotificationSubject::DriftEnded, since, at, .. } = *message else {
            return;
        };
        let Some(((release, revision), object)) =
            message.release.as_ref().zip(message.revision).zip(message.object.as_ref())
        else {
            return;
        };
        if self.leadership.holds() {
            let of = GuardedObject { release, revision, object };
            let detail = format!("it drifted since {since}, and the guard did not repair it");
            self.ledger.record(LedgerRow::repair(at, of, Repaired::Ended, Vec::new(), &detail));
        }
    }
}

impl OpenConditions {
    fn happened(&mut self, happening: &Happening, now: Timestamp) -> Vec<Notification> {
        match happening {
            Happening::Object(incident) => vec![self.of_incident(incident, now)],
            Happening::Braked { namespace, drifting, declared } => {
                self.braked.entry(namespace.clone()).or_insert(now);
                let detail = format!("{drifting} of {declared} declared objects drift");
                vec![Notification {
                    namespace: namespace.clone(),
                    detail: Some(detail),
                    ..Notification::new(NotificationSubject::Braked, now)
                }]
            }
            Happening::Eased { namespace } => {
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
        let Some(report) = report else {
            let gone = self.of_releases.remove(release);
            return gone.map(|gone| gone.ended(release, now)).unwrap_or_default();
        };
        let known = self.of_releases.entry(release.clone()).or_default();
        known.revision = report.records.revision;
        let mut messages = known.drift_ended(release, report, now);
        messages.extend(known.contested(release, report, now));
        messages.extend(known.stuck(release, report.records.state == RecordState::Locked, now));
        if known.is_empty() {
            self.of_releases.remove(release);
        }
        messages
    }

    fn of_incident(&mut self, incident: &Incident, now: Timestamp) -> Notification {
        let Incident { release, revision, drifted } = incident;
        let Drifted { object, since, .. } = drifted;
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
            None => drifted.kept.as_deref(),
        };
        if subject == NotificationSubject::Repaired {
            known.drifted.remove(object);
        } else {
            known.drifted.insert(object.clone(), *since);
        }
        Notification {
            remaining: known.drifted.len(),
            since: *since,
            drift: Some(drifted.kind.as_str()),
            fields: drifted.findings.clone(),
            by: drifted.by.clone(),
            detail: detail.map(str::to_owned),
            ..message_about(subject, release, *revision, Some(object), now)
        }
    }
}

impl OfRelease {
    fn is_empty(&self) -> bool {
        self.drifted.is_empty() && self.contested.is_empty() && self.stuck.is_none()
    }

    /// The messages about drifts that ended without a repair of the guard.
    fn drift_ended(&mut self, release: &ReleaseId, report: &LoopReport, now: Timestamp) -> Vec<Notification> {
        if self.drifted.is_empty() {
            return Vec::new();
        }
        let drifting = report.drifted.iter().filter(|it| it.state() != ObjectState::Allowed);
        let drifting: BTreeSet<_> = drifting.map(|it| &it.object).collect();
        let ended: Vec<_> = self.drifted.extract_if(.., |object, _| !drifting.contains(object)).collect();
        self.each(NotificationSubject::DriftEnded, release, ended, self.drifted.len(), now)
    }

    /// The messages about contests that began or ended.
    fn contested(&mut self, release: &ReleaseId, report: &LoopReport, now: Timestamp) -> Vec<Notification> {
        let contested = report.drifted.iter().filter_map(|it| Some((&it.object, it.contested_by.as_ref()?)));
        let contested: BTreeMap<_, _> = contested.collect();
        let ended: Vec<_> =
            self.contested.extract_if(.., |object, _| !contested.contains_key(object)).collect();
        let mut messages =
            self.each(NotificationSubject::ContestEnded, release, ended, self.contested.len(), now);
        for (object, by) in contested {
            if self.contested.insert(object.clone(), now).is_none() {
                let by = Some(by.clone()).filter(|by| !by.is_empty());
                let message =
                    message_about(NotificationSubject::Contested, release, self.revision, Some(object), now);
                messages.push(Notification { by, ..message });
            }
        }
        messages
    }

    /// The message that a Helm operation is stuck, or no longer stuck.
    fn stuck(&mut self, release: &ReleaseId, is_stuck: bool, now: Timestamp) -> Option<Notification> {
        let (subject, since) = match (self.stuck, is_stuck) {
            (None, true) => {
                self.stuck = Some(now);
                (NotificationSubject::OperationStuck, now)
            }
            (Some(since), false) => {
                self.stuck = None;
                (NotificationSubject::OperationEnded, since)
            }
            _ => return None,
        };
        Some(Notification { since, ..message_about(subject, release, self.revision, None, now) })
    }

    /// The messages that all conditions ended, because the release is gone.
    fn ended(mut self, release: &ReleaseId, now: Timestamp) -> Vec<Notification> {
        let (drifted, contested) = (std::mem::take(&mut self.drifted), std::mem::take(&mut self.contested));
        let mut messages = self.each(NotificationSubject::ContestEnded, release, contested, 0, now);
        messages.extend(self.each(NotificationSubject::DriftEnded, release, drifted, 0, now));
        messages.extend(self.stuck(release, false, now));
        messages
    }

    /// A message for each of these, which all ended; `lasting` others of the release have not.
    fn each(
        &self,
        subject: NotificationSubject,
        release: &ReleaseId,
        ended: impl IntoIterator<Item = (Arc<ObjectId>, Timestamp), IntoIter: ExactSizeIterator>,
        lasting: usize,
        now: Timestamp,
    ) -> Vec<Notification> {
        let ended = ended.into_iter();
        let others = (0..ended.len()).rev();
        let message = |((object, since), others): ((Arc<ObjectId>, _), usize)| Notification {
            since,
            remaining: lasting + others,
            ..message_about(subject, release, self.revision, Some(&object), now)
        };
        ended.zip(others).map(message).collect()
    }
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
