//! Puts one drift right, or says why not.
//!
//! Entry point: [`attempt`]; `recreate` and `restore` do the work. Invariant:
//! the object is read first, then the record, then the object is written: a
//! record that was read before could be one that Helm has left behind since.
//! Helm's own manager and way of writing, or the next upgrade meets a conflict.

mod braking;
mod confirm;
mod examine;
mod fixed;
mod recreate;
mod restore;
mod towards;
mod trouble;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

pub(super) use self::braking::ease;
pub(super) use self::towards::{Astray, Towards};
use super::Shared;
use super::pass::{RETRY, UNSERVED};
use crate::cluster::objects::WriteError;
use crate::helm::release::{Declared, Release};
use crate::metrics::Repair;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::Policy;
use crate::policy::agreement::Agreement;
use crate::policy::order::Ticket;
use crate::reconcile::backoff::Backoff;
use crate::reconcile::brake::Brake;
use crate::reconcile::drifts::{Drift, Life, Version};
use crate::reconcile::plan::{Case, Plan, plan};
use crate::reconcile::report::DriftKind;
use crate::reconcile::rollout::Rollouts;
use crate::verdict::edit::Finding;
use crate::verdict::exceptions::{Circumstances, Exceptions};

/// When an object is looked at again whose release moved on meanwhile.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// How long a look at the records may take.
const LOOK: Duration = Duration::from_secs(10);

/// Why a doubt stays that a dry run has not settled.
const IN_DOUBT: &str = "a dry run does not tell";

/// What repairs remember.
#[derive(Default)]
pub(super) struct Repairer {
    pub(super) brake: Mutex<Brake>,
    pub(super) backoff: Mutex<Backoff>,
    pub(super) rollouts: Mutex<Rollouts>,
    /// The fields of an object that cannot be changed in place, for a revision.
    fixed: Mutex<HashMap<ObjectId, (u64, Vec<String>)>>,
    /// What was given back once: the object, from whom, in which revision.
    returned: Mutex<HashSet<(ObjectId, String, u64)>>,
}

/// What became of one object.
pub(super) enum Done {
    /// There is nothing left to do.
    Settled,
    /// The object was put right just now.
    Repaired,
    /// Another pass after this time.
    Later(Duration),
}

/// One object of one release to put right.
pub(super) struct Task<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) id: &'a ReleaseId,
    pub(super) object: &'a ObjectId,
    /// A person asked for it.
    pub(super) asked: bool,
    /// What they may write themself, where the API server has said so.
    pub(super) ticket: Option<&'a Ticket>,
    /// The revision to repair towards, where the last operation failed.
    pub(super) towards: Option<&'a Towards>,
}

/// What is known and in force when a task is looked at.
#[derive(Clone)]
struct Situation {
    release: Arc<Release>,
    declared: Arc<Declared>,
    policy: Arc<Policy>,
    circumstances: Circumstances,
    life: Option<Life>,
    drift: Drift,
    plan: Plan,
    /// What the live object was seen to agree with of what is declared.
    agreement: Option<Agreement>,
    /// Who ordered the repair and may write the object themself.
    ordered_by: Option<String>,
    /// The object was seen with nothing added below sealed paths.
    was_without_additions: bool,
}

/// Puts the object right if that may be done now.
pub(super) async fn attempt(task: &Task<'_>) -> Done {
    let Some(situation) = task.situation() else { return Done::Settled };
    let Task { shared, id, object, asked, .. } = task;
    task.mark_unconfirmed(false);
    task.mark_allowed(&situation);
    match situation.plan {
        Plan::Wait => match situation.exceptions(object).next_change() {
            Some(until) => Done::Later(from_now(until)),
            None => Done::Settled,
        },
        Plan::Hold(left) => {
            task.keep(Some("its release's record was not made by Helm before the guard's eyes"));
            Done::Later(Duration::try_from(left).unwrap_or(RETRY))
        }
        Plan::Report(reason) => task.report(&situation, reason).await,
        Plan::Unconfirmed => task.leave_unconfirmed(&situation).await,
        Plan::Repair if shared.guard.read_only => {
            task.report(&situation, "the guard was told to write nothing").await
        }
        Plan::Repair if shared.suspended.lock().contains(*id) && !asked => {
            task.keep(Some("repairs of its release are suspended"));
            Done::Settled
        }
        // Nothing is found yet, and nothing is written for a doubt.
        Plan::Repair if situation.drift.doubt => task.report(&situation, IN_DOUBT).await,
        Plan::Repair => {
            if *asked {
                shared.repairer.backoff.lock().forget(object);
            } else if let Some(wait) = task.waits() {
                return Done::Later(wait);
            }
            task.found(&situation.drift);
            match situation.drift.kind {
                DriftKind::Missing => task.recreate(&situation).await,
                _ => task.restore(situation.drift.since).await,
            }
        }
    }
}

impl Situation {
    /// What of the object may differ now.
    fn exceptions(&self, object: &ObjectId) -> Exceptions<'_> {
        let Self { release, declared, policy, circumstances, .. } = self;
        Exceptions::new((object, &release.id), declared, policy, circumstances, None, Timestamp::now())
    }
}

impl Task<'_> {
    fn situation(&self) -> Option<Situation> {
        let drift = self.shared.drifts.lock().get_mut(self.id, self.object)?.clone();
        self.situation_of(drift)
    }

    fn situation_of(&self, drift: Drift) -> Option<Situation> {
        let release = self.release()?;
        let declared = Arc::clone(release.declared(self.object)?);
        let policy = self.shared.guard.book.of(self.id);
        let now = Timestamp::now();
        let circumstances = self.shared.circumstances(&release, self.object);
        let exceptions =
            Exceptions::new((self.object, &release.id), &declared, &policy, &circumstances, None, now);
        let may_be_gone = exceptions.of_deletion().is_some();
        let scaled = exceptions.is_autoscaled().then_some(declared.scale.as_ref()).flatten();
        let (life, first_digest, agreement, was_without_additions) = {
            let drifts = self.shared.drifts.lock();
            let agreement = drifts.agreement(self.id, self.object, &declared).cloned();
            let clean = drifts.is_seen_without_additions(self.id, self.object, &declared);
            (drifts.life(self.object).cloned(), self.first_digest(&release, &drifts), agreement, clean)
        };
        let ordered_by = self.ordered_by(&release, drift.kind);
        let case = Case {
            release: &release,
            object: self.object,
            kind: drift.kind,
            life: life.as_ref(),
            first_digest,
            policy: &policy,
            may_be_gone,
            asked: self.asked,
            ordered: ordered_by.is_some(),
            agreement: agreement.as_ref(),
            scaled,
        };
        let plan = plan(&case, now);
        Some(Situation {
            release,
            declared,
            policy,
            circumstances,
            life,
            drift,
            plan,
            agreement,
            ordered_by,
            was_without_additions,
        })
    }

    /// Nobody serves the object's kind, so nothing can be written.
    fn is_unserved(&self, situation: &Situation) -> Done {
        self.say(&situation.release, "the cluster does not serve its kind");
        Done::Later(UNSERVED)
    }

    /// Counts a drift once.
    fn found(&self, drift: &Drift) {
        let mut drifts = self.shared.drifts.lock();
        let known = drifts.get_mut(self.id, self.object);
        if known.is_some_and(|known| !std::mem::replace(&mut known.counted, true)) {
            self.shared.guard.metrics.found(drift.kind.into());
        }
    }

    /// Notes why the object is not repaired, or that it is.
    fn keep(&self, reason: Option<&str>) {
        if let Some(drift) = self.shared.drifts.lock().get_mut(self.id, self.object) {
            drift.kept = reason.map(str::to_owned);
        }
    }

    /// Says once that a drift stays. Of a doubt the arbiter is asked first.
    async fn report(&self, situation: &Situation, reason: &str) -> Done {
        if !situation.drift.doubt {
            self.say(&situation.release, reason);
            return Done::Settled;
        }
        match self.settle_doubt().await {
            Ok(done) => done,
            Err(why) => {
                self.say(&situation.release, why.as_deref().unwrap_or(reason));
                Done::Settled
            }
        }
    }

    /// Says once that a drift stays.
    fn say(&self, release: &Release, reason: &str) {
        let Self { shared, id, object, .. } = self;
        let drift = {
            let mut drifts = shared.drifts.lock();
            let Some(drift) = drifts.get_mut(id, object) else { return };
            drift.kept = Some(reason.to_owned());
            if std::mem::replace(&mut drift.reported, true) {
                return;
            }
            drift.clone()
        };
        if drift.doubt {
            tracing::warn!(
                release.id = %id, drift.object = %object,
                "{object} may not be as Helm release {id} declares it, and only a dry run could tell: {reason}{}",
                fields(&drift.findings)
            );
            return;
        }
        self.found(&drift);
        shared.guard.metrics.repaired(drift.kind.into(), Repair::Reported);
        super::report::tell(shared, release, object, &drift);
        let by = drift.by.as_deref().unwrap_or_default();
        match drift.kind {
            DriftKind::Missing => tracing::warn!(
                release.id = %id, drift.object = %object,
                "{object}, which Helm release {id} declares, is missing and is not re-created: {reason}"
            ),
            _ => tracing::warn!(
                release.id = %id, drift.object = %object, drift.kind = drift.kind.as_str(), drift.by = by,
                "{object} is not as Helm release {id} declares it and is not repaired: {reason}{}",
                fields(&drift.findings)
            ),
        }
    }

    /// A write did not happen.
    fn refused(&self, error: &WriteError) -> Done {
        match error {
            // The next leader does it, or this one when it leads again.
            WriteError::NotLeading => Done::Later(RETRY),
            error => self.failed(&error.to_string()),
        }
    }

    /// An attempt was made and failed.
    fn failed(&self, reason: &str) -> Done {
        let Self { shared, id, object, .. } = self;
        let wait = {
            let mut backoff = shared.repairer.backoff.lock();
            backoff.attempt(object, Timestamp::now());
            backoff.until(object, Timestamp::now()).unwrap_or(RETRY)
        };
        let drift = {
            let mut drifts = shared.drifts.lock();
            let Some(drift) = drifts.get_mut(id, object) else { return Done::Later(wait) };
            drift.repaired = Some(Err(reason.to_owned()));
            drift.kept = None;
            drift.clone()
        };
        shared.guard.metrics.repaired(drift.kind.into(), Repair::Failed);
        if let Some(release) = shared.release(id) {
            super::report::tell(shared, &release, object, &drift);
        }
        tracing::warn!(
            release.id = %id, drift.object = %object, drift.kind = drift.kind.as_str(),
            "{object}, which Helm release {id} declares, could not be repaired: {reason}"
        );
        Done::Later(wait)
    }

    /// A drift was put right.
    fn repaired(&self, situation: &Situation, outcome: Repair, attempts: u32, contested: bool) {
        let Self { shared, id, object, .. } = self;
        let confirmed_by = situation.ordered_by.clone();
        let drift =
            Drift { repaired: Some(Ok(())), kept: None, contested, confirmed_by, ..situation.drift.clone() };
        let (kind, revision) = (drift.kind, situation.release.state.revision);
        shared.guard.metrics.repaired(kind.into(), outcome);
        shared.guard.metrics.repaired_after(kind.into(), Timestamp::now().duration_since(drift.since));
        super::report::tell(shared, &situation.release, object, &drift);
        let by = drift.by.as_deref().unwrap_or_default();
        tracing::info!(
            release.id = %id, release.revision = revision, drift.object = %object, drift.kind = kind.as_str(),
            drift.by = by, attempts, "{object}, which Helm release {id} declares, {}{}",
            match kind {
                DriftKind::Missing => "was missing and is re-created",
                DriftKind::Ownership => "was held by another manager and is Helm's again",
                _ => "was changed and is as declared again",
            },
            fields(&drift.findings)
        );
    }
}

/// A list of fields for the end of a sentence.
fn fields(findings: &[Finding]) -> String {
    let named: Vec<_> = findings.iter().take(8).map(crate::verdict::message::live_field).collect();
    match (named.is_empty(), findings.len().saturating_sub(named.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", named.join("; ")),
        (false, more) => format!(": {}; and {more} more", named.join("; ")),
    }
}

/// The version of an object as it was written.
fn version_of(written: &Value) -> Version {
    Version::of(written.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default())
}

fn from_now(time: Timestamp) -> Duration {
    time.duration_since(Timestamp::now()).try_into().unwrap_or(AGAIN)
}
