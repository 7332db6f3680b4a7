//! The fresh look before a refusal.
//!
//! Entry point: `Looker::judge`. Invariant: a verdict that refuses was judged
//! by records that the API server gave after the request arrived; where a
//! refusal hangs on spelling, or meets an operation that is under way, the
//! arbiter was asked. If a look fails, a refusal becomes an error and the
//! webhook's `failurePolicy` decides; `Record` and `Warn` never fail a request.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::Value;
use thiserror::Error;
use tokio::time::Instant;

use super::case::{Aspect, Case, Judgement};
use super::validate::{LOOK, now};
use crate::cluster::allowances::Allowances;
use crate::cluster::arbiter::{Arbiter, ArbiterError, Question};
use crate::cluster::autoscalers::Autoscalers;
use crate::cluster::call::CallError;
use crate::cluster::kinds::Kinds;
use crate::cluster::objects::Objects;
use crate::cluster::releases::{LookError, Releases};
use crate::helm::index::Index;
use crate::model::{ObjectId, ReleaseId};
use crate::verdict::claims::is_local;
use crate::verdict::edit::{Evidence, Outcome, Owner, Rules};
use crate::verdict::exceptions::Circumstances;

/// How many times a verdict is judged anew because a look changed what it
/// rests on.
const ROUNDS: usize = 8;

/// Where releases are known from.
pub enum Truth {
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
    /// For asking who may what.
    pub client: kube::Client,
}

/// Why no verdict could be reached.
#[derive(Debug, Error)]
pub(super) enum Unreached {
    /// The records could not be looked at.
    #[error("the edit could not be judged: {0}")]
    Look(Box<LookError>),
    /// The arbiter could not tell.
    #[error("the edit could not be judged: {0}")]
    Arbitrate(Box<ArbiterError>),
    /// It could not be asked whether the editor may have what he asks for.
    #[error("the edit could not be judged, since the editor's rights cannot be read: {0}")]
    Ask(Box<CallError>),
    /// The object's metadata could not be read.
    #[error("the edit could not be judged, since the object's owner cannot be read: {0}")]
    Own(Box<CallError>),
}

/// Looks on behalf of one review.
pub(super) struct Looker<'a> {
    pub(super) truth: &'a Truth,
    pub(super) rules: &'a Rules<'a>,
    pub(super) deadline: Instant,
}

impl Truth {
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
        Circumstances { allowances, autoscalers: live.autoscalers.of(object, &index), departed: None }
    }
}

impl<'a> Looker<'a> {
    /// The cluster, where there is one.
    pub(super) fn live(&self) -> Option<&'a Live> {
        match self.truth {
            Truth::Cluster(live) => Some(live),
            Truth::Fixed(_) => None,
        }
    }
}

impl Looker<'_> {
    /// Judges `case`, with as many looks as a verdict other than a plain allow
    /// takes.
    pub(super) async fn judge<'c>(&self, case: Case<'c>) -> Result<(Judgement, Case<'c>), Unreached> {
        let judgement = self.judged(&case, Evidence::None);
        match self.truth {
            // Kept apart from the future of every request, which is moved around.
            Truth::Cluster(live) if judgement.verdict.outcome != Outcome::Allow => {
                Box::pin(self.settled(live, judgement, case)).await
            }
            Truth::Fixed(_) if judgement.verdict.arguable => {
                Ok((self.judged(&case, Evidence::Nowhere), case))
            }
            Truth::Cluster(_) | Truth::Fixed(_) => Ok((judgement, case)),
        }
    }

    /// Judges anew until a look changes nothing, then by the arbiter.
    async fn settled<'c>(
        &self,
        live: &Live,
        mut judgement: Judgement,
        mut case: Case<'c>,
    ) -> Result<(Judgement, Case<'c>), Unreached> {
        let mut looked: Vec<ReleaseId> = Vec::new();
        for _ in 0..ROUNDS {
            if judgement.verdict.outcome == Outcome::Allow {
                return Ok((judgement, case));
            }
            match self.look(live, &mut case, &judgement, &mut looked).await {
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
                let unsettled = self.judged(&case, Evidence::Unavailable);
                let hangs_on_spelling = unsettled
                    .verdict
                    .grounds
                    .as_ref()
                    .is_some_and(|grounds| grounds.fields.iter().all(|field| field.doubt));
                if unsettled.verdict.outcome.is_refusal() && hangs_on_spelling {
                    return unless_refused(unsettled, case, Unreached::Arbitrate(Box::new(error)));
                }
                judgement = unsettled;
            }
        }
        Ok((judgement, case))
    }

    /// Judges `case` by what is known now, without a look.
    pub(super) fn judged(&self, case: &Case<'_>, evidence: Evidence<'_>) -> Judgement {
        let mut circumstances = self.truth.circumstances(&case.subject.object);
        circumstances.allowances.extend(case.granted.clone());
        case.judge(self.truth.index(), &circumstances, self.rules, evidence, now())
    }

    /// Looks at whatever the judgement rests on and was not looked at yet. Says
    /// whether there was anything.
    async fn look(
        &self,
        live: &Live,
        case: &mut Case<'_>,
        judgement: &Judgement,
        looked: &mut Vec<ReleaseId>,
    ) -> Result<bool, Unreached> {
        let mut any = false;
        for release in judgement.rests_on.iter().take(ROUNDS) {
            if !looked.contains(release) {
                live.releases
                    .fresh(release, self.left())
                    .await
                    .map_err(|error| Unreached::Look(Box::new(error)))?;
                looked.push(release.clone());
                any = true;
            }
        }
        // A Scale carries no annotations, and a release's word about objects
        // in other namespaces counts only if the object agrees.
        let foreign = || judgement.claims.iter().any(|claim| !is_local(claim, &case.subject.object));
        if matches!(case.subject.aspect, Aspect::Scale(_)) && case.owner == Owner::Unknown && foreign() {
            let owner = self.owner(live, case, judgement).await;
            case.owner = owner.map_err(|error| Unreached::Own(Box::new(error)))?;
            any = true;
        }
        Ok(any)
    }

    async fn owner(&self, live: &Live, case: &Case<'_>, judgement: &Judgement) -> Result<Owner, CallError> {
        let object = &case.subject.object;
        let declared = judgement.claims.iter().find_map(|claim| claim.declared(object));
        let target = declared.and_then(|declared| live.kinds.target(object, &declared.version));
        let Some(target) = target else { return Ok(Owner::Nobody) };
        let sighting = live.objects.sight(&target).await?;
        Ok(sighting.and_then(|sighting| sighting.release).map_or(Owner::Nobody, Owner::Release))
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
        let latest = claim.objects.get(object)?.latest.is_some();
        let revision = match &claim.baseline {
            Some(baseline) if !latest => baseline.revision,
            _ => claim.state.revision,
        };
        let question = Question {
            object: object.clone(),
            uid: judgement.uid.clone(),
            release: release.clone(),
            revision,
        };
        Some(arbiter.canonical(&question, self.left()).await)
    }

    /// How long another call may take.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(LOOK)
    }
}

/// A failed look turns a refusal into an error and nothing else.
fn unless_refused<'c>(
    judgement: Judgement,
    case: Case<'c>,
    error: Unreached,
) -> Result<(Judgement, Case<'c>), Unreached> {
    if judgement.verdict.outcome.is_refusal() { Err(error) } else { Ok((judgement, case)) }
}
