//! `kubemoor get releases --contexts`: the releases of several clusters in one list.
//!
//! Entry point: [`list()`]. Invariant: each row names its cluster. A cluster that fails does not affect the
//! others.

use anstyle::Style;
use anyhow::bail;
use serde::Serialize;

use super::{Args, is_wanted};
use crate::cli::contexts;
use crate::cli::list::{self, Listed};
use crate::cli::output::PLAIN;
use crate::cli::{Outcome, standing, warn};
use kubemoor_cluster::client::connection::{self, Access};
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases::{self, Listing, Row};
use kubemoor_policy::resolver::Labels;

/// A release of one of several clusters.
#[derive(Serialize)]
struct Placed {
    /// The context.
    cluster: String,
    #[serde(flatten)]
    row: Row,
}

/// Prints the releases of each context.
pub(super) async fn list(args: Args) -> anyhow::Result<Outcome> {
    if args.watch.watch {
        bail!("--watch follows one cluster: name it with --context");
    }
    let ask = async |name: &str, access: Access| {
        let connection = connection::connect_by(&access).await?;
        let namespace = args.namespaces.chosen(&connection);
        standing::say_of(name, &connection, namespace.as_deref()).await;
        let reader = Reader::new(connection, args.records.record_driver, &Labels::new()).await?;
        let labels = args.list.selector.labels.as_deref();
        let Listing { mut rows, notes } = releases::read(&reader, namespace.as_deref(), labels).await?;
        notes.iter().for_each(|note| warn(&format!("{name}: {note}")));
        rows.retain(|row| is_wanted(row, &args.state));
        Ok(rows)
    };
    let answers = contexts::each(args.contexts.clusters(&args.cluster), contexts::PATIENCE, ask).await;
    let incomplete = answers.incomplete();
    let of_cluster = |(cluster, rows): (String, Vec<Row>)| {
        rows.into_iter().map(move |row| Placed { cluster: cluster.clone(), row })
    };
    let rows: Vec<_> = answers.found.into_iter().flat_map(of_cluster).collect();
    let outcome = list::print(&args.list, rows, args.namespaces.named())?;
    incomplete.map_or(Ok(outcome), Err)
}

impl Listed for Placed {
    const PLURAL: &'static str = Row::PLURAL;
    const RESOURCE: &'static str = Row::RESOURCE;

    fn name(&self) -> &str {
        self.row.name()
    }

    fn namespace(&self) -> &str {
        self.row.namespace()
    }

    fn head(all: bool, wide: bool) -> Vec<&'static str> {
        ["CLUSTER"].into_iter().chain(Row::head(all, wide)).collect()
    }

    fn cells(&self, all: bool, wide: bool) -> Vec<(String, Style)> {
        [(self.cluster.clone(), PLAIN)].into_iter().chain(self.row.cells(all, wide)).collect()
    }
}
