//! Reads a path from its text.
//!
//! Entry points: `str::parse` for [`Path`] and [`Segment`]. Invariant: reads what `spell` writes; a bare value is JSON
//! where it reads as JSON.

use std::str::FromStr;

use serde_json::Value;

use super::{Path, PathError, Segment};

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let Some(body) = text.strip_prefix('/') else { return Err(PathError::NoSlash(text.to_owned())) };
        body.split('/').map(Segment::from_str).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Segment {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let plain = unescape(text)?;
        let Some(inner) =
            text.strip_prefix('[').and_then(|_| plain.strip_prefix('[')).and_then(|p| p.strip_suffix(']'))
        else {
            return Ok(Self::Field(plain));
        };
        let fail = || PathError::Key(text.to_owned());
        if let Some(value) = inner.strip_prefix('=') {
            return scalar(value).map(Self::Element).ok_or_else(fail);
        }
        let mut keys = Vec::new();
        for part in split_outside_quotes(inner, ',') {
            match split_outside_quotes(part, '=').as_slice() {
                [key, value] => {
                    let Value::String(key) = name(key).ok_or_else(fail)? else { return Err(fail()) };
                    keys.push((key, scalar(value).ok_or_else(fail)?));
                }
                _ => return Err(fail()),
            }
        }
        Ok(Self::Key(keys))
    }
}

/// A bare text, or JSON where the text is JSON.
pub(super) fn scalar(text: &str) -> Option<Value> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => Some(value),
        Err(_) if text.is_empty() || text.starts_with('"') => None,
        Err(_) => Some(Value::from(text)),
    }
}

pub(super) fn name(text: &str) -> Option<Value> {
    match text.starts_with('"') {
        true => serde_json::from_str::<Value>(text).ok(),
        false if text.is_empty() => None,
        false => Some(Value::from(text)),
    }
}

pub(super) fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(|c: char| {
        let splits = c == separator && !quoted;
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        splits
    })
    .collect()
}

fn unescape(text: &str) -> Result<String, PathError> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '~' {
            plain.push(c);
            continue;
        }
        match rest.next() {
            Some('0') => plain.push('~'),
            Some('1') => plain.push('/'),
            Some('2') if plain.is_empty() => plain.push('['),
            _ => return Err(PathError::Escape(text.to_owned())),
        }
    }
    Ok(plain)
}
