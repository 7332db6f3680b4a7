//! Deletions that also delete declared objects: of namespaces and of CustomResourceDefinitions.
//!
//! Entry points: [`of`] finds the declared objects, [`judge`] judges the deletion. A new owner is the
//! beginning of one: the garbage collector finishes it, and the guard lets the collector work.
//! Invariant: judged at the beginning, so that no deletion stops halfway; once the object is being deleted,
//! all later steps are allowed. Must not delete anything.

use std::sync::Arc;

use jiff::Timestamp;

use super::claims::is_local;
use super::edit::{Edit, Grounds, Outcome, Reason, Rules, Verdict};
use super::exceptions::exempting;
use super::judge::judge as judge_edit;
use super::{deletion, sealed};
use kubemoor_declare::model::{ObjectId, Operation};
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_helm::state::{self, Deletion};
use kubemoor_policy::Policy;

/// The objects that are deleted together with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Everything in this namespace.
    Namespace(String),
    /// Every object of this kind.
    Kind {
        /// The API group.
        group: String,
        /// The plural.
        plural: String,
    },
}

/// A declared object that would be deleted along.
#[derive(Clone, Debug)]
pub struct Dependant {
    /// The release that declares it.
    pub release: Arc<Release>,
    /// The object.
    pub object: ObjectId,
}

/// The objects that are deleted with `object`; `None` for other kinds.
pub fn taken(object: &ObjectId) -> Option<Taken> {
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "Namespace") => Some(Taken::Namespace(object.name.to_string())),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let (plural, group) = object.name.split_once('.')?;
            Some(Taken::Kind { group: group.to_owned(), plural: plural.to_owned() })
        }
        _ => None,
    }
}

/// The declared objects that are deleted too, one of each release: in the release's own namespace,
/// where the record alone counts. An object elsewhere counts only if it is live and its annotations
/// name the release, which this function cannot know.
pub fn of(taken: &Taken, index: &Index, rules: &Rules<'_>, now: Timestamp) -> Vec<Dependant> {
    let along = |object: &ObjectId| match taken {
        Taken::Namespace(namespace) => object.namespace.as_deref() == Some(namespace),
        Taken::Kind { group, plural } => {
            object.group == *group
                && index.kind_of_resource(group, plural).is_some_and(|(kind, _)| kind == object.kind)
        }
    };
    let protected = |release: &Release, object: &ObjectId| {
        is_local(release, object)
            && state::standing(release, object, rules.resolver.of(&release.id).operation_timeout, now)
                .is_some_and(|standing| {
                    standing.deletion != Deletion::Uninstalled
                        && standing.alternatives.iter().any(|declared| !declared.opted_out)
                })
    };
    let mut found: Vec<_> = index
        .releases()
        .filter_map(|release| {
            let object = release.objects.keys().filter(|it| along(it) && protected(release, it)).min()?;
            Some(Dependant { release: Arc::clone(release), object: ObjectId::clone(object) })
        })
        .collect();
    found.sort_by(|a, b| a.release.id.cmp(&b.release.id));
    found
}

/// Judges the deletion of a namespace or definition that also deletes `dependants`, or an update that
/// gives it a new owner. Helm may delete an object of its own release, whatever is deleted with it.
pub fn judge(
    edit: &Edit<'_>,
    claims: &[Arc<Release>],
    dependants: &[Dependant],
    rules: &Rules<'_>,
    now: Timestamp,
) -> Verdict {
    let itself = judge_edit(edit, claims, rules, super::edit::Evidence::None, now);
    let Some(first) = dependants.first() else { return itself };
    let deletes = match (edit.operation, edit.old, edit.new) {
        (Operation::Delete, ..) => true,
        (Operation::Update, Some(old), Some(new)) => sealed::adds_owner(old, new),
        _ => false,
    };
    let passes = !deletes
        || matches!(itself.reason, Reason::InBand | Reason::BeingDeleted | Reason::Identity)
        || super::identities::deletes(edit.actor, edit.object)
        || edit.old.is_some_and(deletion::is_underway);
    if passes || itself.outcome == Outcome::Deny {
        return itself;
    }
    let release = &first.release;
    let grounds = Grounds {
        release: release.id.clone(),
        revision: release.state.revision,
        fields: Vec::new(),
        exceptions: Vec::new(),
    };
    let policies: Vec<_> = dependants.iter().map(|it| rules.resolver.of(&it.release.id)).collect();
    let is_exempt = |policy: &Arc<Policy>| exempting(policy, edit.actor).is_some();
    let strictest = policies.iter().filter(|policy| !is_exempt(policy)).max_by_key(|policy| policy.edits);
    match (strictest, policies.first()) {
        (Some(policy), _) => Verdict::by_mode(policy, Reason::Dependants, Some(grounds)),
        (None, Some(policy)) => {
            let exceptions = exempting(policy, edit.actor).into_iter().collect();
            Verdict::excused(policy, Reason::Exempt, Grounds { exceptions, ..grounds })
        }
        (None, None) => itself,
    }
}

#[cfg(test)]
mod tests;
