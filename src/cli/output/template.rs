//! Templates as in `kubectl -o jsonpath=`.
//!
//! Entry point: [`Template`]. Plain text is printed unchanged; `{.items[*].name}` prints the values at a
//! path, separated by spaces; `{"\n"}` prints text; `{range PATH}` repeats the text up to `{end}` for each
//! value. Paths are evaluated by RFC 9535. Invariant: a missing value prints nothing, and a value never
//! writes a control sequence. Must not know what is printed.

mod read;

use anyhow::Context;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use kubemoor_declare::model::text::escaped;

/// The maximum nesting of ranges.
const DEEPEST: usize = 8;

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Template(Vec<Part>);

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum TemplateError {
    /// Nothing in it is a path.
    #[error("no {{}} is in it: write a path in braces, such as {{.items[*].name}}")]
    NoPath,
    /// A brace or a quote is open at its end.
    #[error("{0:?} is not closed: it needs a }}, and each quote its second one")]
    Open(String),
    /// A path cannot be read.
    #[error("{0:?} is no path, such as .items[*].name")]
    Path(String),
    /// A quoted text cannot be read.
    #[error("{0} is no quoted text, such as {{\"\\n\"}}")]
    Text(String),
    /// A range has no end, or an end no range.
    #[error("each {{range PATH}} needs one {{end}}")]
    Unpaired,
    /// Ranges are nested too deeply.
    #[error("ranges may stand in each other {DEEPEST} deep, no deeper")]
    TooDeep,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Values(Query),
    Range(Query, Vec<Part>),
}

/// A path, from the document's root or from the current value.
#[derive(Clone, Debug, PartialEq)]
struct Query {
    is_absolute: bool,
    path: JpQuery,
}

impl Template {
    /// The template, filled from a document.
    pub(in crate::cli) fn fill(&self, document: &Value) -> anyhow::Result<String> {
        let mut text = String::new();
        fill(&self.0, (document, document), &mut text)?;
        Ok(text)
    }
}

fn fill(parts: &[Part], (root, current): (&Value, &Value), text: &mut String) -> anyhow::Result<()> {
    for part in parts {
        match part {
            Part::Text(words) => text.push_str(words),
            Part::Values(query) => {
                let values = query.values(root, current)?;
                let shown = values.into_iter().map(|value| match value {
                    Value::String(value) => escaped(value).into_owned(),
                    other => other.to_string(),
                });
                text.push_str(&shown.collect::<Vec<_>>().join(" "));
            }
            Part::Range(query, below) => {
                for value in query.values(root, current)? {
                    fill(below, (root, value), text)?;
                }
            }
        }
    }
    Ok(())
}

impl Query {
    fn values<'v>(&self, root: &'v Value, current: &'v Value) -> anyhow::Result<Vec<&'v Value>> {
        let from = if self.is_absolute { root } else { current };
        let found = js_path_process(&self.path, from).context("cannot evaluate the path")?;
        Ok(found.into_iter().map(|found| found.val).collect())
    }
}

#[cfg(test)]
mod tests;
