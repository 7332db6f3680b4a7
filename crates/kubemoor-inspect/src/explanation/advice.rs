//! Advice and notes on an object.
//!
//! Entry points: [`of_undeclared`], [`Answered::advice`], [`means`]. Invariant: values only. Every command in
//! the advice can be pasted.

use std::time::Duration;

use jiff::Timestamp;

use super::compare::{Comparison, MISSING};
use super::fields::{Field, FieldState};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::{Status, parse_record_name};
use kubemoor_helm::release::Release;
use kubemoor_helm::{state, values};
use kubemoor_policy::pattern::Pattern;
use kubemoor_policy::seal::Seal;
use kubemoor_verdict::message::{self, Upgrade};
use kubemoor_verdict::ownership::Taken;
use kubemoor_verdict::sealed;

/// The most paths of a command.
const PATHS: usize = 8;

/// A note on a field that the manifest does not declare.
const UNDECLARED: &str = "the release does not manage this field, so it may be changed. Name list elements by their keys, such as [name=app].";

/// The same of a sealed one.
const SEALED: &str = "the release does not set this field, but the guard checks changes of it: once set, it stops the object from following its release.";

/// The same of one below a sealed path.
const ADDED: &str =
    "the release does not set this field, and a policy seals it: the guard checks what is added there.";

/// An object that a release declares, and what was asked of it.
pub(super) struct Answered<'a> {
    pub(crate) object: &'a ObjectId,
    /// How to change the release permanently.
    pub(crate) upgrade: &'a Upgrade,
    /// The requested fields; empty for all that differ from their declaration.
    pub(crate) patterns: &'a [Pattern],
}

/// Notes on an object that no release declares.
pub(crate) fn of_undeclared(object: &ObjectId) -> Vec<String> {
    if matches!(object.kind.as_str(), "Secret" | "ConfigMap")
        && object.group.is_empty()
        && parse_record_name(&object.name).is_some()
    {
        return vec![
            "It is a Helm release record. The guard denies changes of its manifest, the removal of the last deployed revision, \
             and labels that no longer agree with its content; and every change by others than the `operators` of a policy."
                .to_owned(),
            "Use helm upgrade, helm rollback or helm uninstall, which write the records.".to_owned(),
        ];
    }
    let mut advice =
        vec!["No release that you may read manages it. If no other does, it may be changed.".to_owned()];
    if matches!(object.kind.as_str(), "Namespace" | "CustomResourceDefinition") {
        advice.push(
            "The guard denies its deletion while releases manage objects in it: `kubectl moor get releases -A` lists them."
                .to_owned(),
        );
    }
    advice
}

/// The effect of a release's state on changes.
pub(crate) fn means(release: &Release, timeout: Duration, now: Timestamp) -> &'static str {
    if release.invalid.is_some() {
        return "the latest record cannot be read: the last valid revision is used, and nothing is repaired";
    }
    if state::is_locked(release, timeout, now) {
        return "the Helm operation is stuck: changes to its values or to those of the revision before are allowed, and nothing is repaired";
    }
    match release.state.status {
        Status::Deployed | Status::Superseded => "its manifest says what the guard protects",
        Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => {
            "a Helm operation is in progress: what it writes is allowed"
        }
        Status::Uninstalling => "Helm uninstalls it: its deletions are allowed",
        Status::Failed if release.baseline.is_none() => {
            "its installation failed: correct the cause and run `helm upgrade --install`, or `helm uninstall`"
        }
        Status::Failed => {
            "its last operation failed: objects may match it or the revision deployed before; `helm upgrade` or `helm rollback` ends that, with `--force-conflicts` if Helm reports a conflict"
        }
        Status::Uninstalled | Status::Unknown => "it manages nothing",
    }
}

impl Answered<'_> {
    /// Advice for the findings; `sealed` holds the fields of the object that policies seal.
    pub(super) fn advice(&self, found: &Comparison, sealed: &Seal, is_guarded: bool) -> Vec<String> {
        let is_managed = |pattern: &&Pattern| {
            let paths = found.fields.iter().filter_map(|field| field.path.parse::<Path>().ok());
            paths.into_iter().any(|path| pattern.covers(&path) || pattern.reaches_below(&path))
        };
        let unmanaged: Vec<_> = self.patterns.iter().filter(|pattern| !is_managed(pattern)).collect();
        let mut advice: Vec<String> = unmanaged
            .iter()
            .map(|pattern| format!("{pattern}: {}", self.of_undeclared_field(pattern, sealed)))
            .collect();
        let is_free = |pattern: &&Pattern| self.of_undeclared_field(pattern, sealed) == UNDECLARED;
        if self.patterns.is_empty()
            || !unmanaged.iter().copied().all(|it| is_free(&it))
            || !found.fields.is_empty()
        {
            advice.extend(self.ways_to_change(found, is_guarded));
        }
        advice.extend(found.taken.as_ref().map(|taken| self.way_back(taken)));
        if is_guarded {
            advice.push(self.way_to_the_ledger());
        }
        advice
    }

    fn of_undeclared_field(&self, pattern: &Pattern, sealed: &Seal) -> &'static str {
        if sealed::paths(self.object).any(|path| pattern.covers(&path)) {
            return SEALED;
        }
        let path = pattern.to_string().parse::<Path>();
        if path.is_ok_and(|path| sealed.covers(&path)) { ADDED } else { UNDECLARED }
    }

    /// How to change the object permanently, repair it, or change it for a time.
    fn ways_to_change(&self, found: &Comparison, is_guarded: bool) -> Vec<String> {
        let ReleaseId { namespace, name } = &self.upgrade.release;
        let values: Vec<_> =
            found.fields.iter().map(|field| values::likeliest(field.values.clone())).collect();
        let mut advice = vec![self.upgrade.text(&values)];
        let has_drifted = |field: &Field| field.state == FieldState::Drifted && field.spared_by.is_empty();
        if found.fields.iter().any(has_drifted) || found.state == MISSING {
            advice.push(format!("To see all drift of the release: kubectl moor diff {name} -n {namespace}"));
            if is_guarded {
                advice.push(format!("To repair it now: kubectl moor reconcile {name} -n {namespace}"));
            }
        }
        if found.fields.iter().all(|field| field.spared_by.is_empty()) {
            advice.push(self.way_to_allow(found));
        }
        advice
    }

    fn way_to_allow(&self, found: &Comparison) -> String {
        let unless_named = if found.state == MISSING { "delete" } else { "PATH" };
        let asked = self.patterns.iter().map(ToString::to_string);
        let mut paths: Vec<String> =
            found.fields.iter().map(|field| field.path.clone()).take(PATHS).collect();
        if paths.is_empty() {
            paths = asked.chain([unless_named.to_owned()]).take(self.patterns.len().max(1)).collect();
        }
        format!("To change it for a while: {}", message::allow(self.object, &self.upgrade.release, &paths))
    }

    /// How to find out who changed the object.
    fn way_to_the_ledger(&self) -> String {
        let audit = message::audit(self.object, &self.upgrade.release);
        format!("To see who changed it in the last month: {audit}")
    }

    fn way_back(&self, Taken { by, paths, .. }: &Taken) -> String {
        let ReleaseId { namespace, name } = &self.upgrade.release;
        let first = paths.first().map(ToString::to_string).unwrap_or_default();
        format!(
            "Field manager {by} owns {first}, so the next helm upgrade may fail with a conflict. To return it to Helm: kubectl moor reconcile {name} -n {namespace}"
        )
    }
}
