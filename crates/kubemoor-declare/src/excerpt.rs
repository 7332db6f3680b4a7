//! JSON values that are parsed lazily, level by level. Everything below the parsed levels is validated as JSON but
//! stays text, so parsing an excerpt never recurses with its nesting.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The number of levels that are parsed at first: an object's fields, and their fields.
const OBJECT: usize = 2;

#[derive(Clone, Serialize)]
#[serde(untagged)]
pub enum Excerpt<'a> {
    Text(&'a RawValue),
    /// If a name occurs twice, the last value wins.
    Map(BTreeMap<String, Self>),
    List(Vec<Self>),
    Scalar(Value),
}

impl<'a> Excerpt<'a> {
    /// The value with this text; `None` if it is not JSON.
    pub fn new(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value with its next level parsed; `None` if it cannot be parsed.
    pub(super) fn open(&self) -> Option<Cow<'_, Self>> {
        let Self::Text(text) = self else { return Some(Cow::Borrowed(self)) };
        let mut parser = serde_json::Deserializer::from_str(text.get());
        Levels(1).deserialize(&mut parser).map(Cow::Owned).ok()
    }

    /// The whole value; `None` if it cannot be parsed or is nested deeper than 127 levels.
    pub fn value(&self) -> Option<Value> {
        match self {
            Self::Text(text) => serde_json::from_str(text.get()).ok(),
            opened => serde_json::from_str(&serde_json::to_string(opened).ok()?).ok(),
        }
    }

    /// The value at `path`, a chain of names in nested maps; `None` if a map lacks its name.
    pub fn at(&self, path: &[&str]) -> Option<Self> {
        let Some((name, rest)) = path.split_first() else { return Some(self.clone()) };
        match &*self.open()? {
            Self::Map(fields) => fields.get(*name)?.at(rest),
            _ => None,
        }
    }

    /// The items of a list; `None` for anything else.
    pub fn items(&self) -> Option<Vec<Self>> {
        match self.open()?.into_owned() {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The strings with these names in the map at `path`; `None` for values that are missing or not strings.
    pub fn texts<const N: usize>(&self, path: &[&str], names: [&str; N]) -> [Option<String>; N] {
        let map = self.at(path);
        let map = map.as_ref().and_then(Self::open);
        names.map(|name| match map.as_ref()?.at(&[name])?.value()? {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// Whether both have the same text, ignoring whitespace and field order at the parsed levels.
    pub(super) fn is_same_text(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(own), Self::Text(other)) => own.get() == other.get(),
            (Self::Map(own), Self::Map(other)) => {
                own.len() == other.len()
                    && own
                        .iter()
                        .zip(other)
                        .all(|(own, other)| own.0 == other.0 && own.1.is_same_text(other.1))
            }
            (Self::List(own), Self::List(other)) => {
                own.len() == other.len() && own.iter().zip(other).all(|(own, other)| own.is_same_text(other))
            }
            (Self::Scalar(own), Self::Scalar(other)) => own == other,
            _ => false,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Excerpt<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Levels(OBJECT).deserialize(deserializer)
    }
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Excerpt")
    }
}

/// Parses this many levels.
#[derive(Clone, Copy)]
struct Levels(usize);

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Excerpt<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Excerpt<'de>, D::Error> {
        match self.0.checked_sub(1) {
            Some(below) => deserializer.deserialize_any(Levels(below)),
            None => <&RawValue>::deserialize(deserializer).map(Excerpt::Text),
        }
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Excerpt<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Excerpt<'de>, M::Error> {
        let mut fields = BTreeMap::new();
        while let Some(name) = map.next_key()? {
            fields.insert(name, map.next_value_seed(self)?);
        }
        Ok(Excerpt::Map(fields))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Excerpt<'de>, S::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Excerpt::List(items))
    }

    fn visit_str<E>(self, text: &str) -> Result<Excerpt<'de>, E> {
        Ok(Excerpt::Scalar(text.into()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Excerpt<'de>, E> {
        Ok(Excerpt::Scalar(value.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Excerpt<'de>, E> {
        Ok(Excerpt::Scalar(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Excerpt<'de>, E> {
        Ok(Excerpt::Scalar(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Excerpt<'de>, E> {
        Ok(Excerpt::Scalar(number.into()))
    }

    fn visit_unit<E>(self) -> Result<Excerpt<'de>, E> {
        Ok(Excerpt::Scalar(Value::Null))
    }
}

#[cfg(test)]
mod tests;
