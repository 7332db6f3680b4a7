//! Text for people: lines with colours, and tables.
//!
//! Entry points: [`Text`], [`Table`]. Invariant: data from the cluster can never write a control sequence to the
//! terminal. Must not print.

use std::fmt::Write as _;

use anstyle::Style;

use super::PLAIN;

use kubemoor_declare::model::text::escaped;

/// Text for people, with colours. Control characters in inserted data are shown in escaped form.
#[derive(Debug, Default)]
pub(in crate::cli) struct Text(String);

/// Rows as lines, each column as wide as its widest cell, as kubectl prints
/// them.
#[derive(Debug, Default)]
pub(in crate::cli) struct Table {
    rows: Vec<Vec<(String, Style)>>,
    /// How wide columns are at least.
    least: Vec<usize>,
}

impl Text {
    /// Adds `text` in a style.
    pub(in crate::cli) fn add(&mut self, style: Style, text: &str) -> &mut Self {
        let text = escaped(text);
        // Writing to a String cannot fail.
        let _ =
            if style == PLAIN { self.0.write_str(&text) } else { write!(self.0, "{style}{text}{style:#}") };
        self
    }

    /// Ends the line.
    pub(in crate::cli) fn line(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }

    /// Adds other text as it is.
    pub(in crate::cli) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// The text with its control sequences.
    pub(in crate::cli) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Table {
    /// A table with this headline.
    pub(in crate::cli) fn new<'h>(head: impl IntoIterator<Item = &'h str>) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    /// A table without a headline, whose columns are at least this wide.
    pub(in crate::cli) fn at_least(widths: &[usize]) -> Self {
        Self { rows: Vec::new(), least: widths.to_vec() }
    }

    /// How wide each column is.
    pub(in crate::cli) fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).chain([self.least.len()]).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|(text, _)| text.chars().count()).max().unwrap_or_default();
            widest.max(self.least.get(column).copied().unwrap_or_default())
        };
        (0..columns).map(width).collect()
    }

    /// Adds a row.
    pub(in crate::cli) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.styled(cells.into_iter().map(|cell| (cell.into(), PLAIN)))
    }

    /// Adds a row of which each cell has its own style.
    pub(in crate::cli) fn styled(&mut self, cells: impl IntoIterator<Item = (String, Style)>) -> &mut Self {
        self.rows.push(cells.into_iter().map(|(text, style)| (escaped(&text).into_owned(), style)).collect());
        self
    }

    /// The lines.
    pub(in crate::cli) fn text(&self) -> Text {
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
