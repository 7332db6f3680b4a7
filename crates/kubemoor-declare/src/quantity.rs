//! Kubernetes quantities: `1500m`, `1.5`, `2Gi`, `1e3`.
//!
//! Entry point: [`parse`]. Invariant: exact. What cannot be held exactly is
//! `None`, never a rounded guess beyond the rounding that Kubernetes does
//! itself (up to the next nano, capped at 2^63 - 1). No floating point.

use serde_json::Value;

/// The size of a quantity in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// More significant digits than a u128 holds together with every suffix.
const MAX_DIGITS: usize = 19;

/// 2^63 - 1 in billionths: Kubernetes caps every quantity there.
const CAP: u128 = (i64::MAX as u128) * 1_000_000_000;

/// Reads a quantity from a JSON string or number, as the API server does.
pub fn of(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => parse(&number.to_string()),
        _ => None,
    }
}

/// Reads a quantity: sign, decimal number, and a suffix of powers of ten (`n u m k M G T P E`), of 1024 (`Ki`
/// ... `Ei`), or an exponent (`e3`). `None` if the text is not a quantity, or has more than nineteen
/// significant digits.
pub fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        scale(suffix)?;
        return Some(Quantity(0));
    }
    let significant = digits.trim_end_matches('0');
    if significant.len() > MAX_DIGITS {
        return None;
    }
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let places = i64::try_from(fraction.len()).ok()?;
    let (tens, doublings) = scale(suffix)?;
    let mantissa = significant.parse::<u128>().ok()?.checked_mul(1 << doublings)?;
    let size = i128::try_from(billionths(mantissa, zeros - places + tens + 9)).ok()?;
    Some(Quantity(if negative { -size } else { size }))
}

/// The powers of ten and of two of a suffix.
fn scale(suffix: &str) -> Option<(i64, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (i64::from(suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?), 0),
    })
}

/// `mantissa` times ten to `tens`, rounded up and capped as Kubernetes does.
fn billionths(mantissa: u128, tens: i64) -> u128 {
    let factor = u32::try_from(tens.unsigned_abs()).ok().and_then(|n| 10_u128.checked_pow(n));
    let exact = match (factor, tens >= 0) {
        (Some(factor), true) => mantissa.checked_mul(factor),
        (Some(factor), false) => Some(mantissa.div_ceil(factor)),
        (None, true) => None,
        (None, false) => Some(1),
    };
    exact.unwrap_or(CAP).min(CAP)
}

#[cfg(test)]
mod tests;
