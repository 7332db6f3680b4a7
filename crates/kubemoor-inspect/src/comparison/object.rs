//! The state of one object in a comparison, and of its fields. No report shows a Secret's values.

use serde::Serialize;
use serde_json::Value;

use kubemoor_declare::compare::is_alternative;
use kubemoor_declare::equality::Agreement;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Segment;
use kubemoor_helm::values::Candidate;
use kubemoor_verdict::difference::{Difference, Values};
use kubemoor_verdict::health::ObjectState;
use kubemoor_verdict::ownership::{Effect, Inquiry, NextUpgrade, Owners, Standing};
use kubemoor_verdict::sealed;
use kubemoor_verdict::shown::Shown;

/// What is the matter with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub enum State {
    /// Some fields are not as declared.
    Drifted,
    /// It does not exist.
    Missing,
    /// Some fields may not be as declared.
    InDoubt,
    /// Its fields match, and another field manager owns some of them.
    Ownership,
    /// A Helm operation under way will make it.
    Awaited,
    /// The operation that failed has not created it.
    NotCreated,
    /// It does not exist, as an exception or its own time to live allows.
    Allowed,
    /// It differs as an exception allows.
    AllowedToDiffer,
    /// Another release owns it.
    Foreign,
    /// The manifest opts it out.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// The API server serves no such kind.
    NotServed,
    /// It could not be read.
    Unread,
}

impl State {
    /// The health of an object in this state.
    pub(crate) fn health(self) -> ObjectState {
        match self {
            Self::Drifted => ObjectState::Changed,
            // A kind that is not served has no objects.
            Self::Missing | Self::NotServed => ObjectState::Missing,
            Self::InDoubt => ObjectState::InDoubt,
            Self::Ownership => ObjectState::Ownership,
            Self::Awaited | Self::NotCreated => ObjectState::Awaited,
            Self::Allowed | Self::AllowedToDiffer => ObjectState::Allowed,
            Self::Foreign => ObjectState::Foreign,
            Self::OptedOut => ObjectState::OptedOut,
            Self::BeingDeleted => ObjectState::Deleting,
            Self::Unread => ObjectState::Unread,
        }
    }
}

/// One declared field that is not, or may not be, as declared.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct FieldReport {
    pub path: String,
    pub what: What,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Shown>,
    /// Where both first differ, of long or nested values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    pub doubt: bool,
    /// The field managers that own it.
    #[serde(skip)]
    pub owners: Vec<String>,
    /// What the next Helm upgrade does to it.
    #[serde(skip)]
    pub next_upgrade: Effect,
    /// The chart values that probably set it, where they were looked for.
    #[serde(skip)]
    pub chart_values: Vec<Candidate>,
}

/// What is the matter with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// It has another value.
    Changed,
    /// It is absent.
    Removed,
    /// The list has no element of that key.
    ElementRemoved,
    /// The element was given other keys.
    ElementMoved,
    /// The list has several elements of that key.
    ElementRepeated,
}

impl FieldReport {
    pub(crate) fn of(object: &ObjectId, field: FieldChange, owners: &Owners, next: &NextUpgrade) -> Self {
        let next_upgrade = next.effect(inquiry(object, &field));
        let values = [field.declared.as_ref(), None, field.new.as_ref()];
        let Values { declared, new, difference, .. } = Values::of(object, &field.path, values);
        let what = match (field.path.0.last(), &field.new) {
            (Some(Segment::Element(_)), _) => What::ElementRemoved,
            (Some(Segment::Key(_)), None) if field.declared.is_none() => What::ElementRemoved,
            (Some(Segment::Key(_)), Some(Value::Object(_))) if field.declared.is_none() => What::ElementMoved,
            (Some(Segment::Key(_)), Some(_)) if field.declared.is_none() => What::ElementRepeated,
            (_, None) => What::Removed,
            (_, Some(_)) => What::Changed,
        };
        Self {
            what,
            declared,
            live: new,
            difference,
            doubt: field.agreement == Agreement::Doubt,
            owners: owners.of_path(&field.path).into_iter().map(|manager| manager.name.clone()).collect(),
            path: field.path.to_string(),
            next_upgrade,
            chart_values: Vec::new(),
        }
    }
}

/// The question what the next upgrade does to a field that is not, or may not be, as declared.
fn inquiry<'a>(object: &ObjectId, field: &'a FieldChange) -> Inquiry<'a> {
    let is_declared = sealed::is_declared(object, field) && !is_alternative(field);
    let standing = if is_declared { Standing::Differs } else { Standing::Undeclared };
    Inquiry { path: &field.path, declared: field.declared.as_ref(), live: field.new.as_ref(), standing }
}
