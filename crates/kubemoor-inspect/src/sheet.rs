//! Tables for spreadsheets: CSV by RFC 4180.
//!
//! Entry point: [`Sheet`]. Invariant: no user input can become a formula, and no cell holds a control
//! character.

use std::borrow::Cow;

use csv::{QuoteStyle, Terminator, WriterBuilder};

use super::failure::Failure;

use kubemoor_declare::model::text::one_line;

/// The characters that start a formula in a spreadsheet, also in their wide forms.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// A table that grows row by row.
pub struct Sheet(csv::Writer<Vec<u8>>);

impl Sheet {
    /// A table without rows. Every cell is quoted, so that a cell does not end where a spreadsheet
    /// takes another character for the separator.
    #[allow(clippy::new_without_default, reason = "an empty sheet is no default of anything")]
    pub fn new() -> Self {
        let mut form = WriterBuilder::new();
        form.terminator(Terminator::CRLF).quote_style(QuoteStyle::Always);
        Self(form.from_writer(Vec::new()))
    }

    /// Adds a row.
    pub fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) -> Result<(), Failure> {
        let cells = cells.into_iter().map(|cell| safe(cell.as_ref()).into_owned());
        self.0.write_record(cells).map_err(|error| unwritten(&error))
    }

    /// The lines.
    pub fn text(self) -> Result<String, Failure> {
        let bytes = self.0.into_inner().map_err(|error| unwritten(&error))?;
        String::from_utf8(bytes).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &dyn std::error::Error) -> Failure {
    Failure::Named(format!("cannot write CSV: {error}"))
}

/// A cell that every spreadsheet treats as text: an apostrophe goes before a possible formula, as OWASP
/// recommends, and a space replaces each unprintable character.
fn safe(cell: &str) -> Cow<'_, str> {
    let plain = one_line(cell);
    // Some drop the spaces before a cell.
    if plain.trim_start().starts_with(FORMULA) { Cow::Owned(format!("'{plain}")) } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for (cell, expected) in [
            ("alice", "alice"),
            ("", ""),
            ("a=b", "a=b"),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("＝1", "'＝1"),
            ("  =1", "'  =1"),
            ("\t=1", "' =1"),
            ("\r\n=1", "'  =1"),
            ("a\nb\u{1b}", "a b "),
        ] {
            assert_eq!(safe(cell), expected, "{cell:?}");
        }
    }

    #[test]
    fn rows_are_lines_of_quoted_cells() {
        let mut sheet = Sheet::new();
        sheet.row(["a", "b"]).unwrap();
        sheet.row(["say \"hi\"", "1,2;=3"]).unwrap();
        assert_eq!(sheet.text().unwrap(), "\"a\",\"b\"\r\n\"say \"\"hi\"\"\",\"1,2;=3\"\r\n");
    }
}
