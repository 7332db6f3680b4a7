//! Lists as kubectl prints them.
//!
//! Entry points: [`ListArgs`] and [`WatchArgs`] to flatten into a command's flags, [`print()`] for its rows;
//! [`RowsArgs`] for rows of another form; [`Items`] for programs. Invariant: every list has the same shape in
//! JSON and YAML. A sort field must exist.

mod sort;

use anstyle::Style;
use serde::Serialize;

use self::sort::FieldPath;
use super::output::{self, Form, Table};
use super::{Outcome, warn};

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
}

/// The flags of a list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    /// How the list is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Form<People>,

    #[command(flatten)]
    pub(super) rows: RowsArgs,

    #[command(flatten)]
    pub(super) selector: SelectorArgs,
}

/// The flags of whatever prints rows.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RowsArgs {
    /// Print the table without its header
    #[arg(long)]
    pub(super) no_headers: bool,

    /// Sort by this field of the JSON form, such as .namespace or {.reason}
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<FieldPath>,
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

/// Prints rows; `namespace` is the one that was looked at, if it was one.
pub(super) fn print<T: Listed>(
    args: &ListArgs,
    mut rows: Vec<T>,
    namespace: Option<&str>,
) -> anyhow::Result<Outcome> {
    args.rows.sort(&mut rows)?;
    let wide = match &args.output {
        Form::Data(data) => return data.print(&Items::of(&rows)),
        Form::People(People::Name) => return output::write(&rows.iter().map(name).collect::<String>()),
        Form::People(People::Table) => false,
        Form::People(People::Wide) => true,
    };
    if rows.is_empty() {
        warn(&nothing(T::PLURAL, namespace));
        return Ok(Outcome::Clean);
    }
    output::write(table(&args.rows, &rows, namespace.is_none(), wide).text().as_str())
}

/// The rows for people; `all` where several namespaces are listed.
pub(super) fn table<T: Listed>(args: &RowsArgs, rows: &[T], all: bool, wide: bool) -> Table {
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

impl RowsArgs {
    /// Sorts rows as asked for.
    pub(super) fn sort<T: Serialize>(&self, rows: &mut Vec<T>) -> anyhow::Result<()> {
        self.sort_by.as_ref().map_or(Ok(()), |field| field.sort(rows))
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
mod tests;
