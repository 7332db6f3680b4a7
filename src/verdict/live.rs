//! A live object held against what its release declares: where it has drifted.
//!
//! Entry point: [`compare`]. Invariant: what the state of the record does not
//! declare, what the manifest opts out and what is being deleted is never
//! drift; while a Helm operation is under way, agreeing with the manifest that
//! it comes from is as good as with the one that it goes to.

use jiff::Timestamp;
use serde_json::Value;

use crate::declaration::equality::Agreement;
use crate::declaration::fields::FieldChange;
use crate::helm::release::{Declared, Release};
use crate::helm::state::{self, Deletion};
use crate::model::ObjectId;
use crate::policy::Policy;
use crate::policy::grant::Grant;

/// How a live object stands to its declaration.
#[derive(Clone, Debug)]
pub enum Live<'r> {
    /// The state of the record declares no such object.
    NotDeclared,
    /// The manifest opts it out.
    OptedOut,
    /// It is being deleted.
    BeingDeleted,
    /// It is absent, and a Helm operation under way accounts for that.
    Awaited,
    /// It is absent, as an open allowance permits.
    Allowed,
    /// It is absent.
    Missing,
    /// Every declared field is as declared.
    InSync,
    /// Some fields are not, or may not be, as declared.
    Drifted {
        /// What was compared with.
        declared: &'r Declared,
        /// These fields.
        fields: Vec<FieldChange>,
    },
}

/// What of an object is not compared.
#[derive(Clone, Debug, Default)]
pub struct Spared {
    /// What is ignored, or allowed at the moment.
    pub grant: Grant,
    /// The fewest and the most replicas to which an autoscaler may scale it.
    pub replicas: Option<(i32, i32)>,
}

/// Compares `live`, the object as the API server holds it (`None`: absent) in
/// the version of the manifest, with what `release` declares of `object` now.
pub fn compare<'r>(
    release: &'r Release,
    object: &ObjectId,
    live: Option<&Value>,
    policy: &Policy,
    spared: &Spared,
    now: Timestamp,
) -> Live<'r> {
    let Some(standing) = state::standing(release, object, policy.operation_timeout, now) else {
        return Live::NotDeclared;
    };
    let baseline = release.objects.get(object).and_then(|declarations| declarations.baseline.as_ref());
    let mut alternatives = standing.alternatives;
    alternatives.extend(baseline.filter(|_| standing.pending));
    if alternatives.iter().any(|declared| declared.opted_out) {
        return Live::OptedOut;
    }
    let Some(live) = live else {
        let accounted = standing.pending || matches!(standing.deletion, Deletion::CreatedSince(_));
        return match (accounted, spared.grant.deletes) {
            (true, _) => Live::Awaited,
            (false, true) => Live::Allowed,
            (false, false) => Live::Missing,
        };
    };
    if live.pointer("/metadata/deletionTimestamp").is_some() {
        return Live::BeingDeleted;
    }
    let compared = alternatives.into_iter().map(|declared| (declared, spared.rest(declared, live)));
    match compared.min_by_key(|(_, fields)| weight(fields)) {
        Some((_, fields)) if fields.is_empty() => Live::InSync,
        Some((declared, fields)) => Live::Drifted { declared, fields },
        None => Live::NotDeclared,
    }
}

impl Spared {
    /// The fields that are not as declared and not spared.
    fn rest(&self, declared: &Declared, live: &Value) -> Vec<FieldChange> {
        let mut fields = declared.fields.drift(live);
        fields.retain(|field| !self.grant.mask.covers(&field.path) && !self.autoscaled(declared, field));
        fields
    }

    fn autoscaled(&self, declared: &Declared, field: &FieldChange) -> bool {
        let now = field.new.as_ref().and_then(Value::as_i64);
        match (self.replicas, now) {
            (Some((minimum, maximum)), Some(now)) => {
                declared.scale.as_ref() == Some(&field.path)
                    && (i64::from(minimum)..=i64::from(maximum)).contains(&now)
            }
            _ => false,
        }
    }
}

/// How far an object is from a declaration: what is only in doubt weighs least.
fn weight(fields: &[FieldChange]) -> (bool, usize) {
    (fields.iter().any(|field| field.agreement == Agreement::Differs), fields.len())
}

#[cfg(test)]
mod tests;
