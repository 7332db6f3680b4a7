//! A template by its lines, and the values that its actions print.
//!
//! Entry points: [`Template::of`], [`Helpers::of`]. Invariant: renders nothing. An action is represented by
//! the values that it names.

use std::collections::HashMap;

use super::action::{Expression, Reader, Ref};
use super::outline::{HOLE, Line, Outline};

/// The longest template that is read, in bytes.
const LONGEST: usize = 256 << 10;

/// The most values of one named template.
const REFS: usize = 32;

/// A template.
#[derive(Debug, Default)]
pub(super) struct Template {
    pub(super) outline: Outline,
    pub(super) lines: Vec<Line>,
    /// Of each line the actions that print something.
    actions: Vec<Vec<Expression>>,
}

/// The values that named templates use.
#[derive(Debug, Default)]
pub(super) struct Helpers(HashMap<String, Vec<Ref>>);

impl Template {
    /// The template with this text; an empty one where that is too long.
    pub(super) fn of(text: &str) -> Self {
        if text.len() > LONGEST {
            return Self::default();
        }
        let mut template = Self::default();
        let mut reader = Reader::default();
        template.begin();
        for (literal, action) in pieces(text) {
            for (number, part) in literal.split('\n').enumerate() {
                if number > 0 {
                    template.begin();
                }
                template.print(part);
            }
            if let Some(expression) = action.and_then(|action| reader.read(action)) {
                template.act(expression);
            }
        }
        template.outline = Outline::of(&template.lines);
        template
    }

    /// The actions of a line, from the one behind so many holes.
    pub(super) fn actions(&self, line: usize, skipped: usize) -> &[Expression] {
        self.actions.get(line).and_then(|actions| actions.get(skipped..)).unwrap_or_default()
    }

    fn begin(&mut self) {
        self.lines.push(Line::default());
        self.actions.push(Vec::new());
    }

    fn print(&mut self, text: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.text.extend(text.chars().filter(|c| *c != HOLE && *c != '\r'));
        }
    }

    fn act(&mut self, expression: Expression) {
        if let (Some(line), Some(actions)) = (self.lines.last_mut(), self.actions.last_mut()) {
            let shifted =
                expression.shift.map(|shift| line.text.chars().take_while(|c| *c == ' ').count() + shift);
            line.column = expression.column.or(shifted);
            line.text.push(HOLE);
            actions.push(expression);
        }
    }
}

impl Helpers {
    /// The named templates of a chart.
    pub(super) fn of<'t>(templates: impl Iterator<Item = &'t str>) -> Self {
        let mut found: HashMap<String, Vec<Ref>> = HashMap::new();
        for text in templates.filter(|text| text.len() <= LONGEST && text.contains("define")) {
            let (mut reader, mut name) = (Reader::default(), None);
            for action in pieces(text).filter_map(|(_, action)| action) {
                if let Some(defined) = defined(action) {
                    (reader, name) = (Reader::default(), Some(defined.to_owned()));
                    continue;
                }
                let printed = reader.read(action);
                if let (Some(name), Some(printed)) = (&name, printed) {
                    let refs = found.entry(name.clone()).or_default();
                    let new = printed.refs.into_iter().filter(|it| it.element.is_none());
                    for value in new.take(REFS.saturating_sub(refs.len())) {
                        if !refs.contains(&value) {
                            refs.push(value);
                        }
                    }
                }
            }
        }
        Self(found)
    }

    /// The values that an action uses: those that it names, and those of its includes.
    pub(super) fn refs<'h>(&'h self, action: &'h Expression) -> impl Iterator<Item = &'h Ref> {
        let included = action.included.as_ref().and_then(|name| self.0.get(name));
        action.refs.iter().chain(included.into_iter().flatten())
    }
}

/// The name that an action defines.
fn defined(action: &str) -> Option<&str> {
    let action = action.trim_start_matches('-').trim_start();
    action.strip_prefix("define")?.trim_start().strip_prefix('"')?.split('"').next()
}

/// A template cut into literal text, each with the action behind it.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some((literal, behind)) = text.split_once("{{") else { return Some((text, None)) };
        let (action, behind) = behind.split_once("}}").unwrap_or((behind, ""));
        rest = Some(behind);
        Some((literal, Some(action)))
    })
}
