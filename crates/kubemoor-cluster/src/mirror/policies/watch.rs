//! The DriftPolicies of a cluster, and their statuses.
//!
//! Entry point: [`PolicyWatch::run`]. Invariant: a policy that does not compile keeps its last accepted
//! version, also over a restart of the watch. A deleted policy ends. A status is written only when its text
//! changes, and only by the leader; policies take effect in every replica.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::assess::{Assessment, Subject, survey};
use super::change::PolicyChange;
use super::{Accepted, InForce};
use crate::client::call::CallError;
use crate::client::lease::Leadership;
use crate::client::policy_statuses::{PolicyStatuses, Seen};
use crate::client::watch::Event;
use crate::client::writer::SendError;
use crate::mirror::custom;
use crate::mirror::kinds::Kinds;
use crate::mirror::progress::{Listings, Progress};
use crate::mirror::reflect::{Mirror, Reflector};
use crate::mirror::releases::Releases;
use kubemoor_policy::compile::{Compiled, compile};
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::read::typed;
use kubemoor_policy::resource::DriftPolicy;
use kubemoor_runtime::telemetry::FailureLog;

/// The type of the condition that is written.
const CONDITION: &str = "Accepted";

/// How long changes are gathered before statuses are assessed: a chart brings
/// several at once.
const SETTLING: Duration = Duration::from_secs(1);

/// After a status could not be written, the pause until the next attempt.
const AGAIN: Duration = Duration::from_secs(30);

/// Follows the DriftPolicies of a cluster.
pub struct PolicyWatch {
    client: kube::Client,
    kinds: Arc<Kinds>,
    releases: Arc<Releases>,
    in_force: Arc<InForce>,
    /// Whether statuses are written.
    leadership: Leadership,
    statuses: PolicyStatuses,
    listings: Listings,
    known: BTreeMap<String, Known>,
    /// Of writing statuses.
    failures: FailureLog,
    /// Receives each change, for the history.
    keep: Box<dyn Fn(PolicyChange) + Send + Sync>,
}

/// One DriftPolicy.
struct Known {
    uid: String,
    generation: i64,
    resource_version: String,
    flaws: Vec<Flaw>,
    accepted: Option<(Arc<Compiled>, i64)>,
    /// `status.conditions` as they are.
    conditions: Vec<Value>,
}

impl PolicyWatch {
    /// The DriftPolicies of the cluster behind `client`, for `in_force`. While
    /// this replica leads their statuses are kept.
    pub fn new(
        client: kube::Client,
        kinds: Arc<Kinds>,
        releases: Arc<Releases>,
        in_force: Arc<InForce>,
        leadership: Leadership,
    ) -> Self {
        let listings = Listings::of(&[]);
        Self {
            statuses: PolicyStatuses::new(client.clone(), leadership.clone()),
            client,
            kinds,
            releases,
            in_force,
            leadership,
            listings,
            known: BTreeMap::new(),
            failures: FailureLog::default(),
            keep: Box::new(drop),
        }
    }

    /// The same, telling `keep` of each policy that is there, changes or goes: of one state of a policy again after
    /// each start.
    #[must_use]
    pub fn keeping(self, keep: impl Fn(PolicyChange) + Send + Sync + 'static) -> Self {
        Self { keep: Box::new(keep), ..self }
    }

    /// How far the first listing is.
    pub fn progress(&self) -> tokio::sync::watch::Receiver<Progress> {
        self.listings.progress()
    }

    /// Follows them until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        let kind = ("DriftPolicy", "driftpolicies");
        let mut reflector = Reflector::new(custom::events(self.client.clone(), &self.kinds, kind, None));
        let mut in_force = self.in_force.changes();
        let releases = self.releases.changes();
        let mut leading = self.leadership.watch();
        let mut health = self.releases.health();
        let mut assess_at: Option<Instant> = None;
        loop {
            let mut due = Some(Duration::ZERO);
            tokio::select! {
                event = reflector.next() => {
                    if matches!(event, Event::Listed(_) | Event::Broken(_)) {
                        due = None;
                    }
                    reflector.take(event, self);
                }
                changed = in_force.changed() => if changed.is_err() { return },
                // The previous leader may have left statuses unwritten.
                changed = leading.changed() => if changed.is_err() { return },
                changed = health.changed() => if changed.is_err() { return },
                _ = releases.next() => due = Some(SETTLING),
                () = until(assess_at), if assess_at.is_some() => {
                    assess_at = None;
                    due = self.assess().await.err().map(|()| AGAIN);
                }
            }
            // While a listing is under way, what is known is not whole.
            if !reflector.is_listing() {
                self.publish();
            }
            // Until all releases are known, the matches of a policy cannot be determined.
            let may = self.leadership.holds() && health.borrow().indexed && !self.known.is_empty();
            if let Some(due) = due.filter(|_| may) {
                assess_at.get_or_insert_with(|| Instant::now() + due.max(SETTLING));
            }
        }
    }

    /// Takes a policy in; its name.
    fn learn(&mut self, mut object: Value) -> Option<String> {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, uid, resource_version) =
            (text("/metadata/name"), text("/metadata/uid"), text("/metadata/resourceVersion"));
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let conditions =
            object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        if name.is_empty() {
            return None;
        }
        // Another policy of the same name does not inherit this one's accepted version.
        let before = self.known.remove(&name).filter(|before| before.uid == uid);
        let known = match before {
            Some(before) if before.generation == generation => {
                Known { resource_version, conditions, ..before }
            }
            before => {
                (self.keep)(PolicyChange::of(&object));
                let accepted = before.and_then(|before| before.accepted);
                let compiled = read(&mut object);
                if let Err(flaws) = &compiled {
                    for flaw in flaws {
                        tracing::warn!(
                            policy = name,
                            "a DriftPolicy is not in force as it is written; what it said before stays: {flaw}"
                        );
                    }
                }
                let (accepted, flaws) = match compiled {
                    Ok(compiled) => (Some((Arc::new(compiled), generation)), Vec::new()),
                    Err(flaws) => (accepted, flaws),
                };
                Known { uid, generation, resource_version, flaws, accepted, conditions }
            }
        };
        self.known.insert(name.clone(), known);
        Some(name)
    }

    fn publish(&self) {
        let accepted =
            |(name, known): (&String, &Known)| Some((name.clone(), Arc::clone(&known.accepted.as_ref()?.0)));
        let accepted: Accepted = self.known.iter().filter_map(accepted).collect();
        self.in_force.set_resources(accepted);
    }

    /// Writes the statuses that say something else than they should.
    async fn assess(&mut self) -> Result<(), ()> {
        let survey = survey(&self.in_force, &self.releases.index().read());
        let mut result = Ok(());
        for (name, known) in &self.known {
            let accepted = known.accepted.as_ref().map(|(policy, generation)| (policy.as_ref(), *generation));
            let subject = Subject { name, generation: known.generation, flaws: &known.flaws, accepted };
            let assessment = Assessment::of(&subject, &survey, &self.in_force);
            let Some(conditions) = with(&known.conditions, &assessment, known.generation, Timestamp::now())
            else {
                continue;
            };
            let Known { generation, ref resource_version, .. } = *known;
            match self.statuses.set(Seen { name, generation, resource_version }, conditions).await {
                Ok(()) => {}
                Err(SendError::NotLeading) => return result,
                // Another writer was faster; the watch will report that.
                Err(SendError::Call(error)) if error.is_overtaken() => {}
                Err(error) => {
                    result = Err(());
                    if self.failures.note_failure() {
                        tracing::warn!(policy = name, %error, "the status of a DriftPolicy cannot be written");
                    }
                }
            }
        }
        if result.is_ok() {
            self.failures.note_success();
        }
        result
    }
}

impl Mirror for PolicyWatch {
    type Object = Value;
    type Key = String;
    const OBJECTS: &'static str = "DriftPolicies";

    fn set(&mut self, object: Value) -> Option<String> {
        self.learn(object)
    }

    fn remove(&mut self, object: Value) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if let Some(gone) = self.known.remove(name) {
            (self.keep)(PolicyChange::deleted(name, &gone.uid, gone.generation));
        }
    }

    fn retain(&mut self, listed: &HashSet<String>) {
        let gone = self.known.iter().filter(|(name, _)| !listed.contains(*name));
        for (name, Known { uid, generation, .. }) in gone {
            (self.keep)(PolicyChange::deleted(name, uid, *generation));
        }
        self.known.retain(|name, _| listed.contains(name));
        // Publish before the progress reports that all are known.
        self.publish();
    }

    fn warn(&self, error: &CallError) {
        tracing::warn!(%error, "DriftPolicies cannot be watched; those in force stay");
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.listings)
    }
}

fn read(object: &mut Value) -> Result<Compiled, Vec<Flaw>> {
    if let Some(fields) = object.as_object_mut() {
        // Other writers' content in the status must not make a policy unreadable.
        fields.remove("status");
    }
    compile(&typed::<DriftPolicy>(object.take()).map_err(|flaw| vec![flaw])?)
}

/// The conditions with this one added; `None` when it is there already.
fn with(
    conditions: &[Value],
    assessment: &Assessment,
    generation: i64,
    now: Timestamp,
) -> Option<Vec<Value>> {
    let status = if assessment.accepted { "True" } else { "False" };
    let is_ours = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(CONDITION);
    let before = conditions.iter().find(is_ours);
    let says = |field: &str| before.and_then(|before| before.get(field)?.as_str());
    let same = says("status") == Some(status);
    if same
        && says("reason") == Some(assessment.reason)
        && says("message") == Some(&assessment.message)
        && before.and_then(|before| before.get("observedGeneration")?.as_i64()) == Some(generation)
    {
        return None;
    }
    let since = says("lastTransitionTime").filter(|_| same).map(str::to_owned);
    let ours = json!({
        "type": CONDITION,
        "status": status,
        "reason": assessment.reason,
        "message": assessment.message,
        "lastTransitionTime": since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        "observedGeneration": generation,
    });
    Some(conditions.iter().filter(|condition| !is_ours(condition)).cloned().chain([ours]).collect())
}

async fn until(instant: Option<Instant>) {
    if let Some(instant) = instant {
        sleep_until(instant).await;
    }
}

#[cfg(test)]
mod tests;
