//! `kubemoor get policies`: the cluster's policies, and which are in force.
//!
//! Entry point: [`run`].

use anstyle::Style;

use crate::cli::connect::{self, ClusterArgs};
use crate::cli::follow::{self, Change, Follow};
use crate::cli::list::{self, ListArgs, Listed, WatchArgs};
use crate::cli::output::{BAD, GOOD, NOTE, PLAIN};
use crate::cli::{Outcome, standing};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::policy_statuses;
use kubemoor_inspect::policies::{self, Row};

/// The flags of `kubemoor get policies`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { list, watch, cluster } = args;
    connect::run(async move {
        let connection = cluster.connect().await?;
        standing::say(&connection, None).await;
        let rows = policies::read(&connection, list.selector.labels.as_deref()).await?;
        match watch.watch {
            true => watched(&connection, list, rows).await,
            false => list::print(&list, rows, None),
        }
    })
}

/// Prints the policies, and each that comes, changes or goes.
async fn watched(connection: &Connection, list: ListArgs, rows: Vec<Row>) -> anyhow::Result<Outcome> {
    let labels = list.selector.labels.clone();
    let mut follow = Follow::begin(list, rows, None)?;
    let (resource, doing) = (policy_statuses::resource(), "watch the policies");
    follow::changes(connection, (&resource, None, labels.as_deref()), doing, async |change| {
        follow.print(&match change {
            Change::There(policy) => Row::of(&policy),
            Change::Gone(policy) => Row::deleted(&policy),
        })
    })
    .await?;
    Ok(Outcome::Clean)
}

impl Listed for Row {
    const PLURAL: &'static str = "policies";
    const RESOURCE: &'static str = "driftpolicy.kubemoor.dev";

    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        ""
    }

    fn head(_all: bool, wide: bool) -> Vec<&'static str> {
        let mut head = vec!["NAME", "PRIORITY", "EDITS", "DRIFT", "ACCEPTED", "REASON"];
        head.extend(wide.then_some(["RELEASES", "NAMESPACES"]).into_iter().flatten());
        head.push("MESSAGE");
        head
    }

    fn cells(&self, _all: bool, wide: bool) -> Vec<(String, Style)> {
        let plain = |text: &str| (if text.is_empty() { "-" } else { text }.to_owned(), PLAIN);
        let style = match self.accepted.as_str() {
            "True" => GOOD,
            "False" => BAD,
            _ => NOTE,
        };
        let mut cells = vec![
            plain(&self.name),
            plain(&self.priority.to_string()),
            plain(self.edits.as_deref().unwrap_or_default()),
            plain(self.drift.as_deref().unwrap_or_default()),
            (self.accepted.clone(), style),
            plain(&self.reason),
        ];
        if wide {
            let globs = |globs: &[String]| if globs.is_empty() { "*".to_owned() } else { globs.join(",") };
            cells.extend([plain(&globs(&self.releases)), plain(&globs(&self.namespaces))]);
        }
        // A policy that is accepted and does all that it says needs no words.
        cells.push(plain(if self.reason == "Accepted" { "" } else { &self.told }));
        cells
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepted_condition_counts_only_for_the_observed_generation() {
        let policy = |judged: i64, status: &str| {
            Row::of(&json!({
                "metadata": {"name": "production", "generation": 2},
                "spec": {"priority": 10, "edits": "Deny", "releases": {"names": ["shop-*"]}},
                "status": {
                    "observedGeneration": judged,
                    "conditions": [{"type": "Accepted", "status": status, "reason": "Flawed", "message": "no"}],
                },
            }))
        };
        let accepted = policy(2, "True");
        assert_eq!(
            (accepted.accepted.as_str(), accepted.message.as_str(), accepted.priority),
            ("True", "", 10)
        );
        let refused = policy(2, "False");
        assert_eq!((refused.accepted.as_str(), refused.message.as_str()), ("False", "no"));
        assert_eq!(policy(1, "True").accepted, "Unknown");
        let gone = Row::deleted(&json!({"metadata": {"name": "production"}}));
        assert_eq!((gone.accepted.as_str(), gone.reason.as_str()), ("False", "Deleted"));
        let wide: Vec<_> = accepted.cells(true, true).into_iter().map(|(text, _)| text).collect();
        assert_eq!(wide, ["production", "10", "Deny", "-", "True", "Flawed", "shop-*", "*", "no"]);
        assert_eq!(Row::head(true, true).len(), wide.len());
    }
}
