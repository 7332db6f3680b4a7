//! `kubemoor get releases`: shows the states of releases, and the releases that are not guarded.
//!
//! Entry point: [`run`].

mod placed;
mod watching;

use anstyle::Style;

use crate::cli::connect::{self, ClusterArgs, NamespacesArgs, RecordArgs};
use crate::cli::contexts::ContextsArgs;
use crate::cli::list::{self, ListArgs, Listed, WatchArgs};
use crate::cli::output::{BAD, GOOD, NOTE, PLAIN};
use crate::cli::{Outcome, standing, warn};
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases::{self, Listing, NOT_GUARDED, Row, State, parse_state};
use kubemoor_policy::resolver::Labels;

/// The flags of `kubemoor get releases`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    watch: WatchArgs,

    /// Only releases in this state: drifted, in-sync, not-guarded, or another reason of the list; may be repeated
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = parse_state)]
    state: Vec<State>,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    contexts: ContextsArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.contexts.is_empty() {
        return connect::run(placed::list(args));
    }
    let Args { namespaces, list, watch, state, records, cluster, contexts: _ } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        let namespace = namespaces.chosen(&connection);
        standing::say(&connection, namespace.as_deref()).await;
        let reader = Reader::new(connection, records.record_driver, &Labels::new()).await?;
        let labels = list.selector.labels.as_deref();
        let Listing { mut rows, notes } = releases::read(&reader, namespace.as_deref(), labels).await?;
        notes.iter().for_each(|note| warn(note));
        rows.retain(|row| is_wanted(row, &state));
        match watch.watch {
            true => watching::watched(&reader, namespace.as_deref(), (list, state), rows).await,
            false => list::print(&list, rows, namespace.as_deref()),
        }
    })
}

/// Whether a row is in one of the states that are asked for.
fn is_wanted(row: &Row, states: &[State]) -> bool {
    states.is_empty() || states.iter().any(|state| state.is_of(row))
}

impl Listed for Row {
    const PLURAL: &'static str = "releases";
    const RESOURCE: &'static str = "release";

    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn head(_all: bool, wide: bool) -> Vec<&'static str> {
        let mut head = vec!["NAMESPACE", "NAME", "READY", "REASON", "REVISION", "DRIFTED", "EDITS", "DRIFT"];
        head.extend(wide.then_some(["OBJECTS", "MATCHING", "IN DOUBT", "ALLOWED"]).into_iter().flatten());
        head.push("MESSAGE");
        head
    }

    fn cells(&self, _all: bool, wide: bool) -> Vec<(String, Style)> {
        let style = match (self.guarded, self.ready.as_deref()) {
            (false, _) | (true, Some("Unknown") | None) => NOTE,
            (true, Some("True")) => GOOD,
            (true, Some(_)) => BAD,
        };
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let reason = if self.guarded { text(&self.reason) } else { NOT_GUARDED.to_owned() };
        let mut cells = vec![
            (self.namespace.clone(), PLAIN),
            (self.name.clone(), PLAIN),
            (text(&self.ready), style),
            (reason, style),
            (number(self.revision), PLAIN),
            (number(self.drifted), PLAIN),
            (text(&self.edits), PLAIN),
            (text(&self.drift), PLAIN),
        ];
        if wide {
            let counts = self.counts.as_ref();
            let counted = [
                self.declared,
                counts.map(|it| it.matching),
                counts.map(|it| it.in_doubt),
                counts.map(|it| it.allowed),
            ];
            cells.extend(counted.map(|count| (number(count), PLAIN)));
        }
        cells.push((self.message.clone(), PLAIN));
        cells
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use kubemoor_declare::model::ReleaseId;
    use kubemoor_policy::guarded::GuardedReleaseStatus;
    use kubemoor_verdict::health::reported::{Pulse, ReportedHealth};

    #[test]
    fn unguarded_releases_are_listed_beside_guarded_releases() {
        let id = |name: &str| ReleaseId { namespace: "shop".into(), name: name.into() };
        let rows = [
            Row::guarded(
                id("new"),
                ReportedHealth::of(GuardedReleaseStatus::default(), &Pulse::Unknown, Timestamp::UNIX_EPOCH),
            ),
            Row::unguarded(id("old"), "it is uninstalled; its history was kept".to_owned()),
        ];
        let lines = rows.each_ref().map(|row| {
            let cells: Vec<_> = row.cells(true, true).into_iter().map(|(text, _)| text).collect();
            assert_eq!(cells.len(), Row::head(true, true).len());
            cells.join(" ")
        });
        assert!(lines[0].contains("Unknown") && lines[0].contains("not looked at it yet"), "{lines:?}");
        assert!(lines[1].contains("NotGuarded") && lines[1].ends_with("its history was kept"), "{lines:?}");
        let states = |text: &str| rows.each_ref().map(|row| parse_state(text).unwrap().is_of(row));
        assert_eq!(states("unknown"), [true, false]);
        assert_eq!(states("not-guarded"), [false, true]);
        assert_eq!(states("drifted"), [false, false]);
    }
}
