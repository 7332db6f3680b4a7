//! The open conditions that receivers know of, so that they learn of the end too.
//!
//! Entry points: [`Standing::happened`], [`Standing::reported`]. Invariant: the end of a condition
//! is announced only after its beginning, and each once. Pure. Must not send anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_notify::message::{Message, Subject};
use kubemoor_reconcile::report::{Drifted, Happening, Incident, ReleaseReport};
use kubemoor_verdict::health::{ObjectState, RecordState};

/// The conditions that were announced and have not ended.
#[derive(Debug, Default)]
pub(super) struct Standing {
    of_releases: BTreeMap<ReleaseId, OfRelease>,
    /// The namespaces in which repairs have stopped; `None` stands for all.
    braked: BTreeMap<Option<String>, Timestamp>,
}

/// The open conditions of one release.
#[derive(Debug, Default)]
struct OfRelease {
    revision: u64,
    drifted: BTreeMap<Arc<ObjectId>, Timestamp>,
    contested: BTreeMap<Arc<ObjectId>, Timestamp>,
    stuck: Option<Timestamp>,
}

impl Standing {
    /// The messages about a happening.
    pub(super) fn happened(&mut self, happening: &Happening, now: Timestamp) -> Vec<Message> {
        match happening {
            Happening::Object(incident) => vec![self.of_incident(incident, now)],
            Happening::Braked { namespace, drifting, declared } => {
                self.braked.entry(namespace.clone()).or_insert(now);
                let detail = format!("{drifting} of {declared} declared objects drift");
                vec![Message {
                    namespace: namespace.clone(),
                    detail: Some(detail),
                    ..Message::new(Subject::Braked, now)
                }]
            }
            Happening::Eased { namespace } => {
                let since = self.braked.remove(namespace).unwrap_or(now);
                vec![Message {
                    namespace: namespace.clone(),
                    since,
                    ..Message::new(Subject::BrakeReleased, now)
                }]
            }
        }
    }

    /// The messages about a new report of a release; without a report the release is gone.
    pub(super) fn reported(
        &mut self,
        release: &ReleaseId,
        report: Option<&ReleaseReport>,
        now: Timestamp,
    ) -> Vec<Message> {
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

    fn of_incident(&mut self, incident: &Incident, now: Timestamp) -> Message {
        let Incident { release, revision, drifted } = incident;
        let Drifted { object, since, .. } = drifted;
        let known = self.of_releases.entry(release.clone()).or_default();
        known.revision = *revision;
        let subject = match &drifted.repaired {
            Some(Ok(())) => Subject::Repaired,
            Some(Err(_)) => Subject::NotRepaired,
            None => Subject::Drifted,
        };
        let detail = match &drifted.repaired {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.as_str()),
            None => drifted.kept.as_deref(),
        };
        if subject == Subject::Repaired {
            known.drifted.remove(object);
        } else {
            known.drifted.insert(object.clone(), *since);
        }
        Message {
            since: *since,
            drift: Some(drifted.kind.as_str()),
            fields: drifted.findings.clone(),
            by: drifted.by.clone(),
            detail: detail.map(str::to_owned),
            ..of(subject, release, *revision, Some(object), now)
        }
    }
}

impl OfRelease {
    fn is_empty(&self) -> bool {
        self.drifted.is_empty() && self.contested.is_empty() && self.stuck.is_none()
    }

    /// The messages about drifts that ended without a repair of the guard.
    fn drift_ended(&mut self, release: &ReleaseId, report: &ReleaseReport, now: Timestamp) -> Vec<Message> {
        if self.drifted.is_empty() {
            return Vec::new();
        }
        let drifting = report.drifted.iter().filter(|it| it.state() != ObjectState::Allowed);
        let drifting: BTreeSet<_> = drifting.map(|it| &it.object).collect();
        let ended: Vec<_> = self.drifted.extract_if(.., |object, _| !drifting.contains(object)).collect();
        self.each(Subject::DriftEnded, release, ended, now)
    }

    /// The messages about contests that began or ended.
    fn contested(&mut self, release: &ReleaseId, report: &ReleaseReport, now: Timestamp) -> Vec<Message> {
        let contested = report.drifted.iter().filter_map(|it| Some((&it.object, it.contested_by.as_ref()?)));
        let contested: BTreeMap<_, _> = contested.collect();
        let ended: Vec<_> =
            self.contested.extract_if(.., |object, _| !contested.contains_key(object)).collect();
        let mut messages = self.each(Subject::ContestEnded, release, ended, now);
        for (object, by) in contested {
            if self.contested.insert(object.clone(), now).is_none() {
                let by = Some(by.clone()).filter(|by| !by.is_empty());
                let message = of(Subject::Contested, release, self.revision, Some(object), now);
                messages.push(Message { by, ..message });
            }
        }
        messages
    }

    /// The message that a Helm operation is stuck, or no longer stuck.
    fn stuck(&mut self, release: &ReleaseId, is_stuck: bool, now: Timestamp) -> Option<Message> {
        let (subject, since) = match (self.stuck, is_stuck) {
            (None, true) => {
                self.stuck = Some(now);
                (Subject::OperationStuck, now)
            }
            (Some(since), false) => {
                self.stuck = None;
                (Subject::OperationEnded, since)
            }
            _ => return None,
        };
        Some(Message { since, ..of(subject, release, self.revision, None, now) })
    }

    /// The messages that all conditions ended, because the release is gone.
    fn ended(mut self, release: &ReleaseId, now: Timestamp) -> Vec<Message> {
        let (drifted, contested) = (std::mem::take(&mut self.drifted), std::mem::take(&mut self.contested));
        let mut messages = self.each(Subject::ContestEnded, release, contested, now);
        messages.extend(self.each(Subject::DriftEnded, release, drifted, now));
        messages.extend(self.stuck(release, false, now));
        messages
    }

    fn each(
        &self,
        subject: Subject,
        release: &ReleaseId,
        objects: impl IntoIterator<Item = (Arc<ObjectId>, Timestamp)>,
        now: Timestamp,
    ) -> Vec<Message> {
        let message = |(object, since): (Arc<ObjectId>, _)| Message {
            since,
            ..of(subject, release, self.revision, Some(&object), now)
        };
        objects.into_iter().map(message).collect()
    }
}

fn of(
    subject: Subject,
    release: &ReleaseId,
    revision: u64,
    object: Option<&ObjectId>,
    now: Timestamp,
) -> Message {
    Message {
        release: Some(release.clone()),
        revision: Some(revision),
        object: object.cloned(),
        ..Message::new(subject, now)
    }
}

#[cfg(test)]
mod tests;
