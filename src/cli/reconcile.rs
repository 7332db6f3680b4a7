//! `kubemoor reconcile`, `suspend` and `resume`: a user's requests about repairs. Request and answer go through the
//! GuardedRelease, so that the API server authorizes the user and records their name. Nothing is repaired here.

use std::time::Duration;

use anyhow::bail;
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::connect::{
    self, ClusterArgs, LabelArgs, NamespacesArgs, PlaceArgs, RecordArgs, describe_release, end_after, failed,
    parse_release,
};
use super::list::{Items, nothing};
use super::output::{self, OutputArgs};
use super::{CommandOutcome, completions, diff, warn};
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::guarded::{self, UserSetting};
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::guard::{self, GivenOrder, LOOK, OrderOutcome};
use kubemoor_inspect::reading::LeaseCache;
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::guarded::Suspension;
use kubemoor_policy::resource::MAX_REASON;

const AT_ONCE: usize = 8;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The release
    #[arg(
        value_name = "RELEASE",
        value_parser = parse_release,
        add = ArgValueCandidates::new(completions::releases),
        required_unless_present_any = ["all", "all_namespaces"],
        conflicts_with_all = ["all", "all_namespaces"]
    )]
    release: Option<String>,

    /// All guarded releases of the namespace
    #[arg(long)]
    all: bool,

    /// Print the changes that a repair would make now, without a repair; exit 1 if there are any
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,

    /// Wait until nothing drifts; exit 1 if something still does
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

/// The guard's answer for one release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReconcileAnswer {
    #[serde(flatten)]
    release: ReleaseId,
    action: &'static str,
    #[serde(flatten)]
    answered: OrderOutcome,
    /// The state of the release; only with --wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<SettledState>,
}

/// The state of a release.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SettledState {
    ready: bool,
    reason: String,
    message: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let (form, single) = (args.output.output.clone(), args.release.is_some());
    if args.dry_run {
        return connect::run(preview(args));
    }
    let (answers, errors, namespace) = connect::run(reconcile(args))?;
    for error in &errors {
        warn(error);
    }
    let text: Vec<_> = answers.iter().map(ReconcileAnswer::text).collect();
    let outcome = match answers.as_slice() {
        [answer] if single => output::print_text(&form, answer, &text.join("\n"))?,
        answers => output::print_text(&form, &Items::new(answers), &text.join("\n"))?,
    };
    if answers.is_empty() && errors.is_empty() {
        warn(&nothing("guarded releases", namespace.as_deref()));
    }
    match errors.len() {
        0 if answers.iter().any(ReconcileAnswer::is_open) => Ok(CommandOutcome::Found),
        0 => Ok(outcome),
        count => bail!("{count} of {} orders failed, see above", count + answers.len()),
    }
}

async fn preview(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { release, namespaces, cluster_labels, records, cluster, output, .. } = args;
    let labels = cluster_labels.labels()?;
    let (namespaces, release, labels) = (&namespaces, release.as_deref(), &labels);
    let scope = diff::ComparisonScope { namespaces, release, selector: None, records, labels, settle: false };
    diff::preview(scope, &cluster, &output.output).await
}

/// The guard's answers, the errors of requests that failed, and the selected namespace (`None` for all).
async fn reconcile(args: Args) -> anyhow::Result<(Vec<ReconcileAnswer>, Vec<String>, Option<String>)> {
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

/// Requests a repair and waits for the guard's answer; with `wait` also until the release is in sync or that time is
/// over.
async fn order(
    connection: &ClusterConnection,
    release: ReleaseId,
    wait: Option<Instant>,
) -> anyhow::Result<ReconcileAnswer> {
    let pulses = LeaseCache::new(connection.client.clone());
    let GivenOrder { answered, warnings } = guard::reconcile(connection, &pulses, &release).await?;
    warnings.iter().for_each(|warning| warn(warning));
    let state = match wait.filter(|_| !answered.is_refused()) {
        Some(until) => Some(wait_for_ready_status(connection, &pulses, &release, until).await),
        None => None,
    };
    Ok(ReconcileAnswer { release, action: "Reconcile", answered, state })
}

/// Polls until the release is in sync or the time is over, and returns its state.
async fn wait_for_ready_status(
    connection: &ClusterConnection,
    pulses: &LeaseCache,
    release: &ReleaseId,
    until: Instant,
) -> SettledState {
    loop {
        let state = match guarded::get(&connection.client, release).await {
            Ok(guarded) => {
                let told = pulses.reported(guarded.and_then(|it| it.status).unwrap_or_default()).await;
                let reason = told.reason.unwrap_or_else(|| told.ready.clone());
                SettledState { ready: told.ready == "True", reason, message: told.message }
            }
            Err(error) => {
                let message = format!("its status cannot be read: {error}");
                SettledState { ready: false, reason: "Unknown".to_owned(), message }
            }
        };
        if state.ready || Instant::now() >= until {
            return state;
        }
        sleep(LOOK).await;
    }
}

impl ReconcileAnswer {
    fn is_open(&self) -> bool {
        self.answered.is_refused() || self.state.as_ref().is_some_and(|state| !state.ready)
    }

    fn text(&self) -> String {
        let name = describe_release(&self.release);
        if let Some(SettledState { ready, reason, message }) = &self.state {
            return match ready {
                true => format!("release {name} is in sync: {message}"),
                false => format!("release {name} is not in sync yet ({reason}): {message}"),
            };
        }
        self.answered.text(&self.release)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct SuspendArgs {
    /// How long repairs are paused [default: until `kubemoor resume`]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// The reason
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,

    #[command(flatten)]
    release: ReleaseArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReleaseArgs {
    /// The release
    #[arg(value_name = "RELEASE", value_parser = parse_release, add = ArgValueCandidates::new(completions::releases))]
    release: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

/// The release that was suspended or resumed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SuspensionAnswer {
    #[serde(flatten)]
    release: ReleaseId,
    action: SuspensionAction,
    /// When a suspension ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Why it was suspended.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
enum SuspensionAction {
    Suspend,
    Resume,
}

pub(super) fn suspend(args: SuspendArgs) -> anyhow::Result<CommandOutcome> {
    let SuspendArgs { release, duration, reason } = args;
    let end = |duration: Duration| end_after(Timestamp::now(), duration);
    let suspension = Suspension { until: duration.map(end).transpose()?, reason: reason.unwrap_or_default() };
    set_suspension(release, Some(suspension))
}

pub(super) fn resume(args: ReleaseArgs) -> anyhow::Result<CommandOutcome> {
    set_suspension(args, None)
}

fn set_suspension(args: ReleaseArgs, suspension: Option<Suspension>) -> anyhow::Result<CommandOutcome> {
    let ReleaseArgs { release, output, place } = args;
    let (action, doing, setting) = match suspension.clone() {
        Some(suspension) => {
            (SuspensionAction::Suspend, "suspend the release", UserSetting::Suspend(suspension))
        }
        None => (SuspensionAction::Resume, "resume the release", UserSetting::Resume),
    };
    let Suspension { until, reason } = suspension.unwrap_or_default();
    let (answer, warnings) = connect::run(async move {
        let (connection, namespace) = place.connect().await?;
        let release = ReleaseId { namespace: namespace.into(), name: release.into() };
        let warnings = guard::set(&connection, &release, &setting, doing).await?;
        anyhow::Ok((SuspensionAnswer { release, action, until, reason }, warnings))
    })?;
    warnings.iter().for_each(|warning| super::warn(warning));
    let name = describe_release(&answer.release);
    let text = match action {
        SuspensionAction::Suspend => {
            let end = until.map(|until| format!(" until {until}")).unwrap_or_default();
            format!("release {name} is suspended{end}: nothing is repaired; edits are judged as before")
        }
        SuspensionAction::Resume => format!("release {name} is resumed"),
    };
    output::print_text(&output.output, &answer, &text)
}

/// Checks that a reason is not longer than the CRD allows.
fn parse_reason(text: &str) -> Result<String, String> {
    match text.chars().count() <= MAX_REASON {
        true => Ok(text.to_owned()),
        false => Err(format!("the reason is longer than {MAX_REASON} characters")),
    }
}
