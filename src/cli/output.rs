//! Prints answers for people or for programs.
//!
//! Entry points: [`OutputArgs`], [`Form`], [`Table`], [`Text`], [`print()`]. Invariant: colours go to a
//! terminal only (and never where `NO_COLOR` is set). Data from the cluster can never write a control
//! sequence to the terminal. A closed output is not an error.

mod form;
mod harmless;
mod template;

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use self::harmless::harmless;
use super::Outcome;

pub(super) use self::form::{Data, Form, People};

/// The flag that chooses the [`Form`].
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OutputArgs {
    /// How the answer is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Form<People>,
}

/// For a good state, and for added text.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// For a bad state, and for removed text.
pub(super) const BAD: Style = AnsiColor::Red.on_default();
/// For a state that needs attention.
pub(super) const NOTE: Style = AnsiColor::Yellow.on_default();
/// A headline.
pub(super) const HEAD: Style = Style::new().bold();
/// Nothing special.
pub(super) const PLAIN: Style = Style::new();

/// Text for people, with colours. Control characters in inserted data are shown in escaped form.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// Rows as lines, each column as wide as its widest cell, as kubectl prints
/// them.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<(String, Style)>>,
    /// How wide columns are at least.
    least: Vec<usize>,
}

impl Data {
    /// Prints an answer.
    pub(super) fn print<T: Serialize>(&self, answer: &T) -> anyhow::Result<Outcome> {
        write(&self.text(answer)?)
    }
}

impl Text {
    /// Adds `text` in a style.
    pub(super) fn add(&mut self, style: Style, text: &str) -> &mut Self {
        let text = harmless(text);
        // Writing to a String cannot fail.
        let _ =
            if style == PLAIN { self.0.write_str(&text) } else { write!(self.0, "{style}{text}{style:#}") };
        self
    }

    /// Ends the line.
    pub(super) fn line(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }

    /// Adds other text as it is.
    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// The text with its control sequences.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Table {
    /// A table with this headline.
    pub(super) fn new<'h>(head: impl IntoIterator<Item = &'h str>) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    /// A table without a headline, whose columns are at least this wide.
    pub(super) fn at_least(widths: &[usize]) -> Self {
        Self { rows: Vec::new(), least: widths.to_vec() }
    }

    /// How wide each column is.
    pub(super) fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).chain([self.least.len()]).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|(text, _)| text.chars().count()).max().unwrap_or_default();
            widest.max(self.least.get(column).copied().unwrap_or_default())
        };
        (0..columns).map(width).collect()
    }

    /// Adds a row.
    pub(super) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.styled(cells.into_iter().map(|cell| (cell.into(), PLAIN)))
    }

    /// Adds a row of which each cell has its own style.
    pub(super) fn styled(&mut self, cells: impl IntoIterator<Item = (String, Style)>) -> &mut Self {
        self.rows.push(cells.into_iter().map(|(text, style)| (harmless(&text), style)).collect());
        self
    }

    /// The lines.
    pub(super) fn text(&self) -> Text {
        let widths = self.widths();
        let mut lines = Text::default();
        for row in &self.rows {
            for (place, ((text, style), width)) in row.iter().zip(&widths).enumerate() {
                lines.add(*style, text);
                if place + 1 < row.len() {
                    let gap = width.saturating_sub(text.chars().count()) + 3;
                    lines.add(PLAIN, &" ".repeat(gap));
                }
            }
            while lines.0.ends_with(' ') {
                lines.0.pop();
            }
            lines.line();
        }
        lines
    }
}

/// Prints an answer in a form; `table` makes the one for people.
pub(super) fn print<T: Serialize>(
    form: &Form<People>,
    answer: &T,
    table: impl FnOnce() -> Text,
) -> anyhow::Result<Outcome> {
    match form {
        Form::People(People::Table) => write(table().as_str()),
        Form::Data(data) => data.print(answer),
    }
}

/// Writes to standard output: colours for a terminal only. A reader that went
/// away (`| head`) is no error.
pub(super) fn write(text: &str) -> anyhow::Result<Outcome> {
    stream(text).map(|_| Outcome::Clean)
}

/// Prints the text. Returns whether the output is still open.
pub(super) fn stream(text: &str) -> anyhow::Result<bool> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

/// Prints an answer in a form; for people it is `text`.
pub(super) fn say<T: Serialize>(form: &Form<People>, answer: &T, text: &str) -> anyhow::Result<Outcome> {
    print(form, answer, || {
        let mut lines = Text::default();
        for line in text.lines() {
            lines.add(PLAIN, line).line();
        }
        lines
    })
}

/// A number and what it counts: `1 object`, `2 objects`.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
