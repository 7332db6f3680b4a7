//! Compact storage of declared values: a third of the memory of the values themselves.
//!
//! Entry point: [`Stored`]. Invariant: returns the original value, without its parts below [`MAX_DEPTH`].

use std::sync::Arc;

use serde_json::{Number, Value};

use super::names::shared;
use super::schema::MAX_DEPTH;

/// A JSON value that is kept for long and read seldom.
#[derive(Clone, PartialEq)]
pub(super) enum Stored {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    /// A text that many have.
    Name(Arc<str>),
    List(Box<[Stored]>),
    /// Sorted by name.
    Map(Box<[(Arc<str>, Stored)]>),
}

impl Stored {
    /// Stores a value at `depth` levels of nesting in its document.
    pub(super) fn new(value: &Value, depth: usize) -> Self {
        match value {
            Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Self::Null,
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(text.as_str().into()),
            Value::Array(items) => Self::List(items.iter().map(|item| Self::new(item, depth + 1)).collect()),
            Value::Object(map) => Self::Map(
                map.iter().map(|(name, value)| (shared(name), Self::new(value, depth + 1))).collect(),
            ),
        }
    }

    /// The value.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::from(&**text),
            Self::Name(text) => Value::from(&**text),
            Self::List(items) => items.iter().map(Self::value).collect(),
            Self::Map(map) => map.iter().map(|(name, value)| (name.to_string(), value.value())).collect(),
        }
    }

    /// The memory that it takes beside itself, about, in bytes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 0,
            Self::Text(text) => text.len(),
            Self::Name(text) => text.len(),
            Self::List(items) => items.iter().map(|item| size_of::<Self>() + item.weight()).sum(),
            Self::Map(map) => {
                let entry = size_of::<(Arc<str>, Self)>();
                map.iter().map(|(name, value)| entry + name.len() + value.weight()).sum()
            }
        }
    }

    /// Whether it is that value to the letter.
    pub(super) fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(own), Value::Bool(value)) => own == value,
            (Self::Number(own), Value::Number(number)) => own == number,
            (Self::Text(own), Value::String(text)) => **own == **text,
            (Self::Name(own), Value::String(text)) => **own == **text,
            (Self::List(own), Value::Array(items)) => {
                own.len() == items.len() && own.iter().zip(items).all(|(own, item)| own.is(item))
            }
            (Self::Map(own), Value::Object(map)) => {
                own.len() == map.len()
                    && own.iter().all(|(name, own)| map.get(&**name).is_some_and(|value| own.is(value)))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::Stored;
    use crate::samples::any_value;

    proptest! {
        #[test]
        fn a_value_comes_back_as_it_was(value in any_value(), other in any_value()) {
            let stored = Stored::new(&value, 0);
            prop_assert!(stored.is(&value));
            prop_assert_eq!(stored.is(&other), value == other);
            prop_assert_eq!(stored.value(), value);
        }
    }

    #[test]
    fn values_nested_too_deeply_are_stored_as_null() {
        assert_eq!(Stored::new(&json!([1]), super::MAX_DEPTH).value(), json!(null));
        assert_eq!(Stored::new(&json!(1), super::MAX_DEPTH).value(), json!(1));
        assert_eq!(Stored::new(&json!([[1], 2]), super::MAX_DEPTH - 1).value(), json!([null, 2]));
    }
}
