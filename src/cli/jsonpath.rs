//! `-o jsonpath=`: kubectl's templates, over paths of RFC 9535.
//!
//! Text is printed unchanged, `{.items[*].name}` prints the values at a path with spaces between them, `{"\n"}` prints
//! text, and `{range PATH}` repeats what stands before `{end}` for each value.

use std::str::FromStr;

use anyhow::Context;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use kubemoor_declare::model::text::{escaped, escaped_json};

/// A template. What is no template is refused before a cluster is asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Values(Path),
    Range(Path, Vec<Part>),
}

/// A path, from the document's root or from the value at hand.
#[derive(Clone, Debug, PartialEq)]
struct Path {
    is_absolute: bool,
    query: JpQuery,
}

impl Template {
    /// The template, filled from a document. A missing value prints nothing.
    pub(super) fn fill(&self, document: &Value) -> anyhow::Result<String> {
        let mut text = String::new();
        fill(&self.0, document, document, &mut text)?;
        Ok(text)
    }
}

fn fill(parts: &[Part], root: &Value, current: &Value, text: &mut String) -> anyhow::Result<()> {
    for part in parts {
        match part {
            Part::Text(words) => text.push_str(words),
            Part::Values(path) => {
                let values = path.values(root, current)?;
                let shown = values.into_iter().map(|value| match value {
                    Value::String(value) => escaped(value).into_owned(),
                    other => escaped_json(other.to_string()),
                });
                text.push_str(&shown.collect::<Vec<_>>().join(" "));
            }
            Part::Range(path, below) => {
                for value in path.values(root, current)? {
                    fill(below, root, value, text)?;
                }
            }
        }
    }
    Ok(())
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unpaired =
            || "each {range PATH} needs one {end}, and none may stand in another: use -o json | jq";
        let mut parts = Vec::new();
        // The open range, and what stood before it.
        let mut open: Option<(Path, Vec<Part>)> = None;
        let mut rest = text;
        while let Some((words, after)) = rest.split_once('{') {
            let (action, after) = after
                .split_once('}')
                .ok_or_else(|| format!("{:?} is not closed: it needs a }}", format!("{{{after}")))?;
            rest = after;
            parts.push(Part::Text(words.to_owned()));
            let action = action.trim();
            if let Some(path) = action.strip_prefix("range ") {
                if open.is_some() {
                    return Err(unpaired().to_owned());
                }
                open = Some((path.parse()?, std::mem::take(&mut parts)));
            } else if action == "end" {
                let (path, before) = open.take().ok_or_else(unpaired)?;
                let below = std::mem::replace(&mut parts, before);
                parts.push(Part::Range(path, below));
            } else if action.starts_with(['"', '\'']) {
                parts.push(Part::Text(unquoted(action)?));
            } else {
                parts.push(Part::Values(action.parse()?));
            }
        }
        if open.is_some() {
            return Err(unpaired().to_owned());
        }
        if parts.is_empty() {
            return Err("no {} is in it: write a path in braces, such as {.items[*].name}".to_owned());
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }
}

/// A quoted text, with the escapes of JSON.
fn unquoted(action: &str) -> Result<String, String> {
    let single = action.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let json = single.map_or_else(|| action.to_owned(), |text| format!("\"{text}\""));
    serde_json::from_str(&json).map_err(|_| format!("{action} is no quoted text, such as {{\"\\n\"}}"))
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let below = text.trim_start_matches(['$', '@']);
        let wrong = || format!("{text:?} is no path, such as .items[*].name or .items[*]['a name']");
        if text.is_empty() || !(below.is_empty() || below.starts_with(['.', '['])) {
            return Err(wrong());
        }
        // kubectl's name of the value at hand.
        let below = if below == "." { "" } else { below };
        let query = parse_json_path(&format!("${below}")).map_err(|_| wrong())?;
        Ok(Self { is_absolute: text.starts_with('$'), query })
    }
}

impl Path {
    fn values<'v>(&self, root: &'v Value, current: &'v Value) -> anyhow::Result<Vec<&'v Value>> {
        let from = if self.is_absolute { root } else { current };
        let found = js_path_process(&self.query, from).context("cannot evaluate the path")?;
        Ok(found.into_iter().map(|found| found.val).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn template_prints_what_kubectls_users_expect() {
        let document = json!({
            "kind": "List",
            "items": [
                {"name": "web", "drifted": 2, "ready": "False", "counts": {"inDoubt": 1}, "message": "a\u{1b}[31m"},
                {"name": "db", "drifted": 0, "ready": "True", "labels": {"example.com/team": "data"}},
            ],
        });
        let filled = |template: &str| template.parse::<Template>().unwrap().fill(&document).unwrap();
        for (template, expected) in [
            ("{.items[*].name}", "web db"),
            ("{$.items[*].name}", "web db"),
            ("{.items[-1].name}", "db"),
            ("{.items[0:1].name}", "web"),
            ("{.items[*]['name', 'ready']}", "web db False True"),
            ("{..drifted}", "2 0"),
            ("{.items[?(@.drifted>0)].name}", "web"),
            ("{.items[?(@.ready==\"True\")].name}", "db"),
            ("{.items[1].labels['example.com/team']}", "data"),
            ("{.items[0].counts}", "{\"inDoubt\":1}"),
            ("{.nothing}", ""),
            ("{.items[9].name}", ""),
            ("kind: {.kind}{\"\\n\"}", "kind: List\n"),
            ("{range .items[*]}{.name}{'\\t'}{.drifted}{\"\\n\"}{end}", "web\t2\ndb\t0\n"),
            ("{range .items[*]}{@.name} of {$.kind}; {end}!", "web of List; db of List; !"),
            ("{range .items[*].name}{.};{end}", "web;db;"),
            // What the cluster holds does not reach the terminal as it is.
            ("{.items[0].message}", "a\\u{1b}[31m"),
        ] {
            assert_eq!(filled(template), expected, "{template}");
        }
        for whole in ["{.}", "{$}", "{@}"] {
            assert_eq!(filled(whole), document.to_string(), "{whole}");
        }
    }

    #[test]
    fn invalid_jsonpath_template_is_rejected_with_its_error() {
        for (template, says) in [
            ("", "no {} is in it"),
            (".items", "no {} is in it"),
            ("{.items", "\"{.items\" is not closed"),
            ("{items}", "\"items\" is no path"),
            ("{}", "\"\" is no path"),
            ("{.items[}", "is no path"),
            ("{.a..}", "is no path"),
            ("{.labels.example\\.com/team}", "['a name']"),
            ("{.items[?(@.name=~'a')]}", "is no path"),
            ("{range .items[*]}{.name}", "each {range PATH} needs one {end}"),
            ("{range .items[*]}{range .counts}{end}{end}", "none may stand in another: use -o json | jq"),
            ("{.name}{end}", "each {range PATH} needs one {end}"),
            ("{'a\\x'}", "is no quoted text"),
        ] {
            let error = template.parse::<Template>().unwrap_err();
            assert!(error.contains(says), "{template}: {error}");
        }
    }
}
