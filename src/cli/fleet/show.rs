//! Rows of the fleet for people, programs and spreadsheets.
//!
//! Entry point: [`print()`]. Invariant: every form has the same rows in the same order.

use jiff::Timestamp;

use crate::cli::list::{self, Items, Listed, RowsArgs};
use crate::cli::output::{self, Form};
use crate::cli::{Outcome, warn};
use kubemoor_inspect::sheet::Sheet;

/// How an answer is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum People {
    /// For people
    Table,
    /// With more columns
    Wide,
    /// Only the names, one a line
    Name,
    /// For spreadsheets
    Csv,
}

/// A row that a spreadsheet can hold.
pub(super) trait Columned: Listed {
    /// The columns. They stay as they are: others may only be added behind them.
    const COLUMNS: &'static [&'static str];

    /// The cells below them.
    fn columns(&self) -> Vec<String>;
}

/// Prints rows, or on standard error the sentence `nothing` where people would see an empty table.
pub(super) fn print<T: Columned>(
    (form, args): (&Form<People>, &RowsArgs),
    mut rows: Vec<T>,
    nothing: &str,
) -> anyhow::Result<Outcome> {
    args.sort(&mut rows)?;
    let wide = match form {
        Form::Data(data) => return data.print(&Items::of(&rows)),
        Form::People(People::Csv) => return output::write(&sheet(&rows, !args.no_headers)?),
        Form::People(People::Name) => {
            return output::write(&rows.iter().map(list::name).collect::<String>());
        }
        Form::People(People::Table) => false,
        Form::People(People::Wide) => true,
    };
    if rows.is_empty() {
        warn(nothing);
        return Ok(Outcome::Clean);
    }
    output::write(list::table(args, &rows, true, wide).text().as_str())
}

/// A time for people.
pub(super) fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "-".to_owned(), seconds)
}

/// A time for a spreadsheet.
pub(super) fn moment(time: Option<Timestamp>) -> String {
    time.map(seconds).unwrap_or_default()
}

/// A time without its fraction.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn sheet<T: Columned>(rows: &[T], has_head: bool) -> anyhow::Result<String> {
    let mut sheet = Sheet::new();
    if has_head {
        sheet.row(T::COLUMNS)?;
    }
    for row in rows {
        sheet.row(row.columns())?;
    }
    Ok(sheet.text()?)
}
