//! The fresh look before a refusal.
//!
//! Entry point: `Looker::judge`. Invariant: a verdict that refuses was judged
//! by records that the API server gave after the request arrived; where a
//! refusal hangs on spelling, or meets an operation that is under way, the
//! arbiter was asked. Only an API server that does not answer makes an error of
//! a refusal, and the webhook's `failurePolicy` decides: what it says, and what
//! anybody's data does, leaves the refusal as it is. `Record` and `Warn` never
//! fail a request.

mod outage;
mod owner;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::time::Instant;

pub(super) use self::outage::Unreached;
use super::case::{Basis, Case, Judgement};
use crate::client::objects::Objects;
use crate::helm::index::Index;
use crate::mirror::allowances::Allowances;
use crate::mirror::arbiter::{Arbiter, ArbiterError, Question};
use crate::mirror::autoscalers::Autoscalers;
use crate::mirror::kinds::Kinds;
use crate::mirror::releases::Releases;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::settled::SettledValues;
use crate::verdict::circumstances::Circumstances;
use crate::verdict::edit::{Evidence, Outcome, Rules};

/// How many times a verdict is judged anew because a look changed what it
/// rests on.
const ROUNDS: usize = 8;

/// How many releases are looked at for one review. All of them could be forged
/// only by somebody who writes records in the object's own namespace.
pub(super) const LOOKS: usize = 8;

/// How long a look may take when the deadline leaves more.
const LOOK: Duration = Duration::from_secs(5);

/// How long a look may take at a release that the new object names and that
/// decides nothing yet.
const NAMED: Duration = Duration::from_millis(500);

/// Where releases are known from.
pub enum ReleaseSource {
    /// A cluster, whose records the index follows.
    Cluster(Box<Live>),
    /// Files that were read at the start: there is nothing to look at afresh.
    Fixed(RwLock<Index>),
}

/// A cluster as the webhook looks at it.
pub struct Live {
    /// The releases.
    pub releases: Arc<Releases>,
    /// The arbiter; none where every write is forgone, dry runs included.
    pub arbiter: Option<Arc<Arbiter>>,
    /// Single objects.
    pub objects: Objects,
    /// The kinds that the cluster serves.
    pub kinds: Arc<Kinds>,
    /// What is allowed for a time.
    pub allowances: Arc<Allowances>,
    /// What is scaled by autoscalers.
    pub autoscalers: Arc<Autoscalers>,
    /// What dry runs have settled.
    pub settled: Arc<SettledValues>,
    /// For asking who may what.
    pub client: kube::Client,
}

/// Looks on behalf of one review.
pub(super) struct Looker<'a> {
    pub(super) source: &'a ReleaseSource,
    pub(super) rules: &'a Rules<'a>,
    pub(super) deadline: Instant,
}

impl ReleaseSource {
    /// What is known of releases now.
    pub fn index(&self) -> &RwLock<Index> {
        match self {
            Self::Cluster(live) => live.releases.index(),
            Self::Fixed(index) => index,
        }
    }

    /// What is known of an object beside its releases.
    fn circumstances(&self, object: &ObjectId) -> Circumstances {
        let Self::Cluster(live) = self else { return Circumstances::default() };
        let index = live.releases.index().read();
        let mut allowances = Vec::new();
        for claim in index.claims(object) {
            for allowance in live.allowances.of(object, &claim.id) {
                if !allowances.contains(&allowance) {
                    allowances.push(allowance);
                }
            }
        }
        let (autoscalers, settled) = (live.autoscalers.of(object, &index), live.settled.of(object));
        Circumstances { allowances, autoscalers, departed: None, settled }
    }
}

impl<'a> Looker<'a> {
    /// The cluster, where there is one.
    pub(super) fn live(&self) -> Option<&'a Live> {
        match self.source {
            ReleaseSource::Cluster(live) => Some(live),
            ReleaseSource::Fixed(_) => None,
        }
    }
}

impl Looker<'_> {
    /// Judges `case`, with as many looks as a verdict other than a plain allow
    /// takes.
    pub(super) async fn judge<'c>(&self, case: Case<'c>) -> Result<(Judgement, Case<'c>), Unreached> {
        let judgement = self.judged(&case, Evidence::None);
        match self.source {
            // Kept apart from the future of every request, which is moved around.
            ReleaseSource::Cluster(live)
                if judgement.verdict.outcome != Outcome::Allow || owner::is_wanted(&case, &judgement) =>
            {
                Box::pin(self.settled(live, judgement, case)).await
            }
            ReleaseSource::Fixed(_) => Ok(self.settled_by_itself(judgement, case)),
            ReleaseSource::Cluster(_) => Ok((judgement, case)),
        }
    }

    /// The same without anybody to ask.
    fn settled_by_itself<'c>(&self, judgement: Judgement, mut case: Case<'c>) -> (Judgement, Case<'c>) {
        if owner::is_wanted(&case, &judgement) {
            case.owner = self.assumed_owner(&case, &judgement);
        } else if !judgement.verdict.arguable {
            return (judgement, case);
        }
        (self.judged(&case, Evidence::Nowhere), case)
    }

    /// Judges anew until a look changes nothing, then by the arbiter.
    async fn settled<'c>(
        &self,
        live: &Live,
        mut judgement: Judgement,
        mut case: Case<'c>,
    ) -> Result<(Judgement, Case<'c>), Unreached> {
        if owner::is_wanted(&case, &judgement) {
            let learned = self.learn_owner(live, &mut case, &judgement).await;
            judgement = self.judged(&case, Evidence::None);
            if let Err(error) = learned.or_else(Unreached::unless_answered) {
                return unless_refused(judgement, case, error);
            }
        }
        let mut looked: Vec<ReleaseId> = Vec::new();
        for _ in 0..ROUNDS {
            if judgement.verdict.outcome == Outcome::Allow {
                return Ok((judgement, case));
            }
            match self.look(live, &judgement, &mut looked).await {
                Ok(false) => break,
                Ok(true) => judgement = self.judged(&case, Evidence::None),
                Err(error) => return unless_refused(judgement, case, error),
            }
        }
        if !judgement.verdict.arguable {
            return Ok((judgement, case));
        }
        match self.arbitrate(live, &case, &judgement).await {
            None => judgement = self.judged(&case, Evidence::Nowhere),
            Some(Ok(canonical)) => {
                judgement = self.judged(&case, Evidence::Canonical(&canonical));
            }
            Some(Err(error)) => {
                tracing::warn!(edit.object = %case.subject.object, "the arbiter could not tell: {error}");
                judgement = self.judged(&case, Evidence::Unavailable);
                if hangs_on_spelling(&judgement) {
                    judgement.message.add(unchecked(&error));
                    let error = Unreached::Arbitrate(Box::new(error));
                    if error.is_outage() {
                        return unless_refused(judgement, case, error);
                    }
                }
            }
        }
        Ok((judgement, case))
    }

    /// Judges `case` by what is known now, without a look.
    pub(super) fn judged(&self, case: &Case<'_>, evidence: Evidence<'_>) -> Judgement {
        let mut circumstances = self.source.circumstances(&case.subject.object);
        circumstances.allowances.extend(case.granted.clone());
        let (index, circumstances) = (self.source.index(), &circumstances);
        case.judge(Basis { index, circumstances, rules: self.rules, evidence, now: Timestamp::now() })
    }

    /// Looks at whatever the judgement rests on and was not looked at yet. Says
    /// whether there was anything.
    async fn look(
        &self,
        live: &Live,
        judgement: &Judgement,
        looked: &mut Vec<ReleaseId>,
    ) -> Result<bool, Unreached> {
        let before = looked.len();
        for release in &judgement.rests_on {
            if looked.len() < LOOKS && !looked.contains(release) {
                looked.push(release.clone());
                let fresh = live.releases.fresh(release, self.left()).await;
                fresh.map(drop).or_else(|error| Unreached::Look(Box::new(error)).unless_answered())?;
            }
        }
        if let Some(named) = judgement.named.as_ref().filter(|named| !looked.contains(named)) {
            looked.push(named.clone());
            // The editor chooses it, so no failure with it excuses the edit.
            if let Err(error) = live.releases.fresh(named, (self.left() / 2).min(NAMED)).await {
                tracing::debug!("a release that an edit names could not be looked at: {error}");
            }
        }
        Ok(looked.len() > before)
    }

    /// The arbiter's answer; none where there is no arbiter.
    async fn arbitrate(
        &self,
        live: &Live,
        case: &Case<'_>,
        judgement: &Judgement,
    ) -> Option<Result<Arc<Value>, ArbiterError>> {
        let arbiter = live.arbiter.as_ref()?;
        let release = &judgement.verdict.grounds.as_ref()?.release;
        let object = &case.subject.object;
        let claim = judgement.claims.iter().find(|claim| claim.id == *release)?;
        let declarations = claim.objects.get(object)?;
        let (revision, declared) = match (&claim.baseline, &declarations.latest) {
            (Some(baseline), None) => (baseline.revision, declarations.baseline.as_ref()),
            (_, latest) => (claim.state.revision, latest.as_ref()),
        };
        let question = Question {
            object: object.clone(),
            uid: judgement.uid.clone(),
            release: release.clone(),
            revision,
            digest: declared.and_then(|declared| declared.digest),
        };
        Some(arbiter.canonical(&question, self.left()).await)
    }

    /// How long another call may take.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(LOOK)
    }
}

/// An API server that does not answer turns a refusal into an error and nothing else.
fn unless_refused<'c>(
    judgement: Judgement,
    case: Case<'c>,
    error: Unreached,
) -> Result<(Judgement, Case<'c>), Unreached> {
    if judgement.verdict.outcome.is_refusal() { Err(error) } else { Ok((judgement, case)) }
}

/// Whether nothing but the spelling of values is held against the edit.
fn hangs_on_spelling(judgement: &Judgement) -> bool {
    let grounds = judgement.verdict.grounds.as_ref();
    judgement.verdict.outcome.is_refusal()
        && grounds.is_some_and(|grounds| grounds.fields.iter().all(|field| field.doubt))
}

/// What is said where it could not be checked whether a value is only spelled
/// differently.
fn unchecked(error: &ArbiterError) -> String {
    format!("The guard could not check whether the new value means the same as the release's: {error}.")
}
