//! Reads the records again before a denial.
//!
//! Entry point: `Looker::judge`. Invariant: a denial is based on records that the API server
//! returned after the request arrived; if it depends on the spelling of a value, or meets a running
//! operation, the arbiter was asked. Only an API server that does not answer turns a denial into an
//! error, and the webhook's `failurePolicy` decides: an answer of the API server, or data of a
//! user, leaves the denial as it is. `Record` and `Warn` never fail a request. Must not hold a
//! rule.

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
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::allowances::Allowances;
use kubemoor_cluster::mirror::arbiter::{Arbiter, ArbiterError, Question};
use kubemoor_cluster::mirror::autoscalers::Autoscalers;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_cluster::mirror::releases::Releases;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_policy::settled::SettledValues;
use kubemoor_verdict::circumstances::Circumstances;
use kubemoor_verdict::edit::{Evidence, Outcome, Rules};

/// How often a verdict is judged again because a read changed its basis.
const ROUNDS: usize = 8;

/// The most releases that are read for one review. Only a user who writes records in the object's
/// own namespace could forge all of them.
pub(super) const LOOKS: usize = 8;

/// The longest read, even if the deadline leaves more time.
const LOOK: Duration = Duration::from_secs(5);

/// The longest read of a release that the new object names and that decides nothing yet.
const NAMED: Duration = Duration::from_millis(500);

/// The source of releases.
pub enum ReleaseSource {
    /// A cluster, whose records the index follows.
    Cluster(Box<Live>),
    /// Files that were read at the start: there is nothing to read again.
    Fixed(RwLock<Index>),
}

/// A cluster as the webhook sees it.
pub struct Live {
    /// The releases.
    pub releases: Arc<Releases>,
    /// The arbiter; `None` where the guard makes no writes, not even dry runs.
    pub arbiter: Option<Arc<Arbiter>>,
    /// Single objects.
    pub objects: Objects,
    /// The kinds that the cluster serves.
    pub kinds: Arc<Kinds>,
    /// The temporary allowances.
    pub allowances: Arc<Allowances>,
    /// The autoscalers.
    pub autoscalers: Arc<Autoscalers>,
    /// Values that dry runs have settled.
    pub settled: Arc<SettledValues>,
    /// The client for questions about permissions.
    pub client: kube::Client,
}

/// Reads records for one review.
pub(super) struct Looker<'a> {
    pub(super) source: &'a ReleaseSource,
    pub(super) rules: &'a Rules<'a>,
    pub(super) deadline: Instant,
}

impl ReleaseSource {
    /// The present index of releases.
    pub fn index(&self) -> &RwLock<Index> {
        match self {
            Self::Cluster(live) => live.releases.index(),
            Self::Fixed(index) => index,
        }
    }

    /// The knowledge about an object besides its releases.
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
    /// Judges `case`, with as many reads as a verdict other than a plain allow needs.
    pub(super) async fn judge<'c>(&self, case: Case<'c>) -> Result<(Judgement, Case<'c>), Unreached> {
        let judgement = self.judged(&case, Evidence::None);
        match self.source {
            // Boxed, so that the future of every request stays small.
            ReleaseSource::Cluster(live)
                if judgement.verdict.outcome != Outcome::Allow
                    || owner::is_wanted(&case, &judgement, self.rules.resolver) =>
            {
                Box::pin(self.settled(live, judgement, case)).await
            }
            ReleaseSource::Fixed(_) => Ok(self.settled_by_itself(judgement, case)),
            ReleaseSource::Cluster(_) => Ok((judgement, case)),
        }
    }

    /// Judges `case` by the present knowledge, without a read.
    pub(super) fn judged(&self, case: &Case<'_>, evidence: Evidence<'_>) -> Judgement {
        let mut circumstances = self.source.circumstances(&case.subject.object);
        circumstances.allowances.extend(case.granted.clone());
        let (index, circumstances) = (self.source.index(), &circumstances);
        case.judge(Basis { index, circumstances, rules: self.rules, evidence, now: Timestamp::now() })
    }

    /// How long another call may take.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(LOOK)
    }

    /// The same without a cluster to ask.
    fn settled_by_itself<'c>(&self, judgement: Judgement, mut case: Case<'c>) -> (Judgement, Case<'c>) {
        if owner::is_wanted(&case, &judgement, self.rules.resolver) {
            case.owner = self.assumed_owner(&case, &judgement);
        } else if !judgement.verdict.arguable {
            return (judgement, case);
        }
        (self.judged(&case, Evidence::Nowhere), case)
    }

    /// Judges again until a read changes nothing, then with the arbiter's answer.
    async fn settled<'c>(
        &self,
        live: &Live,
        mut judgement: Judgement,
        mut case: Case<'c>,
    ) -> Result<(Judgement, Case<'c>), Unreached> {
        if owner::is_wanted(&case, &judgement, self.rules.resolver) {
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

    /// Reads the records on which the judgement depends, if not yet done. Returns whether there
    /// were any.
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

    /// The arbiter's answer; no evidence if there is no arbiter.
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
}

/// An API server that does not answer turns a refusal into an error and nothing else.
fn unless_refused<'c>(
    judgement: Judgement,
    case: Case<'c>,
    error: Unreached,
) -> Result<(Judgement, Case<'c>), Unreached> {
    if judgement.verdict.outcome.is_refusal() { Err(error) } else { Ok((judgement, case)) }
}

/// Whether the denial depends only on the spelling of values.
fn hangs_on_spelling(judgement: &Judgement) -> bool {
    let grounds = judgement.verdict.grounds.as_ref();
    judgement.verdict.outcome.is_refusal()
        && grounds.is_some_and(|grounds| grounds.fields.iter().all(|field| field.doubt))
}

/// The sentence for a value that could not be checked for another spelling.
fn unchecked(error: &ArbiterError) -> String {
    format!("The guard could not check whether the new value means the same as the release's: {error}.")
}
