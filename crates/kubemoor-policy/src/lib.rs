//! Policies for edits and drift: the modes of a release, the fields to ignore, and the changes that are allowed.
//!
//! [`compile::read`] reads policies from text, [`resolver::PolicyResolver`] returns the [`Policy`] of a release, and
//! [`Policy::rules`] its rules for one object. An [`allowance::Allowance`] is a temporary exception. Every policy and
//! allowance is validated before it takes effect.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod agreement;
pub mod allowance;
pub mod compile;
pub mod flaw;
pub mod flux;
pub mod guarded;
pub mod lint;
pub mod mask;
pub mod pattern;
pub mod resolver;
pub mod resource;
pub mod selector;
pub mod signing;
pub mod spelling;

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;

use crate::allowance::{StandingAllowance, allowance_from_annotations, with_list_keys};
use crate::compile::CompiledPolicy;
use crate::flaw::Flaw;
use crate::mask::{Mask, Seal};
use crate::pattern::PatternTrie;
use crate::resource::{AllowedAutoscalers, SubjectSpec};
use crate::selector::RuleTarget;
use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId};
use kubemoor_declare::path::Path;
use kubemoor_helm::release::DeclaredObject;

/// The number of cached rules above which those of dropped declarations are removed.
const MANY: usize = 64;

/// The effective policy of a release, resolved from all policies that match it.
#[derive(Clone, Debug)]
pub struct Policy {
    pub edits: EditsMode,
    pub drift: DriftMode,
    /// The policies that set `edits` and `drift`; `None` if they come from the guard's flags.
    pub edits_by: Option<String>,
    pub drift_by: Option<String>,
    /// A Helm operation is considered dead, and may no longer make changes, if its record is unchanged for this long.
    pub operation_timeout: Duration,
    pub repair: RepairRights,
    /// The autoscalers that may change replicas, if a policy sets them.
    pub autoscalers: Option<AllowedAutoscalers>,
    pub exempt: Vec<SubjectSpec>,
    /// The users who may write the release's records; all users if empty.
    pub operators: Vec<SubjectSpec>,
    pub notify: Vec<String>,
    matched: Vec<Arc<CompiledPolicy>>,
    rules: RuleCache,
}

/// Objects that repairs may write in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairRights {
    /// Roles, role bindings, webhook configurations and CustomResourceDefinitions.
    pub rbac: bool,
    /// Cluster-scoped objects, and objects in namespaces other than the release's.
    pub cluster_scoped: bool,
}

/// The rules of a [`Policy`] for one object, as a manifest declares it.
#[derive(Clone, Debug, Default)]
pub struct ObjectRules {
    /// The fields that are never compared and never changed.
    pub ignored: Mask,
    /// The standing allowances: the allowed changes, times and users.
    pub standing: Vec<Arc<StandingAllowance>>,
    /// The paths below which additions are drift too.
    pub sealed: Seal,
    /// The flaws of the manifest's own annotations, which then have no effect.
    pub flaws: Vec<Flaw>,
    /// The patterns of `ignored`, then those of `standing`.
    trie: PatternTrie,
}

type RulesOf = (Weak<DeclaredObject>, Arc<ObjectRules>);

/// Caches the rules of a policy for each declaration, by its address, until the declaration is dropped. A clone starts
/// empty.
#[derive(Debug, Default)]
struct RuleCache {
    kept: RwLock<HashMap<usize, RulesOf>>,
    /// The rules of all objects that the same targets select, by the indexes of these targets. So a policy with many
    /// paths and no target is stored once, not for each object.
    shared: RwLock<HashMap<Vec<usize>, Arc<ObjectRules>>>,
    /// The rules of objects that no rule selects.
    empty: Arc<ObjectRules>,
}

impl Policy {
    /// The policy of a guard without policies.
    pub fn new(edits: EditsMode, drift: DriftMode, operation_timeout: Duration) -> Self {
        Self {
            edits,
            drift,
            edits_by: None,
            drift_by: None,
            operation_timeout,
            repair: RepairRights::default(),
            autoscalers: None,
            exempt: Vec::new(),
            operators: Vec::new(),
            notify: Vec::new(),
            matched: Vec::new(),
            rules: RuleCache::default(),
        }
    }

    /// The rules for one object of the release, computed once for each declaration.
    pub fn rules(&self, object: &ObjectId, declared: &Arc<DeclaredObject>) -> Arc<ObjectRules> {
        let may_have_rules =
            declared.allow.is_some() || self.matched.iter().any(|policy| policy.has_object_rules());
        match may_have_rules {
            true => self.rules.get(declared, || self.shared_rules(object, declared)),
            false => Arc::clone(&self.rules.empty),
        }
    }

    /// The names of the matching policies, in order of precedence.
    pub fn matched(&self) -> impl Iterator<Item = &str> {
        self.matched.iter().map(|policy| policy.name.as_str())
    }

    /// Whether a rule chooses objects by labels or annotations.
    pub fn reads_metadata(&self) -> bool {
        self.matched.iter().any(|policy| policy.targets().any(RuleTarget::reads_metadata))
    }

    /// The name of each matching policy that ignores fields of the object, with these fields.
    pub fn ignoring<'p>(
        &'p self,
        object: &ObjectId,
        declared: &DeclaredObject,
    ) -> impl Iterator<Item = (&'p str, Mask)> {
        let fields = &*declared.fields();
        let mask = |policy: &CompiledPolicy| {
            let ignored = policy.ignore.iter().filter(|(target, _)| target.selects(object, declared));
            let patterns = ignored.flat_map(|(_, mask)| &mask.0);
            Mask(patterns.map(|pattern| pattern.with_list_keys(fields)).collect())
        };
        let masks: Vec<_> = self.matched.iter().map(|policy| (policy.name.as_str(), mask(policy))).collect();
        masks.into_iter().filter(|(_, mask)| !mask.is_empty())
    }

    /// Shares the rules with the other objects that the same targets select, unless they also depend on the object's
    /// declaration (its annotations, or positions in its lists).
    fn shared_rules(&self, object: &ObjectId, declared: &DeclaredObject) -> Arc<ObjectRules> {
        let targets = self.matched.iter().flat_map(|policy| policy.targets()).enumerate();
        let selecting: Vec<usize> = targets
            .filter(|(_, target)| target.selects(object, declared))
            .map(|(number, _)| number)
            .collect();
        let has_places = || self.matched.iter().any(|policy| policy.has_positions());
        if declared.allow.is_some() || !selecting.is_empty() && has_places() {
            return Arc::new(self.resolve(object, declared));
        }
        if let Some(rules) = self.rules.shared.read().get(&selecting) {
            return Arc::clone(rules);
        }
        // Resolved without the lock, so that no verdict waits for it.
        let rules = Arc::new(self.resolve(object, declared));
        Arc::clone(self.rules.shared.write().entry(selecting).or_insert(rules))
    }

    fn resolve(&self, object: &ObjectId, declared: &DeclaredObject) -> ObjectRules {
        let mut rules = ObjectRules::default();
        let fields = LazyCell::new(|| declared.fields());
        for policy in &self.matched {
            let ignored = policy.ignore.iter().filter(|(target, _)| target.selects(object, declared));
            let patterns = ignored.flat_map(|(_, mask)| &mask.0);
            rules.ignored.0.extend(patterns.map(|pattern| pattern.with_list_keys(&fields)));
            let sealed = policy.seal.iter().filter(|(target, _)| target.selects(object, declared));
            sealed.for_each(|(_, mask)| rules.sealed.add(mask, &fields));
            let allowed = policy.allow.iter().filter(|(target, _)| target.selects(object, declared));
            rules.standing.extend(allowed.map(|(_, standing)| with_list_keys(standing, &fields)));
        }
        match allowance_from_annotations(declared) {
            Ok(standing) => rules.standing.extend(standing),
            Err(flaws) => rules.flaws = flaws,
        }
        let allowed = rules.standing.iter().map(|standing| standing.grant.mask.0.as_slice());
        let numbered = rules.ignored.0.iter().map(std::slice::from_ref).chain(allowed).enumerate();
        rules.trie =
            numbered.flat_map(|(rule, patterns)| patterns.iter().map(move |it| (rule, it))).collect();
        rules
    }
}

impl ObjectRules {
    /// A text that identifies the rules under which an object was seen without additions; `None` if nothing is sealed.
    pub fn seal(&self) -> Option<String> {
        self.sealed.text(&self.ignored)
    }

    /// The rules that may apply to the field at `path` or below it. No other rule has an effect there.
    pub fn about(&self, path: &Path) -> (Mask, Vec<&Arc<StandingAllowance>>) {
        let (mut ignored, mut standing) = (Mask::default(), Vec::new());
        for rule in self.trie.at(path) {
            match self.ignored.0.get(rule) {
                Some(pattern) => ignored.0.push(pattern.clone()),
                None => standing.extend(self.standing.get(rule - self.ignored.0.len())),
            }
        }
        (ignored, standing)
    }
}

impl RuleCache {
    fn get(
        &self,
        declared: &Arc<DeclaredObject>,
        resolve: impl FnOnce() -> Arc<ObjectRules>,
    ) -> Arc<ObjectRules> {
        let key = Arc::as_ptr(declared).addr();
        let known =
            self.kept.read().get(&key).filter(|(of, _)| of.as_ptr() == Arc::as_ptr(declared)).cloned();
        if let Some((_, rules)) = known {
            return rules;
        }
        let rules = resolve();
        let mut kept = self.kept.write();
        if kept.len() >= MANY && kept.len() == kept.capacity() {
            kept.retain(|_, (declared, _)| declared.strong_count() > 0);
        }
        kept.insert(key, (Arc::downgrade(declared), Arc::clone(&rules)));
        rules
    }
}

impl Clone for RuleCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

// The samples name this crate as the tests of other crates do.
#[cfg(test)]
extern crate self as kubemoor_policy;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
mod samples;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;
