//! `kubemoor get`: lists of what there is in a cluster.
//!
//! Entry point: [`run`]. Invariant: reads with the caller's own rights and
//! changes nothing.

mod releases;

use jiff::Timestamp;
use serde::Serialize;

use super::Outcome;
use super::connect::{self, ClusterArgs, NamespacesArgs};
use super::output::{self, OutputArgs, Table, Text};
use crate::client::allowances;
use crate::policy::allowance::Allowance;
use crate::policy::resource::{AllowedObject, DriftAllowance};

/// The flags of `kubemoor get`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List temporary exceptions
    Allowances(ListArgs),
    /// List releases, their state, and which are not guarded and why
    Releases(releases::Args),
}

/// The flags of a list.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// One allowance in an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    object: AllowedObject,
    paths: Vec<String>,
    until: String,
    state: State,
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flaws: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    /// It counts now.
    Open,
    /// It counts no more.
    Ended,
    /// It never counts.
    Invalid,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let list = match args.what {
        What::Allowances(list) => list,
        What::Releases(args) => return releases::run(args),
    };
    let format = list.output.output;
    let (rows, namespace) = connect::run(allowances(list))?;
    output::print(format, &rows, || table(&rows, namespace.as_deref()))
}

/// The allowances, and the one namespace that was looked at.
async fn allowances(args: ListArgs) -> anyhow::Result<(Vec<Row>, Option<String>)> {
    let ListArgs { namespaces, output: _, cluster } = args;
    let connection = cluster.connect().await?;
    let namespace = namespaces.chosen(&connection);
    let found = match allowances::list(&connection.client, namespace.as_deref()).await {
        Ok(found) => found,
        // Where the definition is absent there are none.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(connect::failed(&connection, "list the allowances", error)),
    };
    let now = Timestamp::now();
    let mut rows: Vec<_> = found.into_iter().map(|allowance| Row::of(allowance, now)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.until, &a.name).cmp(&(&b.namespace, &b.until, &b.name)));
    Ok((rows, namespace))
}

impl Row {
    fn of(allowance: DriftAllowance, now: Timestamp) -> Self {
        let (state, flaws) = match Allowance::compile(&allowance) {
            Ok(compiled) if compiled.open(now) => (State::Open, Vec::new()),
            Ok(_) => (State::Ended, Vec::new()),
            Err(flaws) => (State::Invalid, flaws.iter().map(ToString::to_string).collect()),
        };
        let DriftAllowance { metadata, spec } = allowance;
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            object: spec.object,
            paths: spec.paths,
            until: spec.until,
            state,
            by: spec.requested_by.map(|by| by.user).unwrap_or_default(),
            reason: spec.reason.unwrap_or_default(),
            flaws,
        }
    }
}

/// Nothing found of what was looked for in a namespace, or in all.
fn nothing(what: &str, namespace: Option<&str>) -> Text {
    let place =
        namespace.map_or("in any namespace".to_owned(), |namespace| format!("in namespace {namespace}"));
    let mut text = Text::default();
    text.add(output::PLAIN, &format!("No {what} found {place}.")).line();
    text
}

fn table(rows: &[Row], namespace: Option<&str>) -> Text {
    if rows.is_empty() {
        return nothing("allowances", namespace);
    }
    let head = ["NAMESPACE", "NAME", "OBJECT", "PATHS", "UNTIL", "STATE", "BY", "REASON"];
    let skipped = usize::from(namespace.is_some());
    let mut table = Table::new(head.into_iter().skip(skipped));
    for row in rows {
        let state = match row.state {
            State::Open => ("Open", output::GOOD),
            State::Ended => ("Ended", output::PLAIN),
            State::Invalid => ("Invalid", output::BAD),
        };
        let plain = |text: &str| (text.to_owned(), output::PLAIN);
        let cells = [
            plain(&row.namespace),
            plain(&row.name),
            plain(&format!("{}/{}", row.object.kind, row.object.name)),
            plain(&row.paths.join(",")),
            plain(&row.until),
            (state.0.to_owned(), state.1),
            plain(&row.by),
            plain(&row.reason),
        ];
        table.styled(cells.into_iter().skip(skipped));
    }
    table.text()
}
