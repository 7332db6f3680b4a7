//! Numbers in YAML, as goyaml.v2 reads them and as Go writes them.
//!
//! Entry points: [`number`], [`shortest`], [`float_key`]. Invariant: total; a text that is no number gives `None`.

use serde_json::Number;

use super::Scalar;

pub(super) fn number(text: &str) -> Option<Scalar> {
    match text.bytes().next()? {
        b'.' => leading_dot(text).map(Scalar::Float),
        b'+' | b'-' | b'0'..=b'9' => {
            let digits: String = text.chars().filter(|letter| *letter != '_').collect();
            integer(&digits)
                .or_else(|| decimal(&digits).map(Scalar::Float))
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
pub(super) fn float_key(number: f64) -> String {
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
fn integer(text: &str) -> Option<Scalar> {
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
        (Ok(number), false) => Some(Scalar::Int(number)),
        (Ok(number), true) => Some(Scalar::Int(-number)),
        (Err(_), true) if number == i64::MIN.unsigned_abs() => Some(Scalar::Int(i64::MIN)),
        (Err(_), _) => (!signed).then_some(Scalar::Uint(number)),
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
fn signed_binary(text: &str) -> Option<Scalar> {
    i64::from_str_radix(text.strip_prefix("0b")?, 2).ok().map(Scalar::Int)
}
