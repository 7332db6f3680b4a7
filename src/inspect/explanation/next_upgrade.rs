//! The effect of the next Helm upgrade on a field that an exception lets differ.
//!
//! Entry point: [`NextUpgrade`]. Invariant: the conflicts are those of `kubemoor forecast`, as far as one
//! object shows which field manager Helm uses.

use serde_json::Value;

use crate::declaration::path::Path;
use crate::helm::record::ApplyMethod;
use crate::helm::release::{Declared, Release};
use crate::model::ObjectId;
use crate::verdict::ownership::{self, Conflict, Owners};

/// The state that an upgrade would find in one object.
pub(crate) struct NextUpgrade {
    conflicts: Vec<Conflict>,
    method: ApplyMethod,
    /// Of these a client-side Helm sends only what the chart changes.
    is_custom: bool,
}

impl NextUpgrade {
    pub(crate) fn of(object: &ObjectId, declared: &Declared, live: &Value, release: &Release) -> Self {
        let (owners, method) = (Owners::of(live), release.state.apply_method);
        let helm = ownership::helms([&owners], method);
        let conflicts = ownership::conflicts(&declared.fields(), live, &owners, helm.as_ref(), method);
        Self {
            conflicts,
            method,
            is_custom: object.group.contains('.') && !object.group.ends_with(".k8s.io"),
        }
    }

    /// What it does to a field whose value is the declared one, or is not.
    pub(crate) fn does(&self, path: &Path, is_as_declared: bool) -> String {
        let is_there = |it: &&Conflict| it.path.0.starts_with(&path.0) || path.0.starts_with(&it.path.0);
        let conflict = self.conflicts.iter().filter(is_there).max_by_key(|it| it.differs);
        match (conflict, is_as_declared) {
            (Some(Conflict { manager, differs: true, .. }), _) => format!(
                "fails with a conflict with field manager {}; with --force-conflicts it sets the release's value",
                manager.name
            ),
            (Some(Conflict { manager, .. }), _) => format!(
                "passes while the value stays; once the chart changes it, fails with a conflict with field manager {}",
                manager.name
            ),
            (None, true) if self.method == ApplyMethod::ServerSide => {
                "fails with a conflict if somebody changes the value before; with --force-conflicts it sets the release's value"
                    .to_owned()
            }
            (None, _) if self.method == ApplyMethod::ClientSide && self.is_custom => {
                "keeps a changed value until the chart changes it".to_owned()
            }
            (None, _) => "sets the release's value".to_owned(),
        }
    }
}
