//! The resolution of a scalar by goyaml.v2 and then by Go's JSON.
//!
//! Entry point: [`resolve`]. Invariant: total; a scalar of no other type is text. Timestamps and base-60
//! numbers stay text, as they do in Go.

mod number;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granit_parser::Tag;
use serde_json::{Number, Value};

pub(crate) use self::number::shortest;
use self::number::{float_key, number};

/// A scalar as goyaml.v2 types it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond `i64`.
    Uint(u64),
    Float(f64),
    Text(String),
}

/// Types the scalar `text`, which was written without quotes (`plain`) and
/// under `tag`.
///
/// # Errors
/// The tag's short name, when the scalar is not of the type that it claims.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Scalar, &'static str> {
    match tag {
        None if plain => Ok(untagged(text)),
        None => Ok(Scalar::Text(text.to_owned())),
        Some(tag) => match core_tag(tag) {
            Some(kind) => tagged(text, &kind),
            None => Ok(Scalar::Text(text.to_owned())),
        },
    }
}

/// The short name of a tag of YAML's own, such as `int`.
pub(super) fn core_tag(tag: &Tag) -> Option<Cow<'_, str>> {
    tag.suffix_in_namespace("tag:yaml.org,2002:")
}

/// A core tag must match the scalar's resolution.
fn tagged(text: &str, kind: &str) -> Result<Scalar, &'static str> {
    match (kind, untagged(text)) {
        ("null", Scalar::Null) => Ok(Scalar::Null),
        ("bool", scalar @ Scalar::Bool(_)) => Ok(scalar),
        ("int", scalar @ (Scalar::Int(_) | Scalar::Uint(_))) => Ok(scalar),
        ("float", scalar @ Scalar::Float(_)) => Ok(scalar),
        ("float", Scalar::Int(number)) => Ok(Scalar::Float(number as f64)),
        ("timestamp", Scalar::Text(_)) if looks_like_date(text) => Ok(Scalar::Text(text.to_owned())),
        ("binary", _) => decode_binary(text).map(Scalar::Text).ok_or("!!binary"),
        ("null", _) => Err("!!null"),
        ("bool", _) => Err("!!bool"),
        ("int", _) => Err("!!int"),
        ("float", _) => Err("!!float"),
        ("timestamp", _) => Err("!!timestamp"),
        _ => Ok(Scalar::Text(text.to_owned())),
    }
}

/// The type of a scalar that nothing but its text tells.
fn untagged(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or_else(|| Scalar::Text(text.to_owned())),
    }
}

fn looks_like_date(text: &str) -> bool {
    text.split_once('-').is_some_and(|(year, _)| year.len() == 4 && year.bytes().all(|b| b.is_ascii_digit()))
}

/// Go keeps the bytes in a string, and in JSON replaces each that is no UTF-8.
fn decode_binary(text: &str) -> Option<String> {
    let bytes = STANDARD.decode(text.replace(['\r', '\n'], "")).ok()?;
    let replaced = |invalid: &[u8]| "\u{fffd}".repeat(invalid.len());
    Some(bytes.utf8_chunks().map(|chunk| chunk.valid().to_owned() + &replaced(chunk.invalid())).collect())
}

impl Scalar {
    /// The scalar as the API server is sent it: Go writes a float as the
    /// shortest decimal, and reads what looks like an integer back as `i64`,
    /// else as a float. `None` for an infinite or undefined number.
    pub(super) fn into_value(self) -> Option<Value> {
        Some(match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(truth),
            Self::Int(number) => Value::from(number),
            Self::Uint(number) => Value::Number(Number::from_f64(number as f64)?),
            Self::Float(number) => Value::Number(shortest(number)?),
            Self::Text(text) => Value::String(text),
        })
    }

    /// The scalar as the key of a JSON object; `None` for what cannot be one.
    /// `sigs.k8s.io/yaml` writes a float key with the precision of 32 bits.
    pub(super) fn into_key(self) -> Option<String> {
        match self {
            Self::Null | Self::Uint(_) => None,
            Self::Bool(truth) => Some(truth.to_string()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(number) => Some(float_key(number)),
            Self::Text(text) => Some(text),
        }
    }
}
