//! The policies in force: from DriftPolicies, from files, or from both.
//!
//! Entry points: [`InForce`], which combines the sources for the resolver; [`files`] and [`watch`] feed it.
//! Invariant: a policy that is not accepted changes nothing: its last accepted version stays in force. If
//! both sources have a policy of one name, the file's policy counts.

mod assess;
pub mod change;
pub mod files;
pub mod once;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use kubemoor_policy::compile::Compiled;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};

/// Accepted policies by name.
pub(super) type Accepted = BTreeMap<String, Arc<Compiled>>;

/// The policies in force, and their sources.
pub struct InForce {
    resolver: Arc<PolicyResolver>,
    cluster: Labels,
    sources: Mutex<Sources>,
    /// The notifiers that policies may name; unset while they are unknown.
    notifiers: OnceLock<BTreeSet<String>>,
    /// Counts the changes.
    changed: tokio::sync::watch::Sender<u64>,
}

#[derive(Default)]
struct Sources {
    files: Accepted,
    resources: Accepted,
}

impl InForce {
    /// Nothing but the defaults of `resolver`, which learns of every change;
    /// `cluster` are the labels that policies select clusters by.
    pub fn new(resolver: Arc<PolicyResolver>, cluster: Labels) -> Arc<Self> {
        let (sources, changed) = (Mutex::default(), tokio::sync::watch::Sender::new(0));
        Arc::new(Self { resolver, cluster, sources, notifiers: OnceLock::new(), changed })
    }

    /// Sets the notifiers that policies may name. Only the first call has an effect.
    pub fn set_notifiers(&self, names: impl IntoIterator<Item = String>) {
        self.notifiers.get_or_init(|| names.into_iter().collect());
    }

    /// Changes its value whenever a policy, or the labels of a namespace, come,
    /// change or go.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Has everything be open from now on, or no longer.
    pub fn set_open(&self, is_open: bool) {
        self.resolver.set_open(is_open);
        self.changed.send_modify(|count| *count += 1);
    }

    /// The resolver that is fed.
    pub fn resolver(&self) -> &Arc<PolicyResolver> {
        &self.resolver
    }

    /// Sets the labels of a namespace; `None` when it was deleted.
    pub(super) fn set_namespace(&self, name: &str, labels: Option<Labels>) {
        if self.resolver.set_namespace(name, labels) {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The policies that hold in a namespace, and those that will by these labels; none if they are the same, or
    /// the namespace is new.
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

    fn set_files(&self, accepted: Accepted) {
        self.set(|sources| &mut sources.files, accepted);
    }

    fn set_resources(&self, accepted: Accepted) {
        self.set(|sources| &mut sources.resources, accepted);
    }

    /// Whether a file has a policy of this name.
    fn is_in_files(&self, name: &str) -> bool {
        self.sources.lock().files.contains_key(name)
    }

    /// The notifiers that a policy names and that are not defined.
    fn unknown_notifiers<'p>(&self, policy: &'p Compiled) -> Vec<&'p str> {
        let is_unknown = |name: &&str| self.notifiers.get().is_some_and(|known| !known.contains(*name));
        policy.notify.iter().map(String::as_str).filter(is_unknown).collect()
    }

    fn is_in_cluster(&self, policy: &Compiled) -> bool {
        policy.is_in(&self.cluster)
    }

    fn set(&self, of: impl FnOnce(&mut Sources) -> &mut Accepted, accepted: Accepted) {
        let mut sources = self.sources.lock();
        let before = of(&mut sources);
        let same = |(left, right): (&Arc<Compiled>, &Arc<Compiled>)| Arc::ptr_eq(left, right);
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
