//! Splits a manifest's text into its documents, as apimachinery's `YAMLOrJSONDecoder` does.
//!
//! Entry point: [`Documents::of`]. Invariant: a document is a run of whole lines. Nothing here parses a
//! document.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

use super::SkipReason;
use crate::yaml::shortest;

/// How far the decoder looks for an opening brace.
const GUESS: usize = 4096;

/// What a brace of JSON can take as a value, in bytes: a map's first leaf.
const BRACE: usize = 640;

/// What a comma or bracket of JSON can take, in bytes: an entry's slot, and as
/// much again for growth.
const COMMA: usize = 112;

/// One document.
pub(super) enum Document<'a> {
    /// The text between two separators.
    Yaml(&'a str),
    /// A JSON value.
    Json(Json<'a>),
    /// Lines that are no document.
    Malformed(SkipReason),
}

/// The text of one JSON value.
pub(super) struct Json<'a>(&'a str);

/// The documents of a manifest.
pub(super) struct Documents<'a> {
    rest: &'a str,
    /// JSON objects read so far, while the text is taken for JSON.
    json: Option<usize>,
}

impl<'a> Documents<'a> {
    /// The documents of `text`: JSON objects in a row when it begins with a
    /// brace, for as long as they are some; else YAML.
    pub(super) fn of(text: &'a str) -> Self {
        let trimmed = text.trim_start();
        let json = trimmed.starts_with('{') && text.len() - trimmed.len() < GUESS;
        Self { rest: text, json: json.then_some(0) }
    }

    /// The next JSON object. Once one fails, the rest is YAML, unless the text
    /// has proved to be JSON by two objects in a row.
    fn next_json(&mut self, read: usize) -> Option<Document<'a>> {
        let mut objects = serde_json::Deserializer::from_str(self.rest).into_iter::<IgnoredAny>();
        let found = objects.next()?.ok().and_then(|_| self.rest.split_at_checked(objects.byte_offset()));
        if let Some((text, rest)) = found {
            self.json = Some(read + 1);
            self.rest = rest;
            return Some(Document::Json(Json(text)));
        }
        if read > 1 {
            self.rest = "";
            return Some(Document::Malformed(SkipReason::Json));
        }
        self.json = None;
        // The rest of the last object's line is blank.
        let blank = self.rest.len() - self.rest.trim_start().len();
        let blank = self.rest.get(..blank).and_then(|text| text.find('\n')).map_or(blank, |at| at + 1);
        self.rest = self.rest.get(blank..).unwrap_or_default();
        self.next()
    }
}

impl Document<'_> {
    /// The length of its text, in bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Yaml(text) => text.len(),
            Self::Json(json) => json.0.len(),
            Self::Malformed(_) => 0,
        }
    }
}

impl Json<'_> {
    /// The memory that the value can take, at most, in bytes.
    pub(super) fn cost(&self) -> usize {
        let bytes = self.0.bytes().map(|byte| match byte {
            b'{' => BRACE,
            b',' | b'[' => COMMA,
            _ => 1,
        });
        bytes.sum()
    }

    /// The value; `None` when it is nested beyond the parser's bound.
    pub(super) fn value(&self) -> Option<Value> {
        let mut value = serde_json::from_str(self.0).ok()?;
        normalise(&mut value);
        Some(value)
    }
}

impl<'a> Iterator for Documents<'a> {
    type Item = Document<'a>;

    fn next(&mut self) -> Option<Document<'a>> {
        if let Some(read) = self.json {
            return self.next_json(read);
        }
        if self.rest.is_empty() {
            return None;
        }
        let mut end = 0;
        for line in self.rest.split_inclusive('\n') {
            let Some(after) = line.strip_prefix("---") else {
                end += line.len();
                continue;
            };
            let after = after.trim();
            if !after.is_empty() && !after.starts_with('#') {
                self.rest = self.rest.get(end + line.len()..).unwrap_or_default();
                return Some(Document::Malformed(SkipReason::Separator));
            }
            if end != 0 {
                break;
            }
            // A separator before any content belongs to the document.
            end += line.len();
        }
        let (document, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest =
            rest.strip_prefix("---").map_or("", |rest| rest.split_once('\n').map_or("", |(_, rest)| rest));
        Some(Document::Yaml(document))
    }
}

/// The template above whose name Helm put a document's text.
pub(super) fn source(document: &str) -> Option<String> {
    let head = document.lines().take_while(|line| line.is_empty() || line.starts_with(['#', '-']));
    let path = head.filter_map(|line| line.strip_prefix("# Source: ")).next()?;
    Some(path.chars().filter(|letter| !letter.is_control()).take(256).collect())
}

/// Go's line reader takes `\r\n` for a line break, and gives on `\n`.
pub(super) fn unbroken(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}

/// Numbers as Go's JSON passes them on. Recursion stops where serde_json's
/// parser did.
fn normalise(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            if let Some(passed_on) = number.as_f64().and_then(shortest) {
                *number = passed_on;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalise),
        Value::Object(entries) => entries.values_mut().for_each(normalise),
        _ => {}
    }
}
