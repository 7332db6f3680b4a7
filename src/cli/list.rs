//! Prints lists as kubectl does: tables, JSON or YAML, and CSV; with `--watch` also each row that is new or changed,
//! until the output is closed.

use std::collections::HashMap;

use anstyle::Style;
use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::connect::failed;
use super::output::{self, OutputFormat, PLAIN, Table};
use super::{CommandOutcome, warn};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::resource::ApiResource;
use kubemoor_cluster::client::watch::{ObjectEvent, Watch};
use kubemoor_inspect::report::Sheet;

/// The `apiVersion` of every list for programs, as in kubectl's lists.
const API_VERSION: &str = "v1";
const KIND: &str = "List";

/// The output formats of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ListFormat {
    /// For people
    Table,
    /// With more columns
    Wide,
    /// Only the names, one per line
    Name,
    /// For spreadsheets
    Csv,
}

/// The flags of a list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(super) output: OutputFormat<ListFormat>,

    /// Omit the column names
    #[arg(long)]
    pub(super) no_headers: bool,
}

/// The flag that selects by labels.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SelectorArgs {
    /// Only items whose labels match, such as env=prod,tier!=db
    #[arg(long = "selector", short = 'l', value_name = "LABELS")]
    pub(super) labels: Option<String>,
}

pub(super) trait ListRow: Serialize {
    /// The prefix of a name, such as `release`.
    const RESOURCE: &'static str;
    /// The JSON fields that are the columns of the CSV format, such as `name` and `object.kind`. New columns may only
    /// be appended, and none may be renamed.
    const COLUMNS: &'static str;
    /// The titles of the table's columns. `+` marks one that only `-o wide` shows, `?` one that is left out if a single
    /// namespace is listed.
    const HEAD: &'static str;

    /// The namespace, empty if it has none, and the name.
    fn key(&self) -> (&str, &str);

    /// The cells of the row, one for each title.
    fn cells(&self) -> Vec<(String, Style)>;

    fn head() -> Vec<&'static str> {
        Self::HEAD.split(',').collect()
    }

    fn columns() -> Vec<&'static str> {
        Self::COLUMNS.split(' ').collect()
    }
}

#[derive(Serialize)]
pub(super) struct InCluster<T> {
    pub(super) cluster: String,
    #[serde(flatten)]
    pub(super) row: T,
}

/// A list, in the form of `kubectl get -o json`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items<T> {
    #[schemars(extend("const" = API_VERSION))]
    api_version: &'static str,
    #[schemars(extend("const" = KIND))]
    kind: &'static str,
    pub(super) items: T,
}

impl<T: ListRow> ListRow for InCluster<T> {
    const RESOURCE: &'static str = T::RESOURCE;
    const COLUMNS: &'static str = T::COLUMNS;
    const HEAD: &'static str = T::HEAD;

    fn key(&self) -> (&str, &str) {
        self.row.key()
    }

    fn head() -> Vec<&'static str> {
        ["CLUSTER"].into_iter().chain(T::head()).collect()
    }

    fn cells(&self) -> Vec<(String, Style)> {
        [(self.cluster.clone(), PLAIN)].into_iter().chain(self.row.cells()).collect()
    }

    fn columns() -> Vec<&'static str> {
        ["cluster"].into_iter().chain(T::columns()).collect()
    }
}

impl<T> Items<T> {
    pub(super) fn new(items: T) -> Self {
        Self { api_version: API_VERSION, kind: KIND, items }
    }
}

/// Prints rows, or the message `nothing` on standard error instead of an empty table. `all`: several namespaces are
/// listed.
pub(super) fn print<T: ListRow>(
    args: &ListArgs,
    rows: &[T],
    all: bool,
    nothing: &str,
) -> anyhow::Result<CommandOutcome> {
    let wide = match &args.output {
        OutputFormat::Data(data) => return data.print(&Items::new(rows)),
        OutputFormat::People(ListFormat::Csv) => return output::write(&sheet(rows, !args.no_headers)?),
        OutputFormat::People(ListFormat::Name) => {
            return output::write(&rows.iter().map(name).collect::<String>());
        }
        OutputFormat::People(ListFormat::Table) => false,
        OutputFormat::People(ListFormat::Wide) => true,
    };
    if rows.is_empty() {
        warn(nothing);
        return Ok(CommandOutcome::Clean);
    }
    output::write(table(args, rows, all, wide).text().as_str())
}

fn table<T: ListRow>(args: &ListArgs, rows: &[T], all: bool, wide: bool) -> Table {
    let mut table = Table::default();
    if !args.no_headers {
        table.row(visible::<T, _>(T::head(), all, wide).map(|title| title.trim_start_matches(['+', '?'])));
    }
    for row in rows {
        table.styled(visible::<T, _>(row.cells(), all, wide));
    }
    table
}

fn visible<T: ListRow, C>(cells: Vec<C>, all: bool, wide: bool) -> impl Iterator<Item = C> {
    let is_visible = move |title: &str| match title.chars().next() {
        Some('+') => wide,
        Some('?') => all,
        _ => true,
    };
    cells.into_iter().zip(T::head()).filter(move |(_, title)| is_visible(title)).map(|(cell, _)| cell)
}

pub(super) fn name<T: ListRow>(row: &T) -> String {
    format!("{}/{}\n", T::RESOURCE, row.key().1)
}

pub(super) fn sheet<T: ListRow>(rows: &[T], has_head: bool) -> anyhow::Result<String> {
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

/// The message for an empty list of `what`, in one namespace or in all.
pub(super) fn nothing(what: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("no {what} found in namespace {namespace}"),
        None => format!("no {what} found in any namespace"),
    }
}

pub(super) struct Follow {
    args: ListArgs,
    all: bool,
    widths: Vec<usize>,
    printed: HashMap<(String, String), String>,
}

impl Follow {
    pub(super) fn begin<T: ListRow>(
        args: ListArgs,
        rows: &[T],
        namespace: Option<&str>,
    ) -> anyhow::Result<Self> {
        let (all, widths) = (namespace.is_none(), Vec::new());
        let mut follow = Self { args, all, widths, printed: HashMap::new() };
        if let OutputFormat::People(form @ (ListFormat::Table | ListFormat::Wide)) = follow.args.output {
            let wide = form == ListFormat::Wide;
            let table = table(&follow.args, rows, all, wide);
            follow.widths = table.widths();
            output::write(table.text().as_str())?;
            for row in rows {
                follow.note(row)?;
            }
            return Ok(follow);
        }
        if follow.args.output == OutputFormat::People(ListFormat::Csv) && !follow.args.no_headers {
            output::write(&sheet::<T>(&[], true)?)?;
        }
        for row in rows {
            follow.print(row)?;
        }
        Ok(follow)
    }

    /// Prints a row if its text changed. Returns whether the output is still open.
    pub(super) fn print<T: ListRow>(&mut self, row: &T) -> anyhow::Result<bool> {
        if !self.note(row)? {
            return Ok(true);
        }
        let text = match &self.args.output {
            OutputFormat::People(ListFormat::Name) => name(row),
            OutputFormat::People(ListFormat::Csv) => sheet(std::slice::from_ref(row), false)?,
            OutputFormat::People(form) => {
                let mut table = Table::with_min_widths(&self.widths);
                table.styled(visible::<T, _>(row.cells(), self.all, *form == ListFormat::Wide));
                self.widths = table.widths();
                table.text().as_str().to_owned()
            }
            OutputFormat::Data(data) => data.part(row)?,
        };
        output::stream(&text)
    }

    /// Remembers a row. Returns whether its text changed.
    fn note<T: ListRow>(&mut self, row: &T) -> anyhow::Result<bool> {
        let mut text = serde_json::to_string(row).context("cannot write the row as JSON")?;
        if let OutputFormat::People(ListFormat::Table | ListFormat::Wide) = self.args.output {
            // The table may show values that the JSON form leaves out.
            text.extend(row.cells().into_iter().map(|(cell, _)| cell));
        }
        let (namespace, name) = row.key();
        let before = self.printed.insert((namespace.to_owned(), name.to_owned()), text.clone());
        Ok(before.is_none_or(|before| before != text))
    }
}

/// Passes the existing objects of a resource and then their changes to `show`, each with whether it was deleted, until
/// `show` returns that the output is closed. `doing` completes "cannot …" in an error.
pub(super) async fn changes(
    connection: &ClusterConnection,
    (resource, namespace, labels): (&ApiResource, Option<&str>, Option<&str>),
    doing: &str,
    mut show: impl AsyncFnMut(Value, bool) -> anyhow::Result<bool>,
) -> anyhow::Result<CommandOutcome> {
    let mut watch = Watch::<Value>::new(connection.client.clone(), resource, namespace, labels);
    let mut is_broken = false;
    loop {
        let (object, is_gone) = match watch.next().await {
            ObjectEvent::Relisting | ObjectEvent::Synced => continue,
            ObjectEvent::Watching => {
                is_broken = false;
                continue;
            }
            ObjectEvent::Listed(object) | ObjectEvent::Applied(object) => (object, false),
            ObjectEvent::Deleted(object) => (object, true),
            ObjectEvent::Broken(error) if is_final(&error) => {
                return Err(failed(connection, doing, error).into());
            }
            ObjectEvent::Broken(error) => {
                if !std::mem::replace(&mut is_broken, true) {
                    warn(&format!("{}, trying again", failed(connection, doing, error)));
                }
                continue;
            }
        };
        if !show(object, is_gone).await? {
            return Ok(CommandOutcome::Clean);
        }
    }
}

/// Whether a retry cannot help, because the rights or the kind are missing.
fn is_final(error: &ClusterError) -> bool {
    error.is_not_found() || matches!(error, ClusterError::Refused { code: 401 | 403, .. })
}

#[cfg(test)]
mod tests;
