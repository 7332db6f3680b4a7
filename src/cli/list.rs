//! Lists as kubectl prints them: for people, for programs, and for spreadsheets.

use anstyle::Style;
use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::output::{self, Form, Table};
use super::{Outcome, warn};
use kubemoor_inspect::sheet::Sheet;

/// The `apiVersion` of every list for programs, as in kubectl's lists.
const API_VERSION: &str = "v1";
const KIND: &str = "List";

/// How a list is printed for people.
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

/// The flags of a list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    /// How the list is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Form<People>,

    /// Print the table without its header
    #[arg(long)]
    pub(super) no_headers: bool,
}

/// The flag that goes on.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchArgs {
    /// Print the list, then each row that is new or changes
    #[arg(long, short = 'w')]
    pub(super) watch: bool,
}

/// The flag that chooses by labels.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SelectorArgs {
    /// Only those whose labels match, such as env=prod,tier!=db
    #[arg(long = "selector", short = 'l', value_name = "LABELS")]
    pub(super) labels: Option<String>,
}

/// A row of a list.
pub(super) trait Listed: Serialize {
    /// The plural, such as `releases`.
    const PLURAL: &'static str;
    /// The prefix of a name, such as `release`.
    const RESOURCE: &'static str;

    fn name(&self) -> &str;

    /// The namespace; empty where it has none.
    fn namespace(&self) -> &str;

    /// The headline; `all` where several namespaces are listed.
    fn head(all: bool, wide: bool) -> Vec<&'static str>;

    /// The cells below it.
    fn cells(&self, all: bool, wide: bool) -> Vec<(String, Style)>;

    /// The fields of the JSON form that are columns of a spreadsheet, such as `name` and `object.kind`. They stay as
    /// they are: others may only be added behind them.
    fn columns() -> Vec<&'static str>;
}

/// A list for programs: the shape of `kubectl get -o json`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items<T> {
    #[schemars(extend("const" = API_VERSION))]
    api_version: &'static str,
    #[schemars(extend("const" = KIND))]
    kind: &'static str,
    pub(super) items: T,
}

impl<T> Items<T> {
    pub(super) fn of(items: T) -> Self {
        Self { api_version: API_VERSION, kind: KIND, items }
    }
}

/// Prints rows, or on standard error the sentence `nothing` where people would see an empty table; `all` where several
/// namespaces are listed.
pub(super) fn print<T: Listed>(
    args: &ListArgs,
    rows: &[T],
    all: bool,
    nothing: &str,
) -> anyhow::Result<Outcome> {
    let wide = match &args.output {
        Form::Data(data) => return data.print(&Items::of(rows)),
        Form::People(People::Csv) => return output::write(&sheet(rows, !args.no_headers)?),
        Form::People(People::Name) => return output::write(&rows.iter().map(name).collect::<String>()),
        Form::People(People::Table) => false,
        Form::People(People::Wide) => true,
    };
    if rows.is_empty() {
        warn(nothing);
        return Ok(Outcome::Clean);
    }
    output::write(table(args, rows, all, wide).text().as_str())
}

/// The rows for people; `all` where several namespaces are listed.
pub(super) fn table<T: Listed>(args: &ListArgs, rows: &[T], all: bool, wide: bool) -> Table {
    let mut table = if args.no_headers { Table::default() } else { Table::new(T::head(all, wide)) };
    for row in rows {
        table.styled(row.cells(all, wide));
    }
    table
}

/// The line of a row in a list of names.
pub(super) fn name<T: Listed>(row: &T) -> String {
    format!("{}/{}\n", T::RESOURCE, row.name())
}

/// The rows for a spreadsheet.
pub(super) fn sheet<T: Listed>(rows: &[T], has_head: bool) -> anyhow::Result<String> {
    let (mut sheet, columns) = (Sheet::new(), T::columns());
    if has_head {
        sheet.row(&columns)?;
    }
    for row in rows {
        let row = serde_json::to_value(row).context("cannot write the row")?;
        let value = |column: &&str| column.split('.').try_fold(&row, |value, field| value.get(field));
        sheet.row(columns.iter().map(|column| value(column).map(cell).unwrap_or_default()))?;
    }
    Ok(sheet.text()?)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
        // `InSync 12, Drifted 1`.
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name} {}", cell(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The sentence for an empty list of `what`, in one namespace or in all.
pub(super) fn nothing(what: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("no {what} found in namespace {namespace}"),
        None => format!("no {what} found in any namespace"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_has_the_shape_of_kubectls() {
        let list = serde_json::to_value(Items::of([1, 2])).unwrap();
        assert_eq!(list, json!({"apiVersion": "v1", "kind": "List", "items": [1, 2]}));
    }

    #[test]
    fn cells_of_a_spreadsheet_are_text() {
        for (value, expected) in [
            (json!(null), ""),
            (json!("a"), "a"),
            (json!(2), "2"),
            (json!(["a", "b"]), "a,b"),
            (json!({"Drifted": 1, "InSync": 12}), "Drifted 1, InSync 12"),
        ] {
            assert_eq!(cell(&value), expected);
        }
    }
}
