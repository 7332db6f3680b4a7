//! The declared fields of an object that are asked about.
//!
//! Entry point: [`Subject::fields`]. Invariant: a Secret's values are not shown.

use serde::Serialize;
use serde_json::Value;

use super::exceptions::Words;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ChartSource;
use kubemoor_helm::release::Declared;
use kubemoor_helm::values::{self, Candidate, Question};
use kubemoor_policy::mask::Mask;
use kubemoor_policy::pattern::Pattern;
use kubemoor_verdict::difference::{Difference, Values};
use kubemoor_verdict::edit::Reason;
use kubemoor_verdict::exceptions::{Exceptions, Source};
use kubemoor_verdict::ownership::{Inquiry, Manager, NextUpgrade, Owners, Standing};
use kubemoor_verdict::sealed;
use kubemoor_verdict::shown::Shown;
use kubemoor_verdict::{additions, drift};

/// One declared field.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    pub path: String,
    pub state: FieldState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Shown>,
    /// Where both first differ, of long or nested values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    /// Who owns it by `managedFields`.
    pub managers: Vec<Manager>,
    /// The chart values that probably set it, the likeliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Candidate>,
    /// The rules and allowances that cover it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spared_by: Vec<String>,
    /// What the next Helm upgrade does to the field, where one of them covers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upgrade: Option<String>,
}

/// How a field stands to its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub enum FieldState {
    /// It is as declared.
    AsDeclared,
    /// It is not.
    Drifted,
    /// It may not be.
    InDoubt,
    /// There is no live object.
    Absent,
}

/// An object whose fields are asked about.
pub(crate) struct Subject<'a> {
    pub(crate) object: &'a ObjectId,
    pub(crate) declared: &'a Declared,
    /// None where it is absent.
    pub(crate) live: Option<&'a Value>,
    pub(crate) exceptions: &'a Exceptions<'a>,
    pub(crate) words: Words<'a>,
    /// None where the object is absent.
    pub(crate) next_upgrade: Option<NextUpgrade>,
    /// Whether its release is deployed.
    pub(crate) is_deployed: bool,
    /// What the latest revisions were rendered from, newest first.
    pub(crate) sources: &'a [ChartSource],
}

/// The facts about one field.
struct Look {
    path: Path,
    state: FieldState,
    /// Whether the manifest declares it.
    is_declared: bool,
    declared: Option<Value>,
    live: Option<Value>,
    /// Why it may differ.
    excused: Option<Reason>,
}

impl Subject<'_> {
    /// The declared fields that `patterns` name; without any, those that are not
    /// as declared.
    pub(crate) fn fields(&self, patterns: &[Pattern]) -> Vec<Field> {
        let is_asked =
            |path: &Path| patterns.iter().any(|pattern| pattern.covers(path) || pattern.reaches_below(path));
        let changes = self.live.map(|live| self.drift(live)).unwrap_or_default();
        let told = changes.iter().filter(|change| patterns.is_empty() || is_asked(&change.path));
        let mut looks: Vec<Look> = told.map(|change| self.look(change)).collect();
        if !patterns.is_empty() {
            looks.extend(self.unchanged(&changes).filter(|look| is_asked(&look.path)));
        }
        let owners = self.live.map(Owners::of).unwrap_or_default();
        looks.into_iter().map(|look| self.field(look, &owners)).collect()
    }

    /// All that differs, additions included, each path once.
    fn drift(&self, live: &Value) -> Vec<FieldChange> {
        let fields = &self.declared.fields();
        let mut changes = drift::of_fields(fields, live, self.is_deployed);
        let mut sealed = sealed::drift(self.object, fields, live);
        sealed.retain(|it| changes.iter().all(|known| known.path != it.path));
        changes.extend(sealed);
        let mut added = additions::drift(self.object, fields, self.exceptions.sealed(), live);
        added.retain(|it| changes.iter().all(|known| known.path != it.path));
        changes.extend(added);
        changes
    }

    fn look(&self, change: &FieldChange) -> Look {
        let state = match change.agreement {
            Agreement::Doubt => FieldState::InDoubt,
            Agreement::Agrees => FieldState::AsDeclared,
            Agreement::Altered
            | Agreement::Missing
            | Agreement::Added
            | Agreement::Within
            | Agreement::Differs => FieldState::Drifted,
        };
        Look {
            path: change.path.clone(),
            state,
            is_declared: sealed::is_declared(self.object, change),
            declared: change.declared.clone(),
            live: change.new.clone(),
            excused: self.exceptions.of_field(change),
        }
    }

    /// The declared fields that no change reports: those neither at nor below the path of a change.
    fn unchanged<'c>(&'c self, changes: &'c [FieldChange]) -> impl Iterator<Item = Look> + 'c {
        let state = if self.live.is_some() { FieldState::AsDeclared } else { FieldState::Absent };
        let is_told = |path: &Path| changes.iter().any(|change| path.0.starts_with(&change.path.0));
        let leaves = self.declared.fields().leaves().into_iter();
        leaves.filter(move |(path, _)| !is_told(path)).map(move |(path, value)| {
            let live = self.live.and_then(|live| path.get(live).first().map(|value| (*value).clone()));
            Look { path, state, is_declared: true, declared: Some(value), live, excused: None }
        })
    }

    /// The chart values that probably set a field: to its live value, where that is another one.
    fn candidates(&self, look: &Look) -> Vec<Candidate> {
        let is_secret = self.object.group.is_empty() && self.object.kind == "Secret";
        let new = look.live.as_ref().filter(|_| look.state == FieldState::Drifted && !is_secret);
        let of = |place: Option<&str>, new| {
            values::candidates(self.sources, Question { object: self.object, path: &look.path, place, new })
        };
        let shown = [look.declared.as_ref(), None, look.live.as_ref()];
        match Values::of(self.object, &look.path, shown).difference {
            Some(difference) if look.state != FieldState::AsDeclared => {
                let new = difference.new.as_ref().filter(|_| difference.line.is_none());
                let new = new.and_then(|new| serde_json::from_str(new.as_str()).ok());
                of(Some(&difference.path), new.as_ref())
            }
            _ => of(None, new),
        }
    }

    fn field(&self, look: Look, owners: &Owners) -> Field {
        let sources = self.exceptions.sources().into_iter().filter(|source| look.is_spared_by(source));
        let values = [look.declared.as_ref(), None, look.live.as_ref()];
        let Values { declared, new, difference, .. } = Values::of(self.object, &look.path, values);
        let spared_by: Vec<_> =
            sources.flat_map(|source| self.words.of_source(source, Some(&look.path))).collect();
        let next_upgrade = self.next_upgrade.as_ref().filter(|_| !spared_by.is_empty());
        Field {
            path: look.path.to_string(),
            state: look.state,
            declared,
            live: new,
            difference: difference.filter(|_| look.state != FieldState::AsDeclared),
            values: self.candidates(&look),
            managers: owners.of_path(&look.path).into_iter().cloned().collect(),
            next_upgrade: next_upgrade.map(|next| next.effect(look.inquiry()).to_string()),
            spared_by,
        }
    }
}

impl Look {
    fn inquiry(&self) -> Inquiry<'_> {
        let standing = match self.state {
            _ if !self.is_declared => Standing::Undeclared,
            FieldState::AsDeclared => Standing::AsDeclared,
            FieldState::Drifted | FieldState::InDoubt | FieldState::Absent => Standing::Differs,
        };
        let (declared, live) = (self.declared.as_ref(), self.live.as_ref());
        Inquiry { path: &self.path, declared, live, standing }
    }

    fn is_spared_by(&self, source: &Source<'_>) -> bool {
        let Self { path, state, excused, .. } = self;
        let covers = |mask: &Mask| mask.covers(path) || (excused.is_some() && mask.reaches_below(path));
        match source {
            Source::Ignored(mask) => covers(mask),
            Source::Standing(standing) => covers(&standing.grant.mask),
            Source::Allowance(_, mask) => covers(mask),
            Source::Autoscaler(_, replicas) => {
                let differs = matches!(state, FieldState::Drifted | FieldState::InDoubt);
                **replicas == *path && (!differs || *excused == Some(Reason::Autoscaled))
            }
        }
    }
}
