//! Resolves the policy of a release ([`PolicyResolver::policy`] caches the results) and finds conflicts between the
//! policies that match it. A single value comes from the policy with the highest priority, then from the first by name;
//! lists are merged.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::Policy;
use crate::compile::CompiledPolicy;
use crate::mask::Mask;
use crate::pattern::{Pattern, PatternStep};
use crate::resource::{DriftPolicySpec, RepairSpec};
use crate::selector::RuleTarget;
use kubemoor_declare::model::{DriftMode, EditsMode, ReleaseId, Sweep};
use kubemoor_helm::storage::TrustedRecordNamespaces;

/// The labels of namespaces, or of a cluster.
pub type Labels = BTreeMap<String, String>;

/// The number of cached policies above which those that nothing else references are dropped: their releases are gone.
const MANY: usize = 1000;

/// All accepted policies that are in force in this cluster, in order of precedence, and the defaults.
#[derive(Clone, Debug)]
pub struct Policies {
    defaults: Policy,
    ranked: Vec<Arc<CompiledPolicy>>,
    storage: TrustedRecordNamespaces,
    cluster: Labels,
}

/// Resolves the policy of each release. Shared by its readers and the code that updates the policies.
#[derive(Debug)]
pub struct PolicyResolver {
    defaults: Arc<Policy>,
    /// The policy of every release while enforcement is disabled (emergency).
    unenforced_policy: Arc<Policy>,
    current: RwLock<ResolverState>,
}

#[derive(Debug)]
struct ResolverState {
    policies: Arc<Policies>,
    namespaces: HashMap<String, Labels>,
    resolved: HashMap<ReleaseId, Arc<Policy>>,
    /// When to drop cached policies that nothing else references.
    sweep: Sweep,
    /// Whether enforcement is disabled (emergency).
    is_enforcement_disabled: bool,
}

impl Policies {
    /// `defaults` apply where no policy sets a value; `cluster` are the labels of this cluster, which policies can
    /// select.
    pub fn new(
        defaults: Policy,
        cluster: &Labels,
        accepted: impl IntoIterator<Item = Arc<CompiledPolicy>>,
    ) -> Self {
        let mut ranked: Vec<_> = accepted.into_iter().filter(|policy| policy.is_in(cluster)).collect();
        ranked.sort_by(|a, b| (Reverse(a.spec.priority), &a.name).cmp(&(Reverse(b.spec.priority), &b.name)));
        let pairs = ranked.iter().flat_map(|policy| &policy.storage);
        let storage = pairs.map(|(records, releases)| (records.as_str(), releases.as_str())).collect();
        Self { defaults, ranked, storage, cluster: cluster.clone() }
    }

    /// The policy of a release whose namespace has these labels: each single value comes from the policy with the
    /// highest precedence that sets it, lists come from all.
    pub fn resolve(&self, release: &ReleaseId, namespace: &Labels) -> Policy {
        let matched: Vec<_> =
            self.ranked.iter().filter(|policy| policy.is_for(release, namespace)).cloned().collect();
        let mut policy = self.defaults.clone();
        for compiled in matched.iter().rev() {
            let DriftPolicySpec { edits, drift, repair, autoscalers, .. } = &compiled.spec;
            if let Some(edits) = edits {
                (policy.edits, policy.edits_by) = (*edits, Some(compiled.name.clone()));
            }
            if let Some(drift) = drift {
                (policy.drift, policy.drift_by) = (*drift, Some(compiled.name.clone()));
            }
            if let Some(RepairSpec { rbac, cluster_scoped }) = repair {
                policy.repair.rbac = rbac.unwrap_or(policy.repair.rbac);
                policy.repair.cluster_scoped = cluster_scoped.unwrap_or(policy.repair.cluster_scoped);
            }
            policy.autoscalers = autoscalers.or(policy.autoscalers);
        }
        for compiled in &matched {
            extend(&mut policy.exempt, &compiled.exempt);
            extend(&mut policy.operators, &compiled.operators);
            extend(&mut policy.notify, &compiled.spec.notify);
        }
        policy.matched = matched;
        policy
    }

    /// The names of the policies that may apply to releases in a namespace with these labels.
    pub fn of_namespace(&self, name: &str, labels: &Labels) -> Vec<&str> {
        let matching = self.ranked.iter().filter(|policy| policy.is_for_namespace(name, labels));
        matching.map(|policy| policy.name.as_str()).collect()
    }

    /// The policy that applies where no other sets a value.
    pub fn defaults(&self) -> &Policy {
        &self.defaults
    }

    /// The policies in force in this cluster, in order of precedence.
    pub fn ranked(&self) -> &[Arc<CompiledPolicy>] {
        &self.ranked
    }

    pub fn cluster(&self) -> &Labels {
        &self.cluster
    }

    /// The namespaces that may hold the records of releases in other namespaces, from all policies in force.
    pub fn storage(&self) -> &TrustedRecordNamespaces {
        &self.storage
    }

    /// Whether any policy reverts edits: the reverting webhook is registered only then.
    pub fn reverts(&self) -> bool {
        let modes = self.ranked.iter().filter_map(|policy| policy.spec.edits);
        modes.chain([self.defaults.edits]).any(|mode| mode == EditsMode::Revert)
    }
}

impl PolicyResolver {
    /// A resolver in which `defaults` apply to every release.
    pub fn new(defaults: Policy) -> Self {
        Self::of_policies(Policies::new(defaults, &Labels::new(), []))
    }

    /// A resolver of these policies that knows no namespace labels yet.
    pub fn of_policies(policies: Policies) -> Self {
        let defaults = Arc::new(policies.defaults.clone());
        let (namespaces, resolved) = (HashMap::new(), HashMap::new());
        let current = ResolverState {
            policies: Arc::new(policies),
            namespaces,
            resolved,
            sweep: Sweep::above(MANY),
            is_enforcement_disabled: false,
        };
        let open = Policy::new(EditsMode::Allow, DriftMode::Report, defaults.operation_timeout);
        Self { defaults, unenforced_policy: Arc::new(open), current: RwLock::new(current) }
    }

    /// The policy for requests without a release.
    pub fn defaults(&self) -> &Arc<Policy> {
        &self.defaults
    }

    pub fn policy(&self, release: &ReleaseId) -> Arc<Policy> {
        {
            let current = self.current.read();
            if current.is_enforcement_disabled {
                return Arc::clone(&self.unenforced_policy);
            }
            if current.policies.ranked.is_empty() {
                return Arc::clone(&self.defaults);
            }
            if let Some(policy) = current.resolved.get(release) {
                return Arc::clone(policy);
            }
        }
        // Resolved under the lock of the cache, so that no cached result outlives the policies that it came from.
        let mut current = self.current.write();
        let none = Labels::new();
        let labels = current.namespaces.get(&*release.namespace).unwrap_or(&none);
        let policy = Arc::new(current.policies.resolve(release, labels));
        if current.sweep.is_due(current.resolved.len()) {
            current.resolved.retain(|_, policy| Arc::strong_count(policy) > 1);
            let left = current.resolved.len();
            current.sweep.note_left(left);
        }
        current.resolved.insert(release.clone(), Arc::clone(&policy));
        policy
    }

    /// Disables or enables enforcement (emergency): while it is disabled, no policy applies, no edit is denied and
    /// nothing is repaired.
    pub fn set_enforcement_disabled(&self, is_open: bool) {
        self.current.write().is_enforcement_disabled = is_open;
    }

    pub fn is_enforcement_disabled(&self) -> bool {
        self.current.read().is_enforcement_disabled
    }

    pub fn policies(&self) -> Arc<Policies> {
        Arc::clone(&self.current.read().policies)
    }

    /// Replaces the policies. The resolver keeps the defaults that it was created with.
    pub fn set_policies(&self, policies: Policies) {
        let mut current = self.current.write();
        current.policies = Arc::new(policies);
        current.resolved.clear();
    }

    /// Sets the labels of a namespace; `None` if it was deleted. Returns whether a policy in use may have changed.
    pub fn set_namespace(&self, name: &str, labels: Option<Labels>) -> bool {
        let mut current = self.current.write();
        if current.namespaces.get(name) == labels.as_ref() {
            return false;
        }
        match labels {
            Some(labels) => drop(current.namespaces.insert(name.to_owned(), labels)),
            None => drop(current.namespaces.remove(name)),
        }
        let mut is_news = false;
        current.resolved.retain(|release, policy| {
            let stays = release.namespace != name;
            is_news |= !stays && Arc::strong_count(policy) > 1;
            stays
        });
        is_news
    }

    /// The labels of a namespace; `None` if they are unknown.
    pub fn known_labels(&self, namespace: &str) -> Option<Labels> {
        self.current.read().namespaces.get(namespace).cloned()
    }

    pub fn namespaces(&self) -> Vec<String> {
        self.current.read().namespaces.keys().cloned().collect()
    }
}

fn extend<T: Clone + PartialEq>(list: &mut Vec<T>, more: &[T]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Two policies that contradict each other for the same release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyConflict {
    /// The field that they set differently, such as `spec.edits`.
    pub field: &'static str,
    /// The policy that takes precedence, and its value.
    pub policy: String,
    pub value: String,
    /// The policy that is overridden, and its value.
    pub overridden_policy: String,
    pub overridden_value: String,
    pub why: PrecedenceReason,
}

/// Why one of two policies takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrecedenceReason {
    /// It has the higher priority: its own, then the other policy's.
    Priority(i32, i32),
    /// Both have this priority, and its name comes first.
    Name(i32),
    Ignored,
}

/// The path of a single value in a policy, and a function that formats the value.
type WrittenValue = (&'static str, fn(&DriftPolicySpec) -> Option<String>);

pub(crate) const VALUES: [WrittenValue; 5] = [
    ("spec.edits", |it| it.edits.map(|mode| format!("{mode:?}"))),
    ("spec.drift", |it| it.drift.map(|mode| format!("{mode:?}"))),
    ("spec.repair.rbac", |it| it.repair.as_ref()?.rbac.map(|is_set| is_set.to_string())),
    ("spec.repair.clusterScoped", |it| it.repair.as_ref()?.cluster_scoped.map(|is_set| is_set.to_string())),
    ("spec.autoscalers", |it| it.autoscalers.map(|which| format!("{which:?}"))),
];

impl fmt::Display for PolicyConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, policy, overridden_policy: over, why, .. } = self;
        write!(f, "{field} of policy {policy} takes precedence over that of policy {over}: {why}")
    }
}

impl fmt::Display for PrecedenceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(own, other) => write!(f, "priority {own} against {other}"),
            Self::Name(priority) => write!(f, "both have priority {priority}, and its name comes first"),
            Self::Ignored => f.write_str(
                "an ignored field is never compared, whatever the priorities; this applies to objects that \
                 both rules select",
            ),
        }
    }
}

impl Policy {
    /// The conflicts that the value in force wins only by its policy's name, since the priorities are equal.
    pub fn ties(&self) -> Vec<PolicyConflict> {
        let mut found = Vec::new();
        for value in &VALUES {
            let mut setting = self.matched.iter().filter(|policy| (value.1)(&policy.spec).is_some());
            let Some(first) = setting.next() else { continue };
            found.extend(setting.filter_map(|second| value_conflict(value, first, second)));
        }
        found.retain(|conflict| matches!(conflict.why, PrecedenceReason::Name(_)));
        found
    }

    /// The conflicts between each two of its policies.
    pub fn conflicts(&self) -> Vec<PolicyConflict> {
        let mut found = Vec::new();
        for (place, first) in self.matched.iter().enumerate() {
            for second in self.matched.iter().skip(place + 1) {
                found.extend(VALUES.iter().filter_map(|value| value_conflict(value, first, second)));
                found.extend(seal_conflicts(first, second));
                found.extend(seal_conflicts(second, first));
            }
        }
        found
    }
}

/// The conflict about a single value, in which `first` takes precedence.
fn value_conflict(
    &(field, says): &WrittenValue,
    first: &CompiledPolicy,
    second: &CompiledPolicy,
) -> Option<PolicyConflict> {
    let (own, other) = (says(&first.spec)?, says(&second.spec)?);
    let why = match (first.spec.priority, second.spec.priority) {
        (priority, same) if priority == same => PrecedenceReason::Name(priority),
        (priority, lower) => PrecedenceReason::Priority(priority, lower),
    };
    (own != other).then(|| PolicyConflict {
        field,
        policy: first.name.clone(),
        value: own,
        overridden_policy: second.name.clone(),
        overridden_value: other,
        why,
    })
}

/// One conflict for each path that `sealing` seals and `ignoring` ignores.
fn seal_conflicts<'p>(
    ignoring: &'p CompiledPolicy,
    sealing: &'p CompiledPolicy,
) -> impl Iterator<Item = PolicyConflict> + 'p {
    let sealed = sealing.seal.iter().flat_map(|(target, mask)| mask.0.iter().map(move |path| (target, path)));
    sealed.filter_map(|(target, path)| {
        let ignored = ignored(&ignoring.ignore, target, path)?;
        Some(PolicyConflict {
            field: "spec.seal",
            policy: ignoring.name.clone(),
            value: format!("ignores {ignored}"),
            overridden_policy: sealing.name.clone(),
            overridden_value: format!("seals {path}"),
            why: PrecedenceReason::Ignored,
        })
    })
}

/// The first ignored path at, above or below `path`, for objects that the target may select.
fn ignored<'p>(rules: &'p [(RuleTarget, Mask)], target: &RuleTarget, path: &Pattern) -> Option<&'p Pattern> {
    let rules = rules.iter().filter(|(other, _)| other.may_overlap(target));
    rules.flat_map(|(_, mask)| &mask.0).find(|other| meet(other, path))
}

/// Whether one pattern may match a path at, above or below a path that the other one matches.
fn meet(one: &Pattern, other: &Pattern) -> bool {
    one.0.iter().zip(&*other.0).all(|steps| match steps {
        (PatternStep::Any, _) | (_, PatternStep::Any) => true,
        (PatternStep::Only(left), PatternStep::Only(right)) => {
            steps.0.matches(right) || steps.1.matches(left)
        }
    })
}

#[cfg(test)]
mod tests;
