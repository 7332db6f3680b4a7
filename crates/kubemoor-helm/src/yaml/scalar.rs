//! Resolves scalars as goyaml.v2 and then Go's JSON do. Timestamps and base-60 numbers stay text, as they do in Go.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granit_parser::Tag;
use serde_json::{Number, Value};

/// A scalar as goyaml.v2 types it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum YamlScalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

/// Types the scalar `text`, which was written without quotes (`plain`) and under `tag`.
///
/// # Errors
/// The tag's short name, when the scalar is not of the type that it claims.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<YamlScalar, &'static str> {
    match tag {
        None if plain => Ok(untagged(text)),
        None => Ok(YamlScalar::Text(text.to_owned())),
        Some(tag) => match core_tag(tag) {
            Some(kind) => tagged(text, &kind),
            None => Ok(YamlScalar::Text(text.to_owned())),
        },
    }
}

/// The short name of a tag of YAML's own, such as `int`.
pub(super) fn core_tag(tag: &Tag) -> Option<Cow<'_, str>> {
    tag.suffix_in_namespace("tag:yaml.org,2002:")
}

/// A core tag must match the scalar's resolution.
fn tagged(text: &str, kind: &str) -> Result<YamlScalar, &'static str> {
    match (kind, untagged(text)) {
        ("null", YamlScalar::Null) => Ok(YamlScalar::Null),
        ("bool", scalar @ YamlScalar::Bool(_)) => Ok(scalar),
        ("int", scalar @ (YamlScalar::Int(_) | YamlScalar::Uint(_))) => Ok(scalar),
        ("float", scalar @ YamlScalar::Float(_)) => Ok(scalar),
        ("float", YamlScalar::Int(number)) => Ok(YamlScalar::Float(number as f64)),
        ("timestamp", YamlScalar::Text(_)) if looks_like_date(text) => Ok(YamlScalar::Text(text.to_owned())),
        ("binary", _) => decode_binary(text).map(YamlScalar::Text).ok_or("!!binary"),
        ("null", _) => Err("!!null"),
        ("bool", _) => Err("!!bool"),
        ("int", _) => Err("!!int"),
        ("float", _) => Err("!!float"),
        ("timestamp", _) => Err("!!timestamp"),
        _ => Ok(YamlScalar::Text(text.to_owned())),
    }
}

fn untagged(text: &str) -> YamlScalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => YamlScalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            YamlScalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            YamlScalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => YamlScalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => YamlScalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => YamlScalar::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or_else(|| YamlScalar::Text(text.to_owned())),
    }
}

fn looks_like_date(text: &str) -> bool {
    text.split_once('-').is_some_and(|(year, _)| year.len() == 4 && year.bytes().all(|b| b.is_ascii_digit()))
}

/// Go keeps the bytes in a string, and in JSON replaces each byte that is not UTF-8.
fn decode_binary(text: &str) -> Option<String> {
    let bytes = STANDARD.decode(text.replace(['\r', '\n'], "")).ok()?;
    let replaced = |invalid: &[u8]| "\u{fffd}".repeat(invalid.len());
    Some(bytes.utf8_chunks().map(|chunk| chunk.valid().to_owned() + &replaced(chunk.invalid())).collect())
}

impl YamlScalar {
    /// The scalar as it is sent to the API server: Go writes a float as the shortest decimal, and reads it back as
    /// `i64` if it looks like an integer, else as a float. `None` for an infinite or undefined number.
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

fn number(text: &str) -> Option<YamlScalar> {
    match text.bytes().next()? {
        b'.' => leading_dot(text).map(YamlScalar::Float),
        b'+' | b'-' | b'0'..=b'9' => {
            let digits: String = text.chars().filter(|letter| *letter != '_').collect();
            integer(&digits)
                .or_else(|| decimal(&digits).map(YamlScalar::Float))
                .or_else(|| signed_binary(&digits))
        }
        _ => None,
    }
}

/// The number that Go's JSON makes of a float on its way to the API server.
pub(crate) fn shortest(number: f64) -> Option<Number> {
    let whole = (number.fract() == 0.0 && number.abs() < 1e19).then(|| number.to_string());
    match whole.and_then(|digits| digits.parse::<i64>().ok()) {
        Some(integer) => Some(Number::from(integer)),
        None => Number::from_f64(number),
    }
}

/// Go's `FormatFloat(number, 'g', -1, 32)`.
fn float_key(number: f64) -> String {
    let number = number as f32;
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

/// Go's `ParseInt` and `ParseUint` with base 0: the prefixes `0x`, `0b`, `0o`
/// and the bare `0` of YAML 1.1 octals. A sign goes with `i64` only.
fn integer(text: &str) -> Option<YamlScalar> {
    let (negative, signed, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (true, true, rest),
        None => text.strip_prefix('+').map_or((false, false, text), |rest| (false, true, rest)),
    };
    let (radix, digits) = radix(magnitude);
    // Rust would take a second sign, Go does not.
    if !digits.starts_with(|letter: char| letter.is_digit(radix)) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    match (i64::try_from(number), negative) {
        (Ok(number), false) => Some(YamlScalar::Int(number)),
        (Ok(number), true) => Some(YamlScalar::Int(-number)),
        (Err(_), true) if number == i64::MIN.unsigned_abs() => Some(YamlScalar::Int(i64::MIN)),
        (Err(_), _) => (!signed).then_some(YamlScalar::Uint(number)),
    }
}

fn radix(text: &str) -> (u32, &str) {
    let mut letters = text.chars();
    if text.len() < 2 || letters.next() != Some('0') {
        return (10, text);
    }
    let prefixed = letters.as_str();
    let rest = letters.next().map(|letter| (letter.to_ascii_lowercase(), letters.as_str()));
    match rest {
        Some(('x', digits)) if !digits.is_empty() => (16, digits),
        Some(('o', digits)) if !digits.is_empty() => (8, digits),
        Some(('b', digits)) if !digits.is_empty() => (2, digits),
        _ => (8, prefixed),
    }
}

/// A decimal float. One beyond the range of `f64` is text.
fn decimal(text: &str) -> Option<f64> {
    let plain = |letter: u8| letter.is_ascii_digit() || matches!(letter, b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.bytes().all(plain) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A float that begins with its point, in which Go allows `_` between digits.
fn leading_dot(text: &str) -> Option<f64> {
    let digit = |letter: Option<&u8>| letter.is_some_and(u8::is_ascii_digit);
    let mut before = None;
    let mut rest = text.as_bytes().iter();
    while let Some(letter) = rest.next() {
        if *letter == b'_' && !(digit(before) && digit(rest.as_slice().first())) {
            return None;
        }
        before = Some(letter);
    }
    decimal(&text.replace('_', ""))
}

/// goyaml.v2's own reading of `0b` lets a sign follow the prefix.
fn signed_binary(text: &str) -> Option<YamlScalar> {
    i64::from_str_radix(text.strip_prefix("0b")?, 2).ok().map(YamlScalar::Int)
}
