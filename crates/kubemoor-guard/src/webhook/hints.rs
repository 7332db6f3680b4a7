//! Hints in the message of a verdict: the chart values that probably set its fields, whether the user may create
//! exceptions or see values, and whether new labels of a namespace select a milder policy.
//!
//! A message never waits for an answer longer than its budget; a later answer serves the next message. The answers
//! affect only what the message shows, and are used for half a minute.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::case::{Aspect, Judgement, ReviewCase};
use super::look::CaseJudge;
use super::shares::run_blocking_future;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::{Actor, DriftMode, Operation, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_helm::values::{self, Candidate, ValueQuestion};
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::{Labels, Policies};
use kubemoor_verdict::edit::{EditOutcome, FieldFinding};
use kubemoor_verdict::shown::Shown;

const VALUES_BUDGET: Duration = Duration::from_millis(300);

const VALUES_FIELDS: usize = 8;

/// Marks where a text was cut.
const CUT: char = '…';

/// The chart values that probably set each field of the verdict. Empty if the record is not
/// available. For a Secret, no new value is named.
pub(super) async fn chart_values(
    looker: &CaseJudge<'_>,
    case: &ReviewCase<'_>,
    judgement: &Judgement,
) -> Vec<Vec<Candidate>> {
    let (Some(live), Some(grounds)) = (looker.live(), &judgement.verdict.grounds) else { return Vec::new() };
    let is_told = judgement.verdict.outcome >= EditOutcome::Warn && case.operation != Operation::Delete;
    if !is_told || grounds.fields.is_empty() {
        return Vec::new();
    }
    let within = (looker.time_left() / 2).min(VALUES_BUDGET);
    let source = live.releases.source_at_hand(&grounds.release, grounds.revision, within).await;
    let Some(source) = source else { return Vec::new() };
    let object = &case.subject.object;
    let fields = grounds.fields.iter().take(VALUES_FIELDS);
    let likeliest = |finding: &FieldFinding| {
        let new = wanted(finding);
        let place = finding.difference.as_ref().map(|difference| difference.path.as_str());
        let question = ValueQuestion { object, path: &finding.path, place, new: new.as_ref() };
        values::likeliest(values::candidates(std::slice::from_ref(&*source), question))
    };
    run_blocking_future(async { fields.map(likeliest).collect() }).await
}

/// The value that the edit gives to a field, if it is known in full.
fn wanted(finding: &FieldFinding) -> Option<Value> {
    let new: Option<&Shown> = match finding.difference.as_deref() {
        Some(difference) if difference.line.is_some() => None,
        Some(difference) => difference.new.as_ref(),
        None => finding.new.as_ref(),
    };
    let new = new.filter(|new| !new.is_masked() && !new.as_str().contains(CUT))?;
    serde_json::from_str(new.as_str()).ok()
}

/// How long a denial waits to know whether the user may create exceptions.
const EXCEPTIONS_BUDGET: Duration = Duration::from_millis(10);

/// How long a message with values waits to know whether the user may read them, if the review has as much time left.
const READ_BUDGET: Duration = Duration::from_millis(500);

const PATIENCE: Duration = Duration::from_secs(2);

const FRESH: Duration = Duration::from_secs(30);

/// The maximum number of remembered answers, and of concurrent questions.
const REMEMBERED: u64 = 1000;
const AT_ONCE: usize = 32;

pub(super) struct UserRights {
    /// The answers with their times, by user and right; `None` if the API server gave none. The cache also expires
    /// them, but by a clock of its own.
    known: Cache<u64, (Instant, Option<bool>)>,
    asking: Arc<Semaphore>,
    keys: RandomState,
}

impl Default for UserRights {
    fn default() -> Self {
        Self {
            known: Cache::builder().max_capacity(REMEMBERED).time_to_live(FRESH).build(),
            asking: Arc::new(Semaphore::new(AT_ONCE)),
            keys: RandomState::new(),
        }
    }
}

impl UserRights {
    /// Adds to a denial whom to ask for an exception, if the user may not create one.
    pub(super) async fn tell_exceptions(
        &self,
        looker: &CaseJudge<'_>,
        case: &ReviewCase<'_>,
        judgement: &mut Judgement,
    ) {
        let (Some(live), Some(grounds)) = (looker.live(), judgement.verdict.grounds.clone()) else { return };
        if !judgement.verdict.outcome.is_refusal() {
            return;
        }
        let namespace = case.subject.object.namespace.as_deref().unwrap_or(&grounds.release.namespace);
        let (group, resource) = ("kubemoor.dev", "driftallowances");
        let right = Right { verb: "create", group, resource, namespace: Some(namespace), name: None };
        if self.may(&live.client, &case.actor, right, EXCEPTIONS_BUDGET).await == Some(false) {
            judgement.message.ask_others(namespace);
        }
    }

    /// Hides the values in a message, unless the API server confirms that the user may `get` the object. RBAC can grant
    /// `create`, `update` and `patch` without `get`, and the response to a PUT does not show what it overwrote. A guard
    /// without a cluster cannot ask, and hides nothing.
    pub(super) async fn hide_values(
        &self,
        looker: &CaseJudge<'_>,
        case: &ReviewCase<'_>,
        judgement: &mut Judgement,
    ) {
        let Some(live) = looker.live() else { return };
        if judgement.verdict.outcome < EditOutcome::Warn || !judgement.message.has_values() {
            return;
        }
        let object = &case.subject.object;
        let right = Right {
            verb: "get",
            group: &case.resource.group,
            resource: &case.resource.resource,
            namespace: object.namespace.as_deref(),
            name: Some(&*object.name),
        };
        let budget = (looker.time_left() / 2).min(READ_BUDGET);
        if self.may(&live.client, &case.actor, right, budget).await != Some(true) {
            judgement.message.hide_values();
        }
    }

    /// Whether the user has a right; `None` if the API server did not answer in time.
    async fn may(
        &self,
        client: &kube::Client,
        actor: &Actor,
        right: Right<'_>,
        budget: Duration,
    ) -> Option<bool> {
        let Actor { user, groups, uid, extra } = actor;
        let key = self.keys.hash_one((user, groups, uid, extra, right));
        if let Some((at, may)) = self.known.get(&key)
            && at.elapsed() < FRESH
        {
            return may;
        }
        let turn = Arc::clone(&self.asking).try_acquire_owned().ok()?;
        let (asked, known) = (access::is_user_allowed(client, actor, &right), self.known.clone());
        let asking = tokio::spawn(async move {
            let answer = timeout(PATIENCE, asked).await;
            drop(turn);
            // A failed question is remembered too, so that it is not repeated at once.
            let may = answer.ok().and_then(Result::ok);
            known.insert(key, (Instant::now(), may));
            may
        });
        timeout(budget, asking).await.ok()?.ok()?
    }
}

/// The warning about new labels of a namespace that select a milder policy for its releases. The change is allowed in
/// any case, because the labels belong to the namespace's owner; the ledger gets a row for it from the watch.
pub(super) fn milder_labels(case: &ReviewCase<'_>, policies: &Policies, index: &Index) -> Option<String> {
    let object = &case.subject.object;
    let is_namespace = object.group.is_empty() && object.kind == "Namespace";
    if !is_namespace || case.subject.aspect != Aspect::Object || case.operation != Operation::Update {
        return None;
    }
    let [old, new] = case.texts();
    let [old, new] = [labels(old?)?, labels(new?)?];
    if old == new {
        return None;
    }
    let here =
        index.releases().map(|release| &release.id).filter(|id| id.namespace.as_str() == &*object.name);
    let mut milder: Vec<_> = here.filter(|id| is_milder(policies, id, &old, &new)).collect();
    milder.sort();
    let first = milder.first()?;
    let (before, after) = (policies.resolve(first, &old), policies.resolve(first, &new));
    let others = match milder.len().saturating_sub(1) {
        0 => String::new(),
        others => format!(", and of {others} more"),
    };
    Some(format!(
        "these labels make the policy of Helm release {:?}{others} less strict: edits {:?} -> {:?}, drift \
         {:?} -> {:?}",
        first.name, before.edits, after.edits, before.drift, after.drift
    ))
}

fn is_milder(policies: &Policies, release: &ReleaseId, old: &Labels, new: &Labels) -> bool {
    let (before, after) = (policies.resolve(release, old), policies.resolve(release, new));
    let strictness = |policy: &Policy| match policy.drift {
        DriftMode::Ignore => 0,
        DriftMode::Report => 1,
        DriftMode::Repair => 2,
    };
    after.edits < before.edits || strictness(&after) < strictness(&before)
}

fn labels(object: &Excerpt<'_>) -> Option<Labels> {
    match object.at(&["metadata", "labels"]).map(|labels| labels.value()) {
        None | Some(Some(Value::Null)) => Some(Labels::new()),
        Some(labels) => serde_json::from_value(labels?).ok(),
    }
}

#[cfg(test)]
mod tests;
