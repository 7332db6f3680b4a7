//! A review's fields by the outline of its text: the objects, which are most of
//! it, are found without being read.
//!
//! Entry points: `Fields::outlined`, `Fields::outlined_behind_head`. Invariant: of a body that [`Fields::read`]
//! reads, this gives the same or nothing, whatever an editor put into the
//! objects. What is no review gives nothing, and [`Fields::read`] says why.
//! What nobody asks for is not checked.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};

use super::{Excerpt, Field, Fields, Met, Outer};
use crate::declaration::outline::{Entry, Outline, Part};

/// The first field that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    Head,
    BehindHead,
}

impl<'a> Fields<'a> {
    pub(in super::super) fn outlined(body: &'a [u8]) -> Option<Self> {
        Self::outlined_from(body, Begin::Head)
    }

    /// The same without the fields of the head.
    pub(in super::super) fn outlined_behind_head(body: &'a [u8]) -> Option<Self> {
        Self::outlined_from(body, Begin::BehindHead)
    }

    fn outlined_from(body: &'a [u8], begin: Begin) -> Option<Self> {
        let whole = simdutf8::basic::from_utf8(body).ok()?;
        let outline = Arc::new(Outline::of(whole));
        let mut fields = Self::default();
        outline.root(whole)?.each_entry(|entry| {
            match (name(&entry)?, entry.value) {
                (Outer::ApiVersion, value) if fields.api_version.is_none() => {
                    fields.api_version = read(value)?;
                }
                (Outer::Kind, value) if fields.kind.is_none() => fields.kind = read(value)?,
                (Outer::Request, value) if !fields.has_request => {
                    fields.has_request = true;
                    fields.outlined_request(value, &outline, begin)?;
                }
                (Outer::Other, _) => {}
                _ => return None,
            }
            Some(())
        })?;
        Some(fields)
    }

    fn outlined_request(
        &mut self,
        request: Part<'a, '_>,
        outline: &Arc<Outline>,
        begin: Begin,
    ) -> Option<()> {
        let mut met = Met::new();
        request.each_entry(|entry| {
            let (field, value) = (name::<Field>(&entry)?, entry.value);
            if !met.note(field) {
                return None;
            }
            match field {
                field if begin == Begin::BehindHead && field < Field::UserInfo => {}
                Field::Uid => self.uid = read(value)?,
                Field::Kind => self.object_kind = read(value)?,
                Field::Resource => self.resource = read(value)?,
                Field::SubResource => self.subresource = read(value)?,
                Field::Name => self.name = read(value)?,
                Field::Namespace => self.namespace = read(value)?,
                Field::Operation => self.operation = read(value)?,
                Field::UserInfo => self.user = read(value)?,
                Field::Object => self.object = object(value, outline),
                Field::OldObject => self.old_object = object(value, outline),
                Field::DryRun => self.dry_run = read(value)?,
                Field::Options => self.options = read(value)?,
                Field::RequestKind | Field::RequestResource | Field::RequestSubResource | Field::Other => {}
            }
            Some(())
        })
    }
}

/// The field of that name. A review spells its own fields without escapes.
fn name<'a, F: Deserialize<'a>>(entry: &Entry<'a, '_>) -> Option<F> {
    let name = Some(entry.name).filter(|name| !name.contains('\\'))?;
    F::deserialize(StrDeserializer::<Error>::new(name)).ok()
}

fn read<'a, T: Deserialize<'a>>(value: Part<'a, '_>) -> Option<T> {
    serde_json::from_str(value.text()).ok()
}

fn object<'a>(value: Part<'a, '_>, outline: &Arc<Outline>) -> Option<Excerpt<'a>> {
    (value.text() != "null").then(|| Excerpt::within(value, outline))
}

#[cfg(test)]
mod tests;
