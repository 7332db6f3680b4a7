//! The objects of a case.
//!
//! Entry point: `Case::objects`. Invariant: only the parts of the objects that the claims need are
//! read. Must not do I/O.

use std::sync::Arc;

use serde::de::DeserializeSeed;
use serde_json::Value;

use super::{Aspect, Case};
use crate::webhook::claims::is_sealed;
use crate::webhook::review::{self, ObjectError};
use kubemoor_declare::fields::Fields;
use kubemoor_declare::outline::Excerpt;
use kubemoor_declare::path::Segment;
use kubemoor_declare::prune::Pruned;
use kubemoor_helm::release::{Declarations, Release};
use kubemoor_verdict::adoption;
use kubemoor_verdict::edit::Rules;
use kubemoor_verdict::sealed;

impl Case<'_> {
    /// Reads the parts of the objects that the claims need: of an update, those that differ.
    pub(super) fn objects(
        &self,
        claims: &[Arc<Release>],
        rules: &Rules<'_>,
    ) -> Result<(Option<Value>, Option<Value>), ObjectError> {
        if self.subject.aspect == Aspect::Object && is_sealed(rules.resolver, &self.subject.object, claims) {
            let read =
                |text: &Option<Excerpt<'_>>| text.as_ref().map(|text| review::object(text.get())).transpose();
            return Ok((read(&self.old)?, read(&self.new)?));
        }
        let declared = self.declared_by(claims);
        let declared: Vec<&Fields> = declared.iter().map(Arc::as_ref).collect();
        if let (Some(old), Some(new), Aspect::Object) = (&self.old, &self.new, &self.subject.aspect)
            && let Some((old, new)) = Pruned::new(&declared).pair(old, new)
            // What becomes a release's is compared as a whole.
            && !adoption::may_adopt(&old, &new)
        {
            return Ok((Some(old), Some(new)));
        }
        Ok((self.read(self.old.as_ref(), &declared)?, self.read(self.new.as_ref(), &declared)?))
    }

    /// Whether an update gives the object an owner that it did not have, or may do so.
    pub(super) fn adds_owner(&self) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else { return false };
        Pruned::new(&[]).pair(old, new).is_none_or(|(old, new)| sealed::adds_owner(&old, &new))
    }

    /// Reads the parts of an object that the claims need.
    fn read(&self, text: Option<&Excerpt<'_>>, declared: &[&Fields]) -> Result<Option<Value>, ObjectError> {
        let Some(text) = text.map(Excerpt::get) else { return Ok(None) };
        if let Aspect::Scale(replicas) = &self.subject.aspect {
            let scale = review::object(text)?;
            // An absent number is zero: the API server leaves zeros out.
            let count = scale.pointer("/spec/replicas").cloned().unwrap_or_else(|| Value::from(0));
            return Ok(Some(nest(&replicas.0, count)));
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        match Pruned::new(declared).deserialize(&mut deserializer) {
            Ok(value) => Ok(Some(value)),
            Err(_) => review::object(text).map(Some),
        }
    }

    fn declared_by(&self, claims: &[Arc<Release>]) -> Vec<Arc<Fields>> {
        claims
            .iter()
            .filter_map(|claim| claim.objects.get(&self.subject.object))
            .flat_map(Declarations::all)
            .map(|declared| declared.fields())
            .collect()
    }
}

/// An object that holds nothing but `value` at `path`.
fn nest(path: &[Segment], value: Value) -> Value {
    path.iter().rev().fold(value, |value, segment| match segment {
        Segment::Field(name) => Value::Object([(name.clone(), value)].into_iter().collect()),
        _ => value,
    })
}
