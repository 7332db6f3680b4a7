//! Log lines, on standard error: text on a terminal, everywhere else one JSON object per line. A lasting failure is
//! logged once. Spans for a collector are in `traces`.

pub mod traces;

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;

use kubemoor_declare::model::text::escaped_json;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("logging is already initialized in this process")]
pub struct TelemetryError;

/// Decides which failures of a retried operation are logged: the first of each series. Use one for each operation,
/// since one failure must not hide another.
#[derive(Debug, Default)]
pub struct FailureLog {
    is_failing: bool,
}

impl FailureLog {
    /// Records a failure. Returns whether to log it: only the first one since the last success.
    #[must_use]
    pub fn note_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.is_failing, true)
    }

    /// Records a success, so that the next failure is logged.
    pub fn note_success(&mut self) {
        self.is_failing = false;
    }
}

/// The error and its causes, in one sentence: transports put the useful part (refused, name not known, bad certificate)
/// into the innermost cause.
pub fn causes_of(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// Starts logging with `filter`, which must be valid, such as `info,kubemoor=debug`.
pub fn init(filter: &str) -> Result<(), TelemetryError> {
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(|| EscapingWriter(std::io::stderr()))
        .with_ansi(terminal);
    let installed = if terminal {
        builder.try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    };
    installed.map_err(|_| TelemetryError)
}

/// Escapes characters in log lines that would reverse the order of the text around them. Each write is a whole line.
struct EscapingWriter<W>(W);

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(escaped_json(text.to_owned()).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests;
