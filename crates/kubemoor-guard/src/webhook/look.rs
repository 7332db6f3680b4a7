//! Reads the records again before a denial: [`CaseJudge::judge_with_fresh_records`].
//!
//! A denial is based on records that the API server returned after the request arrived; if it depends on the format of
//! a value, or meets a running operation, the arbiter was asked. Only an API server that does not answer turns a denial
//! into an error, so that the webhook's `failurePolicy` decides. Any answer of the API server, a missing permission of
//! the guard, and user data leave the denial as it is, because an error may let the edit pass. `Record` and `Warn`
//! never fail a request.
//!
//! A Scale does not name the release that owns its object, so the owner is looked up too. A claim of another namespace
//! counts only once the object is known to name it. If that cannot be known, such claims may deny but must not allow.
//! The same holds for claims beside one that a policy reserves for its operators.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::case::{Aspect, Judgement, JudgementInputs, ReviewCase};
use crate::LiveCluster;
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::mirror::arbiter::DryRunQuestion;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_policy::resolver::PolicyResolver;
use kubemoor_verdict::claims::depends_on_owner;
use kubemoor_verdict::edit::{DryRunEvidence, EditOutcome, ObjectContext, ObjectOwner, Rules};

/// How often an edit is judged again because a read changed its basis.
const ROUNDS: usize = 8;

/// The maximum number of releases that are read for one review. Only a user who writes records in the object's own
/// namespace could forge all of them.
pub(super) const LOOKS: usize = 8;

/// The longest read, even if the deadline leaves more time.
const LOOK: Duration = Duration::from_secs(5);

/// The longest read of a release that the new object names and that decides nothing yet.
const NAMED: Duration = Duration::from_millis(500);

#[expect(clippy::large_enum_variant, reason = "there is one")]
pub enum ReleaseSource {
    /// A cluster, whose records the index follows.
    Cluster(Arc<LiveCluster>),
    /// Files that were read at the start: there is nothing to read again.
    Fixed(RwLock<Index>),
}

pub(super) struct CaseJudge<'a> {
    pub(super) source: &'a ReleaseSource,
    pub(super) rules: &'a Rules<'a>,
    pub(super) deadline: Instant,
}

impl ReleaseSource {
    pub fn index(&self) -> &RwLock<Index> {
        match self {
            Self::Cluster(live) => live.releases.index(),
            Self::Fixed(index) => index,
        }
    }

    fn circumstances(&self, object: &ObjectId) -> ObjectContext {
        let Self::Cluster(live) = self else { return ObjectContext::default() };
        let index = live.releases.index().read();
        let mut allowances = Vec::new();
        for claim in index.claims(object) {
            for allowance in live.allowances.of_release(object, &claim.id) {
                if !allowances.contains(&allowance) {
                    allowances.push(allowance);
                }
            }
        }
        let (autoscalers, settled) =
            (live.autoscalers.of_workload(object, &index), live.settled.read().get(object));
        ObjectContext { allowances, autoscalers, departed: None, settled }
    }
}

impl<'a> CaseJudge<'a> {
    pub(super) fn live(&self) -> Option<&'a LiveCluster> {
        match self.source {
            ReleaseSource::Cluster(live) => Some(live),
            ReleaseSource::Fixed(_) => None,
        }
    }

    pub(super) fn judge(&self, case: &ReviewCase<'_>, evidence: DryRunEvidence<'_>) -> Judgement {
        let mut circumstances = self.source.circumstances(&case.subject.object);
        circumstances.allowances.extend(case.granted.clone());
        let (index, circumstances) = (self.source.index(), &circumstances);
        case.judge(JudgementInputs {
            index,
            circumstances,
            rules: self.rules,
            evidence,
            now: Timestamp::now(),
        })
    }

    pub(super) fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(LOOK)
    }

    /// Judges again after reads, until a read changes nothing, then with the arbiter's answer; a first judgement that
    /// allows the edit stands.
    ///
    /// # Errors
    /// The API server does not answer, and the edit would be refused.
    pub(super) async fn judge_with_fresh_records(
        &self,
        mut judgement: Judgement,
        case: &mut ReviewCase<'_>,
    ) -> Result<Judgement, JudgementError> {
        let wants_owner = wants_owner(case, &judgement, self.rules.resolver);
        match self.source {
            // Boxed, so that the future of every request stays small.
            ReleaseSource::Cluster(live)
                if judgement.verdict.outcome != EditOutcome::Allow || wants_owner =>
            {
                Box::pin(self.look_at_cluster(live, judgement, case)).await
            }
            ReleaseSource::Cluster(_) => Ok(judgement),
            ReleaseSource::Fixed(_) => {
                if wants_owner {
                    case.owner = self.assumed_owner(case, &judgement);
                }
                if wants_owner || judgement.verdict.arguable {
                    judgement = self.judge(case, DryRunEvidence::Nowhere);
                }
                Ok(judgement)
            }
        }
    }

    async fn look_at_cluster(
        &self,
        live: &LiveCluster,
        mut judgement: Judgement,
        case: &mut ReviewCase<'_>,
    ) -> Result<Judgement, JudgementError> {
        if wants_owner(case, &judgement, self.rules.resolver) {
            let learned = self.learn_owner(live, case, &judgement).await;
            judgement = self.judge(case, DryRunEvidence::None);
            if let Err(error) = learned.or_else(JudgementError::unless_answered) {
                return unless_refused(judgement, error);
            }
        }
        let mut looked: Vec<ReleaseId> = Vec::new();
        for _ in 0..ROUNDS {
            if judgement.verdict.outcome == EditOutcome::Allow {
                return Ok(judgement);
            }
            match self.read_records(live, &judgement, &mut looked).await {
                Ok(false) => break,
                Ok(true) => judgement = self.judge(case, DryRunEvidence::None),
                Err(error) => return unless_refused(judgement, error),
            }
        }
        if !judgement.verdict.arguable {
            return Ok(judgement);
        }
        match self.arbitrate(live, case, &judgement).await {
            None => judgement = self.judge(case, DryRunEvidence::Nowhere),
            Some(Ok(canonical)) => judgement = self.judge(case, DryRunEvidence::Canonical(&canonical)),
            Some(Err(error)) => {
                tracing::warn!(edit.object = %case.subject.object, "the arbiter's dry run failed: {error}");
                judgement = self.judge(case, DryRunEvidence::Unavailable);
                if differs_only_in_format(&judgement) {
                    judgement.message.add(format!(
                        "The guard could not check whether the new value means the same as the release's: {error}."
                    ));
                    let error = JudgementError::Arbitrate(Box::new(error));
                    if error.is_outage() {
                        return unless_refused(judgement, error);
                    }
                }
            }
        }
        Ok(judgement)
    }

    /// Reads the records on which the judgement depends, if not yet done. Returns whether there
    /// were any.
    async fn read_records(
        &self,
        live: &LiveCluster,
        judgement: &Judgement,
        looked: &mut Vec<ReleaseId>,
    ) -> Result<bool, JudgementError> {
        let before = looked.len();
        for release in &judgement.required_releases {
            if looked.len() < LOOKS && !looked.contains(release) {
                looked.push(release.clone());
                let fresh = live.releases.refresh_release(release, self.time_left()).await;
                fresh.map(drop).or_else(|error| JudgementError::Look(Box::new(error)).unless_answered())?;
            }
        }
        if let Some(named) = judgement.named.as_ref().filter(|named| !looked.contains(named)) {
            looked.push(named.clone());
            // The user chooses this release, so a failure to read it must not let the edit pass.
            if let Err(error) = live.releases.refresh_release(named, (self.time_left() / 2).min(NAMED)).await
            {
                tracing::debug!("failed to read a release that a change names: {error}");
            }
        }
        Ok(looked.len() > before)
    }

    /// The arbiter's answer; no evidence if there is no arbiter.
    async fn arbitrate(
        &self,
        live: &LiveCluster,
        case: &ReviewCase<'_>,
        judgement: &Judgement,
    ) -> Option<Result<Arc<Value>, ClusterError>> {
        let arbiter = live.arbiter.as_ref()?;
        let release = &judgement.verdict.grounds.as_ref()?.release;
        let object = &case.subject.object;
        let claim = judgement.claims.iter().find(|claim| claim.id == *release)?;
        let declarations = claim.objects.get(object)?;
        let (revision, declared) = match (&claim.baseline, &declarations.latest) {
            (Some(baseline), None) => (baseline.revision, declarations.baseline.as_ref()),
            (_, latest) => (claim.state.revision, latest.as_ref()),
        };
        let question = DryRunQuestion {
            object: object.clone(),
            uid: judgement.uid.clone(),
            release: release.clone(),
            revision,
            digest: declared.and_then(|declared| declared.digest),
        };
        Some(arbiter.canonical(&question, self.time_left()).await)
    }

    /// Looks up the owner of the object, if that can change the verdict.
    ///
    /// # Errors
    /// The object cannot be read; then the owner is [`CaseJudge::assumed_owner`].
    async fn learn_owner(
        &self,
        live: &LiveCluster,
        case: &mut ReviewCase<'_>,
        judgement: &Judgement,
    ) -> Result<(), JudgementError> {
        let foreign = case.foreign_claims(self.source.index());
        let assumed = self.assumed_owner(case, judgement);
        // Either no release declares it, or the edit passes for each of them.
        let is_settled =
            foreign.is_empty() || (judgement.claims.is_empty() && assumed == ObjectOwner::Nobody);
        if is_settled && !depends_on_owner(&judgement.claims, self.rules.resolver) {
            case.owner = ObjectOwner::Nobody;
            return Ok(());
        }
        let within = self.time_left();
        let claims: Vec<_> = foreign.iter().chain(&judgement.claims).cloned().collect();
        let looked = timeout(within, self.read_owner(live, case, &claims)).await;
        match looked.unwrap_or(Err(ClusterError::Late { within })) {
            Ok(owner) => case.owner = owner,
            Err(error) => {
                case.owner = assumed;
                return Err(JudgementError::Own(Box::new(error)));
            }
        }
        Ok(())
    }

    /// The owner to assume if it cannot be looked up: the strictest claim of another namespace, so that none allows an
    /// edit that another one denies. If the object's own namespace has claims, the strictest of those that a policy
    /// reserves for operators. `ObjectOwner::Nobody` without such a claim, or if it allows the edit.
    fn assumed_owner(&self, case: &ReviewCase<'_>, judgement: &Judgement) -> ObjectOwner {
        let resolver = self.rules.resolver;
        let mut claims = case.foreign_claims(self.source.index());
        if !judgement.claims.is_empty() {
            claims.clone_from(&judgement.claims);
            claims.retain(|claim| !resolver.policy(&claim.id).operators.is_empty());
            if !depends_on_owner(&judgement.claims, resolver) {
                return ObjectOwner::Nobody;
            }
        }
        let circumstances = self.source.circumstances(&case.subject.object);
        let basis = JudgementInputs {
            index: self.source.index(),
            circumstances: &circumstances,
            rules: self.rules,
            evidence: DryRunEvidence::None,
            now: Timestamp::now(),
        };
        let outcome = |claim: &Arc<Release>| case.judge_by(vec![Arc::clone(claim)], basis).verdict.outcome;
        let strictest =
            claims.iter().map(|claim| (outcome(claim), claim)).max_by_key(|(outcome, _)| *outcome);
        match strictest {
            Some((outcome, claim)) if outcome != EditOutcome::Allow => ObjectOwner::Release(claim.id.clone()),
            _ => ObjectOwner::Nobody,
        }
    }

    async fn read_owner(
        &self,
        live: &LiveCluster,
        case: &ReviewCase<'_>,
        claims: &[Arc<Release>],
    ) -> Result<ObjectOwner, ClusterError> {
        let object = &case.subject.object;
        let declared = claims.iter().find_map(|claim| claim.declared(object));
        let target = declared.and_then(|declared| live.kinds.target(object, &declared.version));
        let sighting = live.objects.sight(&target.ok_or(ClusterError::Unserved)?).await?;
        Ok(sighting.and_then(|sighting| sighting.release).map_or(ObjectOwner::Nobody, ObjectOwner::Release))
    }
}

/// Whether the owner of a Scale's object has to be looked up: no claim of its own namespace allows the Scale, or a
/// policy reserves one of several claims for its operators.
fn wants_owner(case: &ReviewCase<'_>, judgement: &Judgement, resolver: &PolicyResolver) -> bool {
    matches!(case.subject.aspect, Aspect::Scale(_))
        && case.owner == ObjectOwner::Unknown
        && (judgement.claims.is_empty()
            || judgement.verdict.outcome != EditOutcome::Allow
            || depends_on_owner(&judgement.claims, resolver))
}

/// Turns a refusal into the error; any other judgement stands.
fn unless_refused(judgement: Judgement, error: JudgementError) -> Result<Judgement, JudgementError> {
    if judgement.verdict.outcome.is_refusal() { Err(error) } else { Ok(judgement) }
}

fn differs_only_in_format(judgement: &Judgement) -> bool {
    let grounds = judgement.verdict.grounds.as_ref();
    judgement.verdict.outcome.is_refusal()
        && grounds.is_some_and(|grounds| grounds.fields.iter().all(|field| field.in_doubt))
}

#[derive(Debug, Error)]
pub(super) enum JudgementError {
    #[error("the edit could not be judged: {0}")]
    Look(Box<ClusterError>),
    #[error("the edit could not be judged: {0}")]
    Arbitrate(Box<ClusterError>),
    #[error("the edit could not be judged, since the editor's rights cannot be read: {0}")]
    Ask(Box<ClusterError>),
    #[error("the edit could not be judged, since the object's owner cannot be read: {0}")]
    Own(Box<ClusterError>),
}

impl JudgementError {
    /// Returns this error if the API server did not answer. Otherwise the verdict stays as it is, and the error is
    /// logged.
    pub(super) fn unless_answered(self) -> Result<(), Self> {
        if self.is_outage() {
            return Err(self);
        }
        let reason = self.error();
        tracing::warn!(%reason, "failed to read current state for a review; using the last known state");
        Ok(())
    }

    fn is_outage(&self) -> bool {
        self.error().is_outage()
    }

    fn error(&self) -> &ClusterError {
        let (Self::Look(error) | Self::Arbitrate(error) | Self::Ask(error) | Self::Own(error)) = self;
        error
    }
}

#[cfg(test)]
mod tests;
