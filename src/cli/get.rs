//! `kubemoor get`: lists of releases, temporary exceptions and policies, each read with the caller's own rights.

use anstyle::Style;
use anyhow::bail;
use jiff::Timestamp;
use serde::Serialize;

use super::connect::{self, ClusterArgs, NamespacesArgs, RecordArgs};
use super::contexts::{self, ContextsArgs};
use super::follow::{self, Change, Follow};
use super::list::{self, ListArgs, Listed, SelectorArgs, WatchArgs, nothing};
use super::output::{BAD, GOOD, NOTE, PLAIN};
use super::{Outcome, standing, warn};
use kubemoor_cluster::client::allowances::defined;
use kubemoor_cluster::client::connection::{self, Access};
use kubemoor_cluster::client::{guarded, policy_statuses};
use kubemoor_inspect::pulses::Pulses;
use kubemoor_inspect::reading::Reader;
use kubemoor_inspect::releases::{self, Listing, NOT_GUARDED, State, parse_state};
use kubemoor_inspect::{allowances, policies};
use kubemoor_policy::resolver::Labels;

/// The flags of `kubemoor get`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List temporary exceptions
    #[command(visible_aliases = ["allowance", "exceptions", "exception"])]
    Allowances(AllowancesArgs),
    /// List policies, and whether they are in force
    #[command(visible_alias = "policy")]
    Policies(PoliciesArgs),
    /// List releases, their state, and which are not guarded and why
    #[command(visible_alias = "release")]
    Releases(ReleasesArgs),
}

/// The flags of `kubemoor get allowances`.
#[derive(Debug, clap::Args)]
struct AllowancesArgs {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    selector: SelectorArgs,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The flags of `kubemoor get policies`.
#[derive(Debug, clap::Args)]
struct PoliciesArgs {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    selector: SelectorArgs,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The flags of `kubemoor get releases`.
#[derive(Debug, clap::Args)]
struct ReleasesArgs {
    #[command(flatten)]
    list: ListArgs,

    #[command(flatten)]
    selector: SelectorArgs,

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

/// A release of one of several clusters.
#[derive(Serialize)]
struct Placed {
    /// The context.
    cluster: String,
    #[serde(flatten)]
    row: releases::Row,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.what {
        What::Allowances(args) => connect::run(list_allowances(args)),
        What::Policies(args) => connect::run(list_policies(args)),
        What::Releases(args) if !args.contexts.is_empty() => connect::run(list_everywhere(args)),
        What::Releases(args) => connect::run(list_releases(args)),
    }
}

/// Prints the allowances; with `--watch` also each that comes, changes or goes.
async fn list_allowances(args: AllowancesArgs) -> anyhow::Result<Outcome> {
    let AllowancesArgs { list, selector, watch, namespaces, cluster } = args;
    let connection = cluster.connect().await?;
    let namespace = namespaces.chosen(&connection);
    let (namespace, labels) = (namespace.as_deref(), selector.labels.as_deref());
    standing::say(&connection, namespace).await;
    let rows = allowances::read(&connection, namespace, labels, Timestamp::now()).await?;
    if !watch.watch {
        return print(&list, &rows, namespace);
    }
    let mut follow = Follow::begin(list, &rows, namespace)?;
    let (resource, doing) = (defined(), "watch the allowances");
    follow::changes(&connection, (&resource, namespace, labels), doing, async |change| {
        let (object, is_gone) = match change {
            Change::There(object) => (object, false),
            Change::Gone(object) => (object, true),
        };
        // One that is not in the form of its definition costs itself alone.
        let Ok(allowance) = serde_json::from_value(object) else { return Ok(true) };
        let mut row = allowances::Row::of(allowance, Timestamp::now());
        if is_gone {
            row.state = allowances::State::Deleted;
        }
        follow.print(&row)
    })
    .await?;
    Ok(Outcome::Clean)
}

/// Prints the policies; with `--watch` also each that comes, changes or goes.
async fn list_policies(args: PoliciesArgs) -> anyhow::Result<Outcome> {
    let PoliciesArgs { list, selector, watch, cluster } = args;
    let connection = cluster.connect().await?;
    let labels = selector.labels.as_deref();
    standing::say(&connection, None).await;
    let rows = policies::read(&connection, labels).await?;
    if !watch.watch {
        return print(&list, &rows, None);
    }
    let mut follow = Follow::begin(list, &rows, None)?;
    let (resource, doing) = (policy_statuses::resource(), "watch the policies");
    follow::changes(&connection, (&resource, None, labels), doing, async |change| {
        follow.print(&match change {
            Change::There(policy) => policies::Row::of(&policy),
            Change::Gone(policy) => policies::Row::deleted(&policy),
        })
    })
    .await?;
    Ok(Outcome::Clean)
}

/// Prints the releases; with `--watch` also each whose status comes, changes or goes.
async fn list_releases(args: ReleasesArgs) -> anyhow::Result<Outcome> {
    let ReleasesArgs { list, selector, watch, state, namespaces, records, cluster, contexts: _ } = args;
    let connection = cluster.connect().await?;
    let namespace = namespaces.chosen(&connection);
    let (namespace, labels) = (namespace.as_deref(), selector.labels.as_deref());
    standing::say(&connection, namespace).await;
    let reader = Reader::new(connection, records.record_driver, &Labels::new()).await?;
    let Listing { mut rows, notes } = releases::read(&reader, namespace, labels).await?;
    notes.iter().for_each(|note| warn(note));
    rows.retain(|row| is_wanted(row, &state));
    if !watch.watch {
        return print(&list, &rows, namespace);
    }
    let mut selected = match labels {
        Some(labels) => reader.labelled(namespace, labels).await?,
        None => Default::default(),
    };
    let mut follow = Follow::begin(list, &rows, namespace)?;
    let (resource, doing) = (guarded::resource(), "watch the GuardedReleases");
    follow::changes(&reader.connection, (&resource, namespace, None), doing, async |change| {
        let (object, is_gone) = match change {
            Change::There(object) => (object, false),
            Change::Gone(object) => (object, true),
        };
        let Some(guarded) = guarded::typed(object) else { return Ok(true) };
        let Some(release) = guarded.release() else { return Ok(true) };
        if let Some(labels) = labels
            && !selected.contains(&release)
        {
            // Records bear the labels, and one may have come.
            selected = reader.labelled(namespace, labels).await?;
            if !selected.contains(&release) {
                return Ok(true);
            }
        }
        let row = match is_gone {
            true => releases::Row::unguarded(release, "its GuardedRelease was deleted".to_owned()),
            false => {
                // The Lease of a minute ago says nothing of now.
                let pulses = Pulses::new(reader.connection.client.clone());
                releases::Row::current(&pulses, release, *guarded).await
            }
        };
        if is_wanted(&row, &state) { follow.print(&row) } else { Ok(true) }
    })
    .await?;
    Ok(Outcome::Clean)
}

/// Prints the releases of several clusters. One that fails does not affect the others.
async fn list_everywhere(args: ReleasesArgs) -> anyhow::Result<Outcome> {
    if args.watch.watch {
        bail!("--watch follows one cluster: name it with --context");
    }
    let ask = async |name: &str, access: Access| {
        let connection = connection::connect_by(&access).await?;
        let namespace = args.namespaces.chosen(&connection);
        standing::say_of(name, &connection, namespace.as_deref()).await;
        let reader = Reader::new(connection, args.records.record_driver, &Labels::new()).await?;
        let labels = args.selector.labels.as_deref();
        let Listing { mut rows, notes } = releases::read(&reader, namespace.as_deref(), labels).await?;
        notes.iter().for_each(|note| warn(&format!("{name}: {note}")));
        rows.retain(|row| is_wanted(row, &args.state));
        Ok(rows)
    };
    let answers = contexts::each(args.contexts.clusters(&args.cluster), contexts::PATIENCE, ask).await;
    let incomplete = answers.incomplete();
    let of_cluster = |(cluster, rows): (String, Vec<releases::Row>)| {
        rows.into_iter().map(move |row| Placed { cluster: cluster.clone(), row })
    };
    let rows: Vec<_> = answers.found.into_iter().flat_map(of_cluster).collect();
    let outcome = print(&args.list, &rows, args.namespaces.named())?;
    incomplete.map_or(Ok(outcome), Err)
}

/// Prints the rows of one namespace, or of all.
fn print<T: Listed>(list: &ListArgs, rows: &[T], namespace: Option<&str>) -> anyhow::Result<Outcome> {
    list::print(list, rows, namespace.is_none(), &nothing(T::PLURAL, namespace))
}

/// Whether a row is in one of the states that are asked for.
fn is_wanted(row: &releases::Row, states: &[State]) -> bool {
    states.is_empty() || states.iter().any(|state| state.is_of(row))
}

impl Listed for releases::Row {
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

    fn columns() -> Vec<&'static str> {
        vec![
            "namespace",
            "name",
            "guarded",
            "ready",
            "reason",
            "revision",
            "drifted",
            "declared",
            "edits",
            "drift",
            "oldestDrift",
            "staleSince",
            "message",
        ]
    }
}

impl Listed for Placed {
    const PLURAL: &'static str = releases::Row::PLURAL;
    const RESOURCE: &'static str = releases::Row::RESOURCE;

    fn name(&self) -> &str {
        self.row.name()
    }

    fn namespace(&self) -> &str {
        self.row.namespace()
    }

    fn head(all: bool, wide: bool) -> Vec<&'static str> {
        ["CLUSTER"].into_iter().chain(releases::Row::head(all, wide)).collect()
    }

    fn cells(&self, all: bool, wide: bool) -> Vec<(String, Style)> {
        [(self.cluster.clone(), PLAIN)].into_iter().chain(self.row.cells(all, wide)).collect()
    }

    fn columns() -> Vec<&'static str> {
        ["cluster"].into_iter().chain(releases::Row::columns()).collect()
    }
}

impl Listed for allowances::Row {
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
            allowances::State::Open => ("Open", GOOD),
            allowances::State::Ended => ("Ended", PLAIN),
            allowances::State::Invalid => ("Invalid", BAD),
            allowances::State::Deleted => ("Deleted", PLAIN),
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

    fn columns() -> Vec<&'static str> {
        vec![
            "namespace",
            "name",
            "object.kind",
            "object.name",
            "paths",
            "until",
            "state",
            "by",
            "reason",
            "flaws",
        ]
    }
}

impl Listed for policies::Row {
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

    fn columns() -> Vec<&'static str> {
        vec!["name", "priority", "edits", "drift", "accepted", "reason", "releases", "namespaces", "message"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use kubemoor_declare::model::ReleaseId;
    use kubemoor_policy::guarded::GuardedReleaseStatus;
    use kubemoor_verdict::health::reported::{Pulse, ReportedHealth};

    #[test]
    fn unguarded_releases_are_listed_beside_guarded_releases() {
        let id = |name: &str| ReleaseId { namespace: "shop".into(), name: name.into() };
        let rows = [
            releases::Row::guarded(
                id("new"),
                ReportedHealth::of(GuardedReleaseStatus::default(), &Pulse::Unknown, Timestamp::UNIX_EPOCH),
            ),
            releases::Row::unguarded(id("old"), "it is uninstalled; its history was kept".to_owned()),
        ];
        let lines = rows.each_ref().map(|row| {
            let cells: Vec<_> = row.cells(true, true).into_iter().map(|(text, _)| text).collect();
            assert_eq!(cells.len(), releases::Row::head(true, true).len());
            cells.join(" ")
        });
        assert!(lines[0].contains("Unknown") && lines[0].contains("not looked at it yet"), "{lines:?}");
        assert!(lines[1].contains("NotGuarded") && lines[1].ends_with("its history was kept"), "{lines:?}");
        let states = |text: &str| rows.each_ref().map(|row| parse_state(text).unwrap().is_of(row));
        assert_eq!(states("unknown"), [true, false]);
        assert_eq!(states("not-guarded"), [false, true]);
        assert_eq!(states("drifted"), [false, false]);
    }

    #[test]
    fn accepted_condition_counts_only_for_the_observed_generation() {
        let policy = |judged: i64, status: &str| {
            policies::Row::of(&json!({
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
        let gone = policies::Row::deleted(&json!({"metadata": {"name": "production"}}));
        assert_eq!((gone.accepted.as_str(), gone.reason.as_str()), ("False", "Deleted"));
        let wide: Vec<_> = accepted.cells(true, true).into_iter().map(|(text, _)| text).collect();
        assert_eq!(wide, ["production", "10", "Deny", "-", "True", "Flawed", "shop-*", "*", "no"]);
        assert_eq!(policies::Row::head(true, true).len(), wide.len());
    }
}
