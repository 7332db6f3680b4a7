//! The effect of the next Helm upgrade on the fields of a live object.
//!
//! Entry point: [`NextUpgrade`]. Invariant: the conflicts are those of `kubemoor forecast`. The
//! upgrade is taken to render the same manifest; an [`Effect`] says if a change of the chart makes a
//! difference. Must not show a value.

use std::fmt;

use serde_json::Value;

use super::{Conflict, FLUX, Manager, Owners, conflicts};
use kubemoor_declare::fields::Fields;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ApplyMethod;

/// The groups below `k8s.io` whose types Helm knows. A client-side Helm merges all other kinds of a
/// group with a dot without looking at the live object.
const KNOWN: [&str; 15] = [
    "admissionregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The state that an upgrade would find in one object.
#[derive(Clone, Debug)]
pub struct NextUpgrade {
    conflicts: Vec<Conflict>,
    /// The empty maps that the manifest declares, to which the upgrade merges what others set.
    empties: Vec<Path>,
    method: ApplyMethod,
    /// Flux applies with force and meets no conflict.
    is_forced: bool,
    /// Of these a client-side Helm sends only what the chart changes.
    is_generic: bool,
}

/// A field, and how it stands to its declaration.
#[derive(Clone, Copy, Debug)]
pub struct Inquiry<'a> {
    /// The field.
    pub path: &'a Path,
    /// The value in the manifest.
    pub declared: Option<&'a Value>,
    /// The value in the live object.
    pub live: Option<&'a Value>,
    /// How both compare.
    pub standing: Standing,
}

/// How a field stands to its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has the declared value.
    AsDeclared,
    /// It has another value, or may have.
    Differs,
    /// The manifest does not declare it.
    Undeclared,
}

/// What the next upgrade does to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It sets the release's value.
    Sets,
    /// It leaves the field as it is.
    Leaves,
    /// It leaves a changed value until the chart changes the field.
    LeavesUntilChanged,
    /// It fails: this field manager owns the field, with another value.
    Fails(String),
    /// It passes, and fails once the chart changes the field: this field manager owns it too.
    FailsOnceChanged(String),
    /// It passes, and fails once somebody changes the live value.
    FailsOnceEdited,
}

impl NextUpgrade {
    /// What an upgrade of a release that Helm writes by `method`, as the field manager `helm`, finds
    /// in the object `live`.
    pub fn of(
        object: &ObjectId,
        fields: &Fields,
        live: &Value,
        (helm, method): (Option<&Manager>, ApplyMethod),
    ) -> Self {
        let conflicts = conflicts(fields, live, &Owners::of(live), helm, method);
        let group = object.group.as_str();
        let is_forced = helm.is_some_and(|helm| helm.name == FLUX);
        let is_generic = group.contains('.') && !KNOWN.contains(&group);
        Self { conflicts, empties: fields.granular_empties(), method, is_forced, is_generic }
    }

    /// The conflicts that it meets, at once or once it changes these fields.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Its effect on a field.
    pub fn effect(&self, Inquiry { path, declared, live, standing }: Inquiry<'_>) -> Effect {
        let is_there = |it: &&Conflict| it.path.0.starts_with(&path.0) || path.0.starts_with(&it.path.0);
        if standing == Standing::Undeclared {
            return Effect::Leaves;
        }
        if let Some(Conflict { manager, differs, .. }) =
            self.conflicts.iter().filter(is_there).max_by_key(|it| it.differs)
        {
            return match differs {
                true => Effect::Fails(manager.name.clone()),
                false => Effect::FailsOnceChanged(manager.name.clone()),
            };
        }
        match (self.method, standing) {
            (_, Standing::AsDeclared) if self.empties.contains(path) => Effect::Leaves,
            (ApplyMethod::ServerSide, Standing::AsDeclared) if !self.is_forced => Effect::FailsOnceEdited,
            (ApplyMethod::ClientSide, _) if self.is_generic => Effect::LeavesUntilChanged,
            // A merge adds and changes entries, and removes only those that an older manifest declares.
            (ApplyMethod::ClientSide, Standing::Differs) if is_within(declared, live) => Effect::Leaves,
            _ => Effect::Sets,
        }
    }
}

impl Effect {
    /// Whether the upgrade fails because of the field, as things are.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Fails(_))
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORCED: &str = "with --force-conflicts it sets the release's value";
        match self {
            Self::Sets => f.write_str("sets the release's value"),
            Self::Leaves => f.write_str("leaves it as it is"),
            Self::LeavesUntilChanged => f.write_str("keeps a changed value until the chart changes it"),
            Self::Fails(manager) => {
                write!(f, "fails with a conflict with field manager {manager}; {FORCED}")
            }
            Self::FailsOnceChanged(manager) => write!(
                f,
                "passes while the value stays; once the chart changes it, fails with a conflict with field manager \
                 {manager}"
            ),
            Self::FailsOnceEdited => {
                write!(f, "fails with a conflict if somebody changes the value before; {FORCED}")
            }
        }
    }
}

/// Whether a map holds all that is declared for it, and more.
fn is_within(declared: Option<&Value>, live: Option<&Value>) -> bool {
    match (declared, live) {
        (Some(Value::Object(declared)), Some(Value::Object(live))) => declared.iter().all(|(name, value)| {
            live.get(name).is_some_and(|live| live == value || is_within(Some(value), Some(live)))
        }),
        _ => false,
    }
}
