//! What to do about an object, and what to know of it.
//!
//! Entry points: [`of_undeclared`], [`Answered::advice`], [`means`]. Invariant: values only; every
//! command in it can be pasted.

use std::time::Duration;

use jiff::Timestamp;

use super::compare::{Comparison, MISSING};
use super::fields::{Field, FieldState};
use crate::declaration::path::Path;
use crate::helm::record::{Status, parse_record_name};
use crate::helm::release::Release;
use crate::helm::state;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::pattern::Pattern;
use crate::policy::seal::Seal;
use crate::verdict::ownership::Taken;
use crate::verdict::sealed;

/// What to know of a field that the manifest does not declare.
const UNDECLARED: &str = "The manifest does not declare this field: edits of it pass. List elements are named by their keys, such as [name=app].";

/// The same of a sealed one.
const SEALED: &str = "The manifest does not declare this field, and edits that set it are judged all the same: set, it stops the object from following its release.";

/// The same of one below a sealed path.
const ADDED: &str = "The manifest does not declare this field, and a policy seals it: edits that add something there are judged.";

/// An object that a release declares, and what was asked of it.
pub(super) struct Answered<'a> {
    pub(super) object: &'a ObjectId,
    pub(super) release: &'a ReleaseId,
    /// The fields that are asked about; none for those that are not as declared.
    pub(super) patterns: &'a [Pattern],
}

/// What to know of an object that no release declares.
pub(super) fn of_undeclared(object: &ObjectId) -> Vec<String> {
    if matches!(object.kind.as_str(), "Secret" | "ConfigMap")
        && object.group.is_empty()
        && parse_record_name(&object.name).is_some()
    {
        return vec!["It is a record of Helm's: what of it may be changed is a rule of its own.".to_owned()];
    }
    let mut advice = vec![
        "No release that you may read declares it; if none does, edits of it are not judged.".to_owned(),
    ];
    if matches!(object.kind.as_str(), "Namespace" | "CustomResourceDefinition") {
        advice.push("Its deletion is judged by what releases declare in it.".to_owned());
    }
    advice
}

/// What the state of a release's record means for edits.
pub(super) fn means(release: &Release, timeout: Duration, now: Timestamp) -> &'static str {
    if release.invalid.is_some() {
        return "its latest record cannot be believed: the last good one counts, and nothing is repaired";
    }
    if state::is_locked(release, timeout, now) {
        return "its Helm operation is stuck: what agrees with its manifest or the one before passes, nothing is repaired";
    }
    match release.state.status {
        Status::Deployed | Status::Superseded => "its manifest is the declaration",
        Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => {
            "a Helm operation is under way: what it writes is the declaration"
        }
        Status::Uninstalling => "it is being uninstalled: its deletions pass",
        Status::Failed if release.baseline.is_none() => {
            "its installation failed: correct the cause and run `helm upgrade --install`, or `helm uninstall`"
        }
        Status::Failed => {
            "its last operation failed: objects may match it or the revision deployed before; `helm upgrade` or `helm rollback` ends that, with `--force-conflicts` if Helm reports a conflict"
        }
        Status::Uninstalled | Status::Unknown => "it declares nothing",
    }
}

impl Answered<'_> {
    /// What to do, by what was found; `sealed` is what policies seal of the object.
    pub(super) fn advice(&self, found: &Comparison, sealed: &Seal, is_guarded: bool) -> Vec<String> {
        let is_undeclared = !self.patterns.is_empty() && found.fields.is_empty();
        let mut advice = match is_undeclared {
            true => vec![self.of_undeclared_field(sealed).to_owned()],
            false => self.ways_to_change(found, is_guarded),
        };
        advice.extend(found.taken.as_ref().map(|taken| self.way_back(taken)));
        advice
    }

    fn of_undeclared_field(&self, sealed: &Seal) -> &'static str {
        let names = |path: &Path| self.patterns.iter().any(|pattern| pattern.covers(path));
        if sealed::paths(self.object).any(|path| names(&path)) {
            return SEALED;
        }
        let mut paths = self.patterns.iter().filter_map(|pattern| pattern.to_string().parse::<Path>().ok());
        if paths.any(|path| sealed.covers(&path)) { ADDED } else { UNDECLARED }
    }

    /// How the object is changed for good, set right, or changed for a time.
    fn ways_to_change(&self, found: &Comparison, is_guarded: bool) -> Vec<String> {
        let ReleaseId { namespace, name } = self.release;
        let mut advice = vec![format!(
            "To change it for good: change the chart's values and run `helm upgrade {name} -n {namespace}`."
        )];
        let has_drifted = |field: &Field| field.state == FieldState::Drifted && field.spared_by.is_empty();
        if found.fields.iter().any(has_drifted) || found.state == MISSING {
            advice.push(format!("To see all that has drifted: `kubemoor diff {name} -n {namespace}`."));
            if is_guarded {
                advice.push(format!("To have it put right now: `kubemoor reconcile {name} -n {namespace}`."));
            }
        }
        if found.fields.iter().all(|field| field.spared_by.is_empty()) {
            advice.push(self.way_to_allow(found));
        }
        advice
    }

    fn way_to_allow(&self, found: &Comparison) -> String {
        let ObjectId { kind, namespace, name, .. } = self.object;
        let unless_named = if found.state == MISSING { "delete" } else { "PATH" };
        let path = found.fields.first().map_or(unless_named, |field| field.path.as_str());
        let place = namespace.as_ref().map_or(String::new(), |namespace| format!(" -n {namespace}"));
        let kind = kind.to_lowercase();
        format!(
            "To change it for a time: `kubemoor allow {kind}/{name} --path '{path}' --for 2h --reason WHY{place}`."
        )
    }

    fn way_back(&self, Taken { by, paths, .. }: &Taken) -> String {
        let ReleaseId { namespace, name } = self.release;
        let first = paths.first().map(ToString::to_string).unwrap_or_default();
        format!(
            "Field manager {by} owns {first}, so the next `helm upgrade` may fail with a conflict. To return it to Helm: `kubemoor reconcile {name} -n {namespace}`."
        )
    }
}
