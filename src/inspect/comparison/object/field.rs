//! One declared field in a comparison.
//!
//! Entry point: [`FieldReport::of`]. Invariant: no report shows a Secret's values.

use serde::Serialize;
use serde_json::Value;

use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::declaration::path::Segment;
use crate::helm::values::Candidate;
use crate::model::ObjectId;
use crate::verdict::difference::{Difference, Values};
use crate::verdict::ownership::{Effect, Inquiry, NextUpgrade, Owners, Standing};
use crate::verdict::sealed;
use crate::verdict::shown::Shown;

/// One declared field that is not, or may not be, as declared.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct FieldReport {
    pub(crate) path: String,
    pub(crate) what: What,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<Shown>,
    /// Where both first differ, of long or nested values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<Box<Difference>>,
    pub(crate) doubt: bool,
    /// The field managers that own it.
    #[serde(skip)]
    pub(crate) owners: Vec<String>,
    /// What the next Helm upgrade does to it.
    #[serde(skip)]
    pub(crate) next_upgrade: Effect,
    /// The chart value that probably sets it, where that was looked for.
    #[serde(skip)]
    pub(crate) chart_value: Option<Candidate>,
}

/// What is the matter with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum What {
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
            chart_value: None,
        }
    }
}

/// The question what the next upgrade does to a field that is not, or may not be, as declared.
fn inquiry<'a>(object: &ObjectId, field: &'a FieldChange) -> Inquiry<'a> {
    let is_declared = sealed::is_declared(object, field);
    let standing = if is_declared { Standing::Differs } else { Standing::Undeclared };
    Inquiry { path: &field.path, declared: field.declared.as_ref(), live: field.new.as_ref(), standing }
}
