//! The values of a request's fields, however the body is read.
//!
//! Entry points: [`Given`], [`Next`], `Fields::take`. Invariant: each field is named once, for both
//! ways of reading. Must not check values.

use serde::de::{Deserialize, IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::{Excerpt, Field, Fields};

/// The value of a field, however the body is read.
pub(super) trait Given<'a>: Sized {
    type Error;

    /// Reads it as a value of this type.
    fn read<T: Deserialize<'a>>(self) -> Result<T, Self::Error>;

    /// The text of an object; `None` for null.
    fn object(self) -> Result<Option<Excerpt<'a>>, Self::Error>;

    /// Skips it.
    fn skip(self) -> Result<(), Self::Error>;
}

/// The value that comes next of a map.
pub(super) struct Next<'m, A>(pub(super) &'m mut A);

impl<'a> Fields<'a> {
    /// Takes the value of a field of the request.
    pub(super) fn take<V: Given<'a>>(&mut self, field: Field, value: V) -> Result<(), V::Error> {
        match field {
            Field::Uid => self.uid = value.read()?,
            Field::Kind => self.object_kind = value.read()?,
            Field::Resource => self.resource = value.read()?,
            Field::SubResource => self.subresource = value.read()?,
            Field::Name => self.name = value.read()?,
            Field::Namespace => self.namespace = value.read()?,
            Field::Operation => self.operation = value.read()?,
            Field::UserInfo => self.user = value.read()?,
            Field::Object => self.object = value.object()?,
            Field::OldObject => self.old_object = value.object()?,
            Field::DryRun => self.dry_run = value.read()?,
            Field::Options => self.options = value.read()?,
            Field::RequestKind | Field::RequestResource | Field::RequestSubResource | Field::Other => {
                value.skip()?;
            }
        }
        Ok(())
    }
}

impl<'a, A: MapAccess<'a>> Given<'a> for Next<'_, A> {
    type Error = A::Error;

    fn read<T: Deserialize<'a>>(self) -> Result<T, A::Error> {
        self.0.next_value()
    }

    fn object(self) -> Result<Option<Excerpt<'a>>, A::Error> {
        Ok(self.0.next_value::<Option<&RawValue>>()?.map(|text| Excerpt::of(text.get())))
    }

    fn skip(self) -> Result<(), A::Error> {
        self.0.next_value::<IgnoredAny>().map(drop)
    }
}
