//! Records DriftAllowances in the ledger and notifies receivers: when each one opens, before it ends, and when it does.
//!
//! Entry point: [`Permitting::run`]. Every guard of a cluster sees the same allowances, also after a restart.
//! The ledger stores each opening and each end once. An allowance that ends while no guard runs is not
//! reported.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Permitted, Row};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Message, Subject};
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::resolver::PolicyResolver;

/// How long before its end an exception is announced; for a short one, a quarter of its time.
const ENDING: SignedDuration = SignedDuration::from_hours(1);

/// An exception that is older has been announced: a process that starts finds it.
const OLD: SignedDuration = SignedDuration::from_mins(10);

/// The longest pause between looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// The ends that are still to be announced, by the version of the allowance.
type Ending = BTreeMap<(String, i64), (Timestamp, Message)>;

/// Records the history of allowances.
pub(super) struct Permitting {
    pub(super) allowances: Arc<Allowances>,
    pub(super) releases: Arc<Releases>,
    pub(super) ledger: Ledger,
    pub(super) notifiers: Notifiers,
    pub(super) resolver: Arc<PolicyResolver>,
}

impl Permitting {
    /// Records openings and ends until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let changes = self.allowances.changes();
        let mut told: HashMap<ObjectId, Vec<Arc<Allowance>>> = HashMap::new();
        let mut ending = Ending::new();
        loop {
            let next = ending.values().map(|(at, _)| *at).min();
            let object = tokio::select! {
                () = stop.cancelled() => return,
                object = changes.next() => object,
                () = until(next) => {
                    let now = Timestamp::now();
                    for (_, (_, message)) in ending.extract_if(.., |_, (at, _)| *at <= now) {
                        self.send(Message { at: now, ..message });
                    }
                    continue;
                }
            };
            let open = self.allowances.named(&object);
            let before = told.remove(&object).unwrap_or_default();
            for allowance in before.iter().filter(|it| !open.iter().any(|other| same(it, other))) {
                ending.remove(&allowance.version);
                self.record(&object, allowance, Permitted::Closed);
            }
            for allowance in open.iter().filter(|it| !before.iter().any(|other| same(it, other))) {
                let Some(opened) = self.record(&object, allowance, Permitted::Opened) else { continue };
                let at = announced_at(&opened, allowance.until);
                if at > Timestamp::now() {
                    let message = Message { subject: Subject::ExceptionEnding, ..opened };
                    ending.insert(allowance.version.clone(), (at, message));
                }
            }
            if !open.is_empty() {
                told.insert(object, open);
            }
        }
    }

    /// Records an opening or an end, and tells of it. Gives the message, unless the allowance is none for this object.
    fn record(&self, object: &ObjectId, allowance: &Allowance, permitted: Permitted) -> Option<Message> {
        let release = concerned(&self.releases, object, allowance);
        // Without a namespace it may apply to two objects, and is reported for one: that of a release, if there is one.
        let is_of_release = |other: &ObjectId| concerned(&self.releases, other, allowance).is_some();
        let is_other = object.namespace != allowance.object.namespace;
        if release.is_none() && (is_other || allowance.objects().iter().any(is_of_release)) {
            return None;
        }
        let now = Timestamp::now();
        let message = message(now, release.clone(), object, allowance, permitted);
        if now.duration_since(message.at) <= OLD {
            self.send(message.clone());
        }
        self.ledger.record(Row::allowance(now, release, object, allowance, permitted));
        Some(message)
    }

    fn send(&self, message: Message) {
        let policy = message.release.as_ref().map(|release| self.resolver.of(release));
        let names = policy.as_ref().map(|policy| policy.notify.as_slice()).unwrap_or_default();
        self.notifiers.send(names, message);
    }
}

/// When the end of an exception is announced.
fn announced_at(opened: &Message, until: Timestamp) -> Timestamp {
    let lead = (until.duration_since(opened.since) / 4).clamp(SignedDuration::ZERO, ENDING);
    until.checked_sub(lead).unwrap_or(until)
}

/// Waits until that time, by a clock that may be set meanwhile; forever without one.
async fn until(at: Option<Timestamp>) {
    let Some(at) = at else { return std::future::pending().await };
    let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(left.min(LOOK)).await;
}

/// The notification of an allowance that begins or ends.
fn message(
    now: Timestamp,
    release: Option<(ReleaseId, u64)>,
    object: &ObjectId,
    allowance: &Allowance,
    permitted: Permitted,
) -> Message {
    let Allowance { until, reason, by, version: (uid, generation), created, .. } = allowance;
    let since = created.filter(|_| *generation <= 1).unwrap_or(now);
    let (subject, at) = match permitted {
        Permitted::Opened => (Subject::ExceptionOpened, since),
        Permitted::Closed => (Subject::ExceptionClosed, now),
    };
    let (release, revision) = release.unzip();
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Message {
        since,
        release,
        revision,
        object: Some(object.clone()),
        namespace: object.namespace.as_deref().map(str::to_owned),
        by: said(&by.user),
        detail: said(reason),
        until: Some(*until),
        key: uid.clone(),
        ..Message::new(subject, at)
    }
}

fn same(one: &Allowance, other: &Allowance) -> bool {
    one.version == other.version
}

/// The release that declares the object, where the allowance counts for it.
fn concerned(releases: &Releases, object: &ObjectId, allowance: &Allowance) -> Option<(ReleaseId, u64)> {
    let index = releases.index().read();
    let claims = index.claims(object);
    let release = claims.iter().find(|release| allowance.is_for(object, &release.id))?;
    Some((release.id.clone(), release.state.revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_exception_is_announced_an_hour_or_a_quarter_before() {
        let begin: Timestamp = "2026-11-23T10:00:00Z".parse().unwrap();
        let at = |minutes: i64| begin + SignedDuration::from_mins(minutes);
        let opened = Message::new(Subject::ExceptionOpened, begin);
        for (lasts, announced) in [(8 * 60, 7 * 60), (60, 45), (4, 3), (0, 0), (-4, -4)] {
            assert_eq!(announced_at(&opened, at(lasts)), at(announced), "{lasts}");
        }
    }
}
