//! Prints answers for people or for programs.
//!
//! Entry points: [`OutputArgs`], [`Form`], [`Table`], [`Text`], [`print()`]. Invariant: colours go to a
//! terminal only (and never where `NO_COLOR` is set). Data from the cluster can never write a control
//! sequence to the terminal. A closed output is not an error.

mod form;
mod table;
mod template;

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

pub(super) use self::form::{Data, Form, People};
pub(super) use self::table::{Table, Text};
use super::Outcome;

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

impl Data {
    /// Prints an answer.
    pub(super) fn print<T: Serialize>(&self, answer: &T) -> anyhow::Result<Outcome> {
        write(&self.text(answer)?)
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
