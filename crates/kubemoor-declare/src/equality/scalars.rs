//! Scalars that mean the same.
//!
//! Entry point: [`is_same_scalar`]. Invariant: the answer does not depend on the order of the two values.
//! Must not know the place of a value.

use serde_json::Value;

use crate::quantity;
use crate::schema::Scalar;

/// Whether two scalars of that kind mean the same.
pub fn is_same_scalar(kind: Scalar, a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    match kind {
        // Most keys are texts, and most are compared with another element's.
        Scalar::Plain | Scalar::Text | Scalar::IntOrString if a.is_string() && b.is_string() => false,
        Scalar::Plain => same_number(a, b),
        Scalar::Text => same_text(a, b),
        Scalar::IntOrString => same_number(a, b) || same_text(a, b),
        Scalar::Quantity => match (quantity::of(a), quantity::of(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
        Scalar::Bytes => match (a, b) {
            (Value::String(a), Value::String(b)) => base64_digits(a).eq(base64_digits(b)),
            _ => false,
        },
        Scalar::Time => match (a, b) {
            (Value::String(a), Value::String(b)) => {
                matches!((a.parse::<jiff::Timestamp>(), b.parse::<jiff::Timestamp>()), (Ok(a), Ok(b)) if a == b)
            }
            _ => false,
        },
    }
}

pub(super) fn base64_digits(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n'))
}

pub(super) fn same_text(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(text), other) | (other, Value::String(text)) => {
            let spelled = match other {
                Value::Number(number) => number.to_string(),
                Value::Bool(value) => value.to_string(),
                _ => return false,
            };
            *text == spelled
        }
        _ => same_number(a, b),
    }
}

fn same_number(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::Number(b)) => a == b,
        _ => false,
    }
}
