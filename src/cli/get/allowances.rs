//! `kubemoor get allowances`: temporary exceptions.
//!
//! Entry point: [`run`].

use anstyle::Style;
use jiff::Timestamp;

use crate::cli::connect::{self, ClusterArgs, NamespacesArgs};
use crate::cli::follow::{self, Change, Follow};
use crate::cli::list::{self, ListArgs, Listed, WatchArgs};
use crate::cli::output::{BAD, GOOD, PLAIN};
use crate::cli::{Outcome, standing};
use kubemoor_cluster::client::allowances::defined;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_inspect::allowances::{self, Row, State};

/// The flags of `kubemoor get allowances`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { namespaces, list, watch, cluster } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        let namespace = namespaces.chosen(&connection);
        standing::say(&connection, namespace.as_deref()).await;
        let labels = list.selector.labels.as_deref();
        let rows = allowances::read(&connection, namespace.as_deref(), labels, Timestamp::now()).await?;
        match watch.watch {
            true => watched(&connection, namespace.as_deref(), list, rows).await,
            false => list::print(&list, rows, namespace.as_deref()),
        }
    })
}

/// Prints the allowances, and each that comes, changes or goes.
async fn watched(
    connection: &Connection,
    namespace: Option<&str>,
    list: ListArgs,
    rows: Vec<Row>,
) -> anyhow::Result<Outcome> {
    let labels = list.selector.labels.clone();
    let mut follow = Follow::begin(list, rows, namespace)?;
    let (resource, doing) = (defined(), "watch the allowances");
    follow::changes(connection, (&resource, namespace, labels.as_deref()), doing, async |change| {
        let (object, is_gone) = match change {
            Change::There(object) => (object, false),
            Change::Gone(object) => (object, true),
        };
        // One that is not in the form of its definition costs itself alone.
        let Ok(allowance) = serde_json::from_value(object) else { return Ok(true) };
        let row = Row::of(allowance, Timestamp::now());
        follow.print(&if is_gone { Row { state: State::Deleted, ..row } } else { row })
    })
    .await?;
    Ok(Outcome::Clean)
}

impl Listed for Row {
    const PLURAL: &'static str = "allowances";
    const RESOURCE: &'static str = "driftallowance.kubemoor.dev";

    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
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
            State::Deleted => ("Deleted", PLAIN),
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
