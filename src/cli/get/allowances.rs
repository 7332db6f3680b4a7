//! `kubemoor get allowances`: temporary exceptions.
//!
//! Entry point: [`run`].

use anstyle::Style;
use jiff::Timestamp;

use crate::cli::Outcome;
use crate::cli::connect::{self, ClusterArgs, NamespacesArgs};
use crate::cli::list::{self, ListArgs, Listed};
use crate::cli::output::{BAD, GOOD, PLAIN};
use crate::inspect::allowances::{self, Row, State};

/// The flags of `kubemoor get allowances`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let list = args.list.clone();
    let (rows, namespace) = connect::run(rows(args))?;
    list::print(&list, rows, namespace.as_deref())
}

/// The allowances, and the one namespace that was looked at.
async fn rows(args: Args) -> anyhow::Result<(Vec<Row>, Option<String>)> {
    let Args { namespaces, list, cluster } = args;
    let connection = cluster.connect().await?;
    let namespace = namespaces.chosen(&connection);
    let labels = list.selector.labels.as_deref();
    let rows = allowances::read(&connection, namespace.as_deref(), labels, Timestamp::now()).await?;
    Ok((rows, namespace))
}

impl Listed for Row {
    const PLURAL: &'static str = "allowances";
    const RESOURCE: &'static str = "driftallowance.kubemoor.dev";

    fn name(&self) -> &str {
        &self.name
    }

    fn head(all: bool, wide: bool) -> Vec<&'static str> {
        let mut head = vec!["NAMESPACE", "NAME", "OBJECT", "PATHS", "UNTIL", "STATE", "BY", "REASON"];
        head.extend(wide.then_some("FLAWS"));
        head.split_off(usize::from(!all))
    }

    fn cells(&self, all: bool, wide: bool) -> Vec<(String, Style)> {
        let state = match self.state {
            State::Open => ("Open", GOOD),
            State::Ended => ("Ended", PLAIN),
            State::Invalid => ("Invalid", BAD),
        };
        let plain = |text: &str| (text.to_owned(), PLAIN);
        let mut cells = vec![
            plain(&self.namespace),
            plain(&self.name),
            plain(&format!("{}/{}", self.object.kind, self.object.name)),
            plain(&self.paths.join(",")),
            plain(&self.until),
            (state.0.to_owned(), state.1),
            plain(&self.by),
            plain(&self.reason),
        ];
        cells.extend(wide.then(|| plain(&self.flaws.join("; "))));
        cells.split_off(usize::from(!all))
    }
}
