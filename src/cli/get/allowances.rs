//! `kubemoor get allowances`: temporary exceptions.
//!
//! Entry point: [`run`].

use anstyle::Style;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::connect::{self, ClusterArgs, NamespacesArgs};
use crate::cli::follow::{self, Change, Follow};
use crate::cli::list::{self, ListArgs, Listed, WatchArgs};
use crate::cli::output::{BAD, GOOD, PLAIN};
use crate::cli::{Outcome, standing};
use crate::client::allowances;
use crate::client::connection::Connection;
use crate::policy::allowance::Allowance;
use crate::policy::resource::{AllowedObject, DriftAllowance};

/// The flags of `kubemoor get allowances`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    watch: WatchArgs,

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
    /// It was deleted while the list was watched.
    Deleted,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { namespaces, list, watch, cluster } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        let namespace = namespaces.chosen(&connection);
        standing::say(&connection, namespace.as_deref()).await;
        let rows = allowances(&connection, namespace.as_deref(), &list).await?;
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
    let (resource, doing) = (allowances::defined(), "watch the allowances");
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

/// The allowances in a namespace, or in all.
async fn allowances(
    connection: &Connection,
    namespace: Option<&str>,
    list: &ListArgs,
) -> anyhow::Result<Vec<Row>> {
    let labels = list.selector.labels.as_deref();
    let found = match allowances::labelled(&connection.client, namespace, labels).await {
        Ok(found) => found,
        // Where the definition is absent there are none.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(connect::failed(connection, "list the allowances", error)),
    };
    let now = Timestamp::now();
    let mut rows: Vec<_> = found.into_iter().map(|allowance| Row::of(allowance, now)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.until, &a.name).cmp(&(&b.namespace, &b.until, &b.name)));
    Ok(rows)
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
