//! Reads a JSON object whose one field stays text.
//!
//! Entry point: [`peel`]. Invariant: the field is not parsed, so that its nesting cannot make the object unreadable.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The fields of a JSON object, with one of them left as text.
pub(super) type Peeled<'t> = (Map<String, Value>, Option<&'t RawValue>);

struct Peel(&'static str);

pub(super) fn peel<'t>(text: &'t str, name: &'static str) -> serde_json::Result<Peeled<'t>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Peel(name).deserialize(&mut deserializer)
}

impl<'t> DeserializeSeed<'t> for Peel {
    type Value = Peeled<'t>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for Peel {
    type Value = Peeled<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut peeled) = (Map::new(), None);
        while let Some(name) = entries.next_key::<String>()? {
            if name == self.0 {
                peeled = Some(entries.next_value::<&RawValue>()?);
            } else {
                fields.insert(name, entries.next_value()?);
            }
        }
        Ok((fields, peeled))
    }
}
