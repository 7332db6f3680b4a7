//! The policies in force: from DriftPolicies, from files, or from both; and the labels of namespaces, by which policies
//! select releases. A policy that is not accepted changes nothing: its last accepted version stays in force. If both
//! sources have a policy of the same name, the one in the file is used. A status is written only when its text changes,
//! and only by the leader; policies take effect in every replica.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::allowances;
use crate::client::call::{self, ClusterError, PATIENCE};
use crate::client::discovery::confirm_absence;
use crate::client::guarded;
use crate::client::lease::Leadership;
use crate::client::pages::Pages;
use crate::client::resource::{ApiResource, Meta, Partial, segment};
use crate::client::watch::{MetadataWatch, ObjectEvent};
use crate::client::writer::ClusterWriter;
use crate::mirror::autoscalers::{self, AutoscalerRange};
use crate::mirror::kinds::ServedKinds;
use crate::mirror::reflect::{
    Listings, Mirror, Progress, Reflector, last_spec_writer, own_kind_events, until,
};
use crate::mirror::releases::Releases;
use kubemoor_declare::model::text::shortened;
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId, ReleaseId};
use kubemoor_helm::index::Index;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::compile::{CompiledPolicy, compile, typed};
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::resource::{DriftAllowance, DriftPolicy};
use kubemoor_runtime::telemetry::FailureLog;

pub(super) type Accepted = BTreeMap<String, Arc<CompiledPolicy>>;

pub struct ActivePolicies {
    resolver: Arc<PolicyResolver>,
    cluster: Labels,
    sources: Mutex<PolicySources>,
    /// The notifiers that policies may name; unset while they are unknown.
    notifiers: OnceLock<BTreeSet<String>>,
    changed: tokio::sync::watch::Sender<u64>,
}

#[derive(Default)]
struct PolicySources {
    files: Accepted,
    resources: Accepted,
}

impl ActivePolicies {
    /// Starts with the defaults of `resolver`, which receives every change; `cluster` are the labels by which policies
    /// select clusters.
    pub fn new(resolver: Arc<PolicyResolver>, cluster: Labels) -> Arc<Self> {
        let (sources, changed) = (Mutex::default(), tokio::sync::watch::Sender::new(0));
        Arc::new(Self { resolver, cluster, sources, notifiers: OnceLock::new(), changed })
    }

    /// Sets the notifiers that policies may name. Only the first call has an effect.
    pub fn set_notifiers(&self, names: impl IntoIterator<Item = String>) {
        self.notifiers.get_or_init(|| names.into_iter().collect());
    }

    /// A counter that changes whenever a policy or the labels of a namespace change.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Disables or enables enforcement (emergency).
    pub fn set_enforcement_disabled(&self, is_open: bool) {
        self.resolver.set_enforcement_disabled(is_open);
        self.changed.send_modify(|count| *count += 1);
    }

    pub fn resolver(&self) -> &Arc<PolicyResolver> {
        &self.resolver
    }

    /// Sets the labels of a namespace; `None` when it was deleted.
    pub(super) fn set_namespace(&self, name: &str, labels: Option<Labels>) {
        if self.resolver.set_namespace(name, labels) {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The policies that apply in a namespace now, and those that will with these labels; `None` if they are the same,
    /// or the namespace is new.
    pub(super) fn changed_policies(
        &self,
        namespace: &str,
        labels: &Labels,
    ) -> Option<(Vec<String>, Vec<String>)> {
        let before = self.resolver.known_labels(namespace).filter(|before| before != labels)?;
        let policies = self.resolver.policies();
        let names = |labels: &Labels| {
            policies.of_namespace(namespace, labels).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let (before, after): (Vec<String>, Vec<String>) = (names(&before), names(labels));
        (before != after).then_some((before, after))
    }

    pub(super) fn set_files(&self, accepted: Accepted) {
        self.set(|sources| &mut sources.files, accepted);
    }

    /// The notifiers that a policy names and that are not defined.
    fn unknown_notifiers<'p>(&self, policy: &'p CompiledPolicy) -> Vec<&'p str> {
        let is_unknown = |name: &&str| self.notifiers.get().is_some_and(|known| !known.contains(*name));
        policy.spec.notify.iter().map(String::as_str).filter(is_unknown).collect()
    }

    fn set(&self, source: impl FnOnce(&mut PolicySources) -> &mut Accepted, accepted: Accepted) {
        let mut sources = self.sources.lock();
        let before = source(&mut sources);
        let same = |(left, right): (&Arc<CompiledPolicy>, &Arc<CompiledPolicy>)| Arc::ptr_eq(left, right);
        if before.len() == accepted.len() && before.values().zip(accepted.values()).all(same) {
            return;
        }
        *before = accepted;
        let mut all = sources.resources.clone();
        all.extend(sources.files.clone());
        let count = all.len();
        let policies = Policies::new((**self.resolver.defaults()).clone(), &self.cluster, all.into_values());
        let here = policies.ranked().len();
        self.resolver.set_policies(policies);
        tracing::info!(policies.accepted = count, policies.here = here, "policies are in force");
        self.changed.send_modify(|count| *count += 1);
    }
}

const CONDITION: &str = "Accepted";

/// How long changes are gathered before statuses are assessed: a chart brings several at once.
const SETTLING: Duration = Duration::from_secs(1);

/// The pause after a status could not be written.
const AGAIN: Duration = Duration::from_secs(30);

/// Follows the DriftPolicies of a cluster.
pub struct PolicyWatch {
    client: kube::Client,
    kinds: Arc<ServedKinds>,
    releases: Arc<Releases>,
    in_force: Arc<ActivePolicies>,
    leadership: Leadership,
    writer: ClusterWriter,
    listings: Listings,
    known: BTreeMap<String, KnownPolicy>,
    failures: FailureLog,
    keep: Box<dyn Fn(PolicyChange) + Send + Sync>,
}

struct KnownPolicy {
    uid: String,
    generation: i64,
    resource_version: String,
    flaws: Vec<Flaw>,
    accepted: Option<(Arc<CompiledPolicy>, i64)>,
    conditions: Vec<Value>,
}

impl PolicyWatch {
    /// Follows DriftPolicies for `in_force`, and updates their statuses while this replica leads. Calls `keep` for each
    /// policy that exists, changes or is deleted; after each start also for unchanged ones.
    pub fn new(
        client: kube::Client,
        kinds: Arc<ServedKinds>,
        releases: Arc<Releases>,
        in_force: Arc<ActivePolicies>,
        leadership: Leadership,
        keep: impl Fn(PolicyChange) + Send + Sync + 'static,
    ) -> Self {
        let listings = Listings::new(&[]);
        Self {
            writer: ClusterWriter::seldom(client.clone(), leadership.clone()),
            client,
            kinds,
            releases,
            in_force,
            leadership,
            listings,
            known: BTreeMap::new(),
            failures: FailureLog::default(),
            keep: Box::new(keep),
        }
    }

    pub fn progress(&self) -> tokio::sync::watch::Receiver<Progress> {
        self.listings.progress()
    }

    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        let events = own_kind_events(self.client.clone(), &self.kinds, guarded::policy_resource(), None);
        let mut reflector = Reflector::new(events);
        let mut in_force = self.in_force.changes();
        let releases = self.releases.changes();
        let mut leading = self.leadership.watch();
        let mut health = self.releases.health();
        let mut assess_at: Option<Instant> = None;
        loop {
            let mut due = Some(Duration::ZERO);
            tokio::select! {
                event = reflector.next() => {
                    if matches!(event, ObjectEvent::Listed(_) | ObjectEvent::Broken(_)) {
                        due = None;
                    }
                    reflector.take(event, self);
                }
                changed = in_force.changed() => if changed.is_err() { return },
                // The previous leader may have left statuses unwritten.
                changed = leading.changed() => if changed.is_err() { return },
                changed = health.changed() => if changed.is_err() { return },
                _ = releases.next() => due = Some(SETTLING),
                () = until(assess_at) => {
                    assess_at = None;
                    due = self.assess().await.err().map(|()| AGAIN);
                }
            }
            // During a list, the known policies are incomplete.
            if !reflector.is_listing() {
                self.publish();
            }
            // Until all releases are known, the matches of a policy cannot be determined.
            let may = self.leadership.is_leader() && health.borrow().indexed && !self.known.is_empty();
            if let Some(due) = due.filter(|_| may) {
                assess_at.get_or_insert_with(|| Instant::now() + due.max(SETTLING));
            }
        }
    }

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
                KnownPolicy { resource_version, conditions, ..before }
            }
            before => {
                (self.keep)(PolicyChange::from_object(&object));
                let accepted = before.and_then(|before| before.accepted);
                let compiled = compile_object(&mut object);
                if let Err(flaws) = &compiled {
                    for flaw in flaws {
                        tracing::warn!(
                            policy = name,
                            "invalid DriftPolicy; its last valid version, if any, stays in force: {flaw}"
                        );
                    }
                }
                let (accepted, flaws) = match compiled {
                    Ok(compiled) => (Some((Arc::new(compiled), generation)), Vec::new()),
                    Err(flaws) => (accepted, flaws),
                };
                KnownPolicy { uid, generation, resource_version, flaws, accepted, conditions }
            }
        };
        self.known.insert(name.clone(), known);
        Some(name)
    }

    fn publish(&self) {
        let accepted = |(name, known): (&String, &KnownPolicy)| {
            Some((name.clone(), Arc::clone(&known.accepted.as_ref()?.0)))
        };
        let accepted: Accepted = self.known.iter().filter_map(accepted).collect();
        self.in_force.set(|sources| &mut sources.resources, accepted);
    }

    /// Writes the statuses that are out of date.
    async fn assess(&mut self) -> Result<(), ()> {
        let survey = survey(&self.in_force, &self.releases.index().read());
        let mut result = Ok(());
        for (name, known) in &self.known {
            let accepted = known.accepted.as_ref().map(|(policy, generation)| (policy.as_ref(), *generation));
            let (generation, flaws) = (known.generation, &known.flaws);
            let assessment = Assessment::new(name, generation, flaws, accepted, &survey, &self.in_force);
            let Some(conditions) = with(&known.conditions, &assessment, generation, Timestamp::now()) else {
                continue;
            };
            let version = &known.resource_version;
            match guarded::set_policy_status(&self.writer, name, generation, version, conditions).await {
                Ok(()) => {}
                Err(ClusterError::NotLeading) => return result,
                // Another writer was faster; the watch will report that.
                Err(error) if error.is_overtaken() => {}
                Err(error) => {
                    result = Err(());
                    if self.failures.note_failure() {
                        tracing::warn!(policy = name, %error, "failed to write the status of a DriftPolicy");
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
    const UNWATCHED: &'static str = "failed to watch DriftPolicies; the last known ones stay in force";

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
        for (name, KnownPolicy { uid, generation, .. }) in gone {
            (self.keep)(PolicyChange::deleted(name, uid, *generation));
        }
        self.known.retain(|name, _| listed.contains(name));
        // Publish before the progress reports that all are known.
        self.publish();
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.listings)
    }
}

fn compile_object(object: &mut Value) -> Result<CompiledPolicy, Vec<Flaw>> {
    if let Some(fields) = object.as_object_mut() {
        // Other writers' content in the status must not make a policy unreadable.
        fields.remove("status");
    }
    compile(&typed::<DriftPolicy>(object.take()).map_err(|flaw| vec![flaw])?)
}

/// The conditions with the one of `assessment`; `None` if they have it already.
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

const MESSAGE: usize = 4096;

const TOLD: usize = 5;

/// The result of checking the policies against the releases.
#[derive(Debug, Default)]
struct Survey {
    matching: BTreeSet<String>,
    ties: BTreeMap<String, BTreeSet<String>>,
    /// Policies that deny edits of releases whose drift is not repaired.
    leaving: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Assessment {
    accepted: bool,
    reason: &'static str,
    message: String,
}

/// Checks the policies in force against the releases.
fn survey(in_force: &ActivePolicies, index: &Index) -> Survey {
    let mut survey = Survey::default();
    for release in index.releases() {
        let policy = in_force.resolver().policy(&release.id);
        for name in policy.matched() {
            if !survey.matching.contains(name) {
                survey.matching.insert(name.to_owned());
            }
        }
        for tie in policy.ties() {
            for name in [&tie.policy, &tie.overridden_policy] {
                survey.ties.entry(name.clone()).or_default().insert(tie.to_string());
            }
        }
        if let (Some(name), EditsMode::Deny, DriftMode::Report | DriftMode::Ignore) =
            (&policy.edits_by, policy.edits, policy.drift)
        {
            survey.leaving.insert(name.clone());
        }
    }
    survey
}

impl Assessment {
    /// Assesses the policy `name` in this generation; `accepted` is its last accepted version with its own generation.
    fn new(
        name: &str,
        generation: i64,
        flaws: &[Flaw],
        accepted: Option<(&CompiledPolicy, i64)>,
        survey: &Survey,
        in_force: &ActivePolicies,
    ) -> Self {
        if let Some(first) = flaws.first() {
            let told: Vec<_> = flaws.iter().map(|flaw| format!("{}: {}", flaw.field, flaw.message)).collect();
            let stays = match accepted {
                Some((_, accepted)) if accepted != generation => {
                    format!(". Generation {accepted} of this policy stays in force.")
                }
                _ => ". This policy is not in force.".to_owned(),
            };
            let message = shortened(told.join("; "), MESSAGE - stays.len()).into_owned() + &stays;
            return Self { accepted: false, reason: first.reason.as_str(), message };
        }
        if in_force.sources.lock().files.contains_key(name) {
            let message = "A policy file of the guard has a policy with this name and takes precedence: rename one of \
                 them.";
            return Self { accepted: false, reason: "DuplicateName", message: message.to_owned() };
        }
        let (reason, message) = match accepted {
            Some((policy, _)) if !policy.is_in(&in_force.cluster) => (
                "OtherCluster",
                "Not in force here: the labels of this cluster (--cluster-label) do not match spec.clusterSelector."
                    .to_owned(),
            ),
            _ if !survey.matching.contains(name) => (
                "MatchesNothing",
                "In force, but no release matches spec.releases. Look for a misspelled name, namespace or label."
                    .to_owned(),
            ),
            accepted => accepted
                .and_then(|(policy, _)| ineffective(policy, in_force))
                .unwrap_or_else(|| standing(name, survey)),
        };
        Self { accepted: true, reason, message }
    }
}

/// The rules without effect of a policy in force, as reason and message.
fn ineffective(policy: &CompiledPolicy, in_force: &ActivePolicies) -> Option<(&'static str, String)> {
    let unknown = in_force.unknown_notifiers(policy);
    let (reason, message) = if !policy.misspelled.is_empty() {
        let told = policy.misspelled.iter().map(|(field, what)| format!("{field}: {what}"));
        ("UnknownKind", format!("In force, but {}", told.take(TOLD).collect::<Vec<_>>().join("; ")))
    } else if !policy.unknown_fields.is_empty() {
        let told = policy.unknown_fields.iter().map(|(field, what)| format!("{field}: {what}"));
        ("UnknownField", format!("In force, but {}", told.take(TOLD).collect::<Vec<_>>().join("; ")))
    } else if !unknown.is_empty() {
        let message = format!(
            "In force, but spec.notify names notifiers that the guard does not have: {}. Correct the names, or add \
             them to the file of --notifiers.",
            unknown.join(", ")
        );
        ("UnknownNotifier", message)
    } else if !policy.ineffective.is_empty() {
        let message = format!(
            "In force, but these paths have no effect: {}. Helm's label and annotations are always guarded.",
            policy.ineffective.join(", ")
        );
        ("HelmsOwn", message)
    } else {
        return None;
    };
    Some((reason, shortened(message, MESSAGE).into_owned()))
}

/// The relation of a policy in force to the others, as reason and message.
fn standing(name: &str, survey: &Survey) -> (&'static str, String) {
    match (survey.ties.get(name), survey.leaving.contains(name)) {
        (Some(ties), _) => {
            let told: Vec<_> = ties.iter().take(TOLD).map(String::as_str).collect();
            let message = format!(
                "In force, but it conflicts with a policy of equal priority: {}. Give them different \
                 priorities.",
                told.join("; ")
            );
            ("Conflict", shortened(message, MESSAGE).into_owned())
        }
        (None, true) => (
            "DriftStays",
            "In force. Changes are denied, but drift is not repaired: changes that bypass the webhook, for \
             example while the guard is down, remain. To revert them, set drift: Repair."
                .to_owned(),
        ),
        (None, false) => ("Accepted", "In force.".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyFate {
    Created,
    Changed,
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    pub name: String,
    pub uid: String,
    pub generation: i64,
    pub fate: PolicyFate,
    /// The field manager that wrote it last; empty if unknown.
    pub manager: String,
    /// When it was last written; `None` if unknown.
    pub time: Option<Timestamp>,
}

impl PolicyChange {
    fn from_object(object: &Value) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let (manager, time) = last_spec_writer(object).unwrap_or_default();
        Self {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            generation,
            fate: if generation <= 1 { PolicyFate::Created } else { PolicyFate::Changed },
            manager,
            time,
        }
    }

    fn deleted(name: &str, uid: &str, generation: i64) -> Self {
        let (name, uid) = (name.to_owned(), uid.to_owned());
        Self { name, uid, generation, fate: PolicyFate::Deleted, manager: String::new(), time: None }
    }
}

/// Follows the metadata of all namespaces of a cluster: it is one watch, and a policy that newly needs labels has them
/// at once.
pub struct Namespaces {
    client: kube::Client,
    in_force: Arc<ActivePolicies>,
    listings: Listings,
    keep: Box<dyn Fn(NamespacePolicyChange) + Send + Sync>,
}

/// Other policies apply in a namespace than before, because its labels changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePolicyChange {
    pub namespace: String,
    pub uid: String,
    /// The resourceVersion that has the new labels.
    pub resource_version: String,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

impl Namespaces {
    /// Follows the namespaces of the cluster behind `client` for `in_force`. Calls `keep` when a change of labels makes
    /// other policies apply in one.
    pub fn new(
        client: kube::Client,
        in_force: Arc<ActivePolicies>,
        keep: impl Fn(NamespacePolicyChange) + Send + Sync + 'static,
    ) -> Self {
        Self { client, in_force, listings: Listings::new(&[]), keep: Box::new(keep) }
    }

    pub fn progress(&self) -> tokio::sync::watch::Receiver<Progress> {
        self.listings.progress()
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let resource = ApiResource::new("", "v1", "Namespace", "namespaces");
        let watch = MetadataWatch::new(self.client.clone(), &resource, None, None);
        stop.run_until_cancelled(Reflector::new(watch.into_events()).run(&mut self)).await;
    }
}

impl Mirror for Namespaces {
    type Object = Meta;
    type Key = String;
    const OBJECTS: &'static str = "namespaces";
    const UNWATCHED: &'static str = "failed to watch namespaces; using their last known labels";

    fn set(&mut self, meta: Meta) -> Option<String> {
        let labels = meta.labels.unwrap_or_default();
        if let Some((before, after)) = self.in_force.changed_policies(&meta.name, &labels) {
            let (namespace, uid, resource_version) = (meta.name.clone(), meta.uid, meta.resource_version);
            (self.keep)(NamespacePolicyChange { namespace, uid, resource_version, before, after });
        }
        self.in_force.set_namespace(&meta.name, Some(labels));
        Some(meta.name)
    }

    fn remove(&mut self, meta: Meta) {
        self.in_force.set_namespace(&meta.name, None);
    }

    fn retain(&mut self, listed: &HashSet<String>) {
        let known = self.in_force.resolver().namespaces();
        for gone in known.iter().filter(|name| !listed.contains(*name)) {
            self.in_force.set_namespace(gone, None);
        }
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.listings)
    }
}

/// An autoscaler that is read once for a command.
pub struct Autoscaled {
    pub id: ObjectId,
    pub scales: AutoscalerRange,
    /// The release that its annotations name, unverified.
    pub named: Option<ReleaseId>,
}

pub async fn read_policies(client: &kube::Client) -> Result<Vec<Arc<CompiledPolicy>>, ClusterError> {
    let listed: Vec<DriftPolicy> = read_own_kind(client, guarded::policy_resource(), None).await?;
    Ok(listed.iter().filter_map(|policy| compile(policy).ok()).map(Arc::new).collect())
}

/// The valid DriftAllowances of a namespace, open or not.
pub async fn read_allowances(client: &kube::Client, namespace: &str) -> Result<Vec<Allowance>, ClusterError> {
    let listed: Vec<DriftAllowance> =
        read_own_kind(client, allowances::allowance_resource(), Some(namespace)).await?;
    Ok(listed.iter().filter_map(|allowance| Allowance::compile(allowance).ok()).collect())
}

pub async fn read_labels(client: &kube::Client, namespace: &str) -> Result<Labels, ClusterError> {
    let request = call::get(&format!("/api/v1/namespaces/{}", segment(namespace)?))?;
    let read: Partial = call::fetch(client, request, PATIENCE).await?;
    Ok(read.metadata.labels.unwrap_or_default())
}

/// The autoscalers of a namespace, and what each scales.
pub async fn autoscaled(client: &kube::Client, namespace: &str) -> Result<Vec<Autoscaled>, ClusterError> {
    let listed = Pages::<Value>::objects(client, &autoscalers::resource(), Some(namespace))?.all().await?;
    let autoscaled = |object: &Value| {
        let (id, scales) = autoscalers::read(object)?;
        Some(Autoscaled { id, scales, named: ReleaseId::named_by(object) })
    };
    Ok(listed.iter().filter_map(autoscaled).collect())
}

/// The objects of one of Kubemoor's own kinds; empty without its CustomResourceDefinition.
async fn read_own_kind<T: DeserializeOwned>(
    client: &kube::Client,
    resource: ApiResource,
    namespace: Option<&str>,
) -> Result<Vec<T>, ClusterError> {
    match Pages::<Value>::objects(client, &resource, namespace)?.all().await {
        Ok(items) => Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect()),
        Err(error) => confirm_absence(client, &resource.plural, error).await.map(|()| Vec::new()),
    }
}

#[cfg(test)]
mod tests;
