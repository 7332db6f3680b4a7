//! `kubemoor get policies`: the cluster's policies, and which are in force.
//!
//! Entry point: [`run`]. Invariant: whether a policy is in force is what the guard says of the
//! generation that is there, and nothing else.

use anstyle::Style;
use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;

use crate::cli::connect::{self, ClusterArgs};
use crate::cli::list::{self, ListArgs, Listed};
use crate::cli::output::{BAD, GOOD, NOTE, PLAIN};
use crate::cli::{Outcome, standing};
use crate::client::policy_statuses;

/// The flags of `kubemoor get policies`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// One policy.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    priority: i64,
    edits: Option<String>,
    drift: Option<String>,
    /// `True`, `False`, or `Unknown` where the guard has not judged this generation.
    accepted: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// The globs of the releases that it is for; empty for all.
    releases: Vec<String>,
    /// The globs of their namespaces; empty for all.
    namespaces: Vec<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { list, cluster } = args;
    let labels = list.selector.labels.clone();
    let found = connect::run(async move {
        let connection = cluster.connect().await?;
        standing::say(&connection, None).await;
        match policy_statuses::list(&connection.client, labels.as_deref()).await {
            Ok(found) => Ok(found),
            Err(error) if error.is_not_found() => {
                Err(anyhow!("there is no definition of DriftPolicy: `kubemoor manifests crds` prints it"))
            }
            Err(error) => Err(connect::failed(&connection, "list the policies", error)),
        }
    })?;
    let mut rows: Vec<_> = found.iter().map(Row::of).collect();
    rows.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    list::print(&list, rows, None)
}

impl Row {
    fn of(policy: &Value) -> Self {
        let text = |pointer: &str| policy.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let texts = |pointer: &str| {
            let list = policy.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let conditions = policy.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let is_accepted =
            |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some("Accepted");
        let generation = policy.pointer("/metadata/generation").and_then(Value::as_i64);
        let judged = policy.pointer("/status/observedGeneration").and_then(Value::as_i64);
        let condition = conditions.into_iter().find(is_accepted).filter(|_| judged == generation);
        let of = |key: &str| condition.and_then(|it| it.get(key)?.as_str()).unwrap_or_default().to_owned();
        let accepted = condition.map_or_else(|| "Unknown".to_owned(), |_| of("status"));
        Self {
            name: text("/metadata/name").unwrap_or_default(),
            priority: policy.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or_default(),
            edits: text("/spec/edits"),
            drift: text("/spec/drift"),
            message: if accepted == "False" { of("message") } else { String::new() },
            accepted,
            reason: of("reason"),
            releases: texts("/spec/releases/names"),
            namespaces: texts("/spec/releases/namespaces"),
        }
    }
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
        head.extend(wide.then_some(["RELEASES", "NAMESPACES", "MESSAGE"]).into_iter().flatten());
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
            cells.extend([
                plain(&globs(&self.releases)),
                plain(&globs(&self.namespaces)),
                plain(&self.message),
            ]);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_counts_as_accepted_for_the_generation_that_was_judged() {
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
        let wide: Vec<_> = accepted.cells(true, true).into_iter().map(|(text, _)| text).collect();
        assert_eq!(wide, ["production", "10", "Deny", "-", "True", "Flawed", "shop-*", "*", "-"]);
        assert_eq!(Row::head(true, true).len(), wide.len());
    }
}
