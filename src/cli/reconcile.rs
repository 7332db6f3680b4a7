//! `kubemoor reconcile`: orders repairs now, and prints their results.
//!
//! Entry point: [`run`]. Invariant: order and answer go through the GuardedRelease, so that the API server
//! authorizes the user and records their name. Nothing is repaired here, and a dry run orders nothing.

use std::time::Duration;

use anyhow::bail;
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::candidates;
use super::connect::{self, ClusterArgs, NamespacesArgs, RecordArgs, failed, parse_release, spoken};
use super::labels::LabelArgs;
use super::list::{Items, nothing};
use super::output::{self, OutputArgs};
use super::{Outcome, diff, warn};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::guarded;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::orders::{self, Answered, Given, LOOK};
use kubemoor_inspect::pulses::Pulses;
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::guarded::{OrderAnswer, OrderResult};

/// Orders that are given at once.
const AT_ONCE: usize = 8;

/// The flags of `kubemoor reconcile`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The release
    #[arg(
        value_name = "RELEASE",
        value_parser = parse_release,
        add = ArgValueCandidates::new(candidates::releases),
        required_unless_present_any = ["all", "all_namespaces"],
        conflicts_with_all = ["all", "all_namespaces"]
    )]
    release: Option<String>,

    /// All guarded releases of the namespace
    #[arg(long)]
    all: bool,

    /// Print the changes that a repair would make now, and order no repair; exit 1 if there are any
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,

    /// Wait until nothing drifts any more; exit 1 if something still does
    #[arg(long)]
    wait: bool,

    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    timeout: Duration,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What came of the order for one release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    #[serde(flatten)]
    release: ReleaseId,
    said: &'static str,
    #[serde(flatten)]
    answered: Answered,
    /// How the release stands, where that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
}

/// How a release stands.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct State {
    ready: bool,
    reason: String,
    message: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let (form, single) = (args.output.output.clone(), args.release.is_some());
    if args.dry_run {
        let Args { release, namespaces, cluster_labels, records, cluster, .. } = args;
        return diff::preview(release, (records, cluster_labels), namespaces, cluster, &form);
    }
    let (answers, errors, namespace) = connect::run(reconcile(args))?;
    for error in &errors {
        warn(error);
    }
    let text: Vec<_> = answers.iter().map(Answer::text).collect();
    let outcome = match answers.as_slice() {
        [answer] if single => output::say(&form, answer, &text.join("\n"))?,
        answers => output::say(&form, &Items::of(answers), &text.join("\n"))?,
    };
    if answers.is_empty() && errors.is_empty() {
        warn(&nothing("guarded releases", namespace.as_deref()));
    }
    match errors.len() {
        0 if answers.iter().any(Answer::is_open) => Ok(Outcome::Found),
        0 => Ok(outcome),
        count => bail!("{count} of {} orders could not be given, see above", count + answers.len()),
    }
}

/// The result of each order, the orders that failed with their errors, and the one namespace.
async fn reconcile(args: Args) -> anyhow::Result<(Vec<Answer>, Vec<String>, Option<String>)> {
    let Args { release, wait, timeout, namespaces, cluster, .. } = args;
    let connection = cluster.connect().await?;
    let namespace = namespaces.chosen(&connection);
    let wait = wait.then(|| Instant::now() + timeout);
    if let (Some(name), Some(namespace)) = (release, &namespace) {
        let release = ReleaseId { namespace: namespace.clone().into(), name: name.into() };
        let answer = order(&connection, release, wait).await?;
        return Ok((vec![answer], Vec::new(), Some(namespace.clone())));
    }
    let listed = guarded::list(&connection.client, namespace.as_deref()).await;
    let listed = listed.map_err(|error| failed(&connection, "list the GuardedReleases", error))?;
    let mut releases: Vec<_> = listed.unwrap_or_default().iter().filter_map(|it| it.release()).collect();
    releases.sort();
    let orders = releases.into_iter().map(|release| order(&connection, release, wait));
    let results: Vec<_> = futures::stream::iter(orders).buffered(AT_ONCE).collect().await;
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(answer) => answers.push(answer),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    Ok((answers, errors, namespace))
}

/// Orders a repair, and waits for the guard's answer; until `wait` also for the release to be in sync.
async fn order(connection: &Connection, release: ReleaseId, wait: Option<Instant>) -> anyhow::Result<Answer> {
    let pulses = Pulses::new(connection.client.clone());
    let Given { answered, warnings } = orders::reconcile(connection, &pulses, &release).await?;
    warnings.iter().for_each(|warning| warn(warning));
    let goes_on = match &answered {
        Answered::Given(OrderAnswer { result, .. }) => *result != OrderResult::Refused,
        Answered::Stale { .. } => false,
        Answered::Outstanding { .. } => true,
    };
    let state = match wait.filter(|_| goes_on) {
        Some(until) => Some(settled(connection, &pulses, &release, until).await),
        None => None,
    };
    Ok(Answer { release, said: "Reconcile", answered, state })
}

/// The state of the release once it is in sync, or when the time is over.
async fn settled(connection: &Connection, pulses: &Pulses, release: &ReleaseId, until: Instant) -> State {
    loop {
        let state = match guarded::get(&connection.client, release).await {
            Ok(guarded) => {
                let told = pulses.told(guarded.and_then(|it| it.status).unwrap_or_default()).await;
                let reason = told.reason.unwrap_or_else(|| told.ready.clone());
                State { ready: told.ready == "True", reason, message: told.message }
            }
            Err(error) => {
                let message = format!("its status cannot be read: {error}");
                State { ready: false, reason: "Unknown".to_owned(), message }
            }
        };
        if state.ready || Instant::now() >= until {
            return state;
        }
        sleep(LOOK).await;
    }
}

impl Answer {
    /// Whether something stays to be done.
    fn is_open(&self) -> bool {
        let refused = matches!(
            &self.answered,
            Answered::Given(OrderAnswer { result: OrderResult::Refused, .. }) | Answered::Stale { .. }
        );
        refused || self.state.as_ref().is_some_and(|state| !state.ready)
    }

    fn text(&self) -> String {
        let name = spoken(&self.release);
        if let Some(State { ready, reason, message }) = &self.state {
            return match ready {
                true => format!("release {name} is in sync: {message}"),
                false => format!("release {name} is not in sync yet ({reason}): {message}"),
            };
        }
        self.answered.text(&self.release)
    }
}
