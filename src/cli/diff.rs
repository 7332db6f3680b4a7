//! `kubemoor diff`: compares live objects with their releases.
//!
//! Entry point: [`run`]. Invariant: the comparison is the guard's own. Nothing is written, except the dry
//! runs of `--settle`. The exit code is 1 when drift was found. A doubt is only reported; with `--strict` it
//! counts as drift.

mod placed;
mod preview;
mod show;
mod unified;

use std::io::IsTerminal;

use anyhow::{Context, bail};
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;

pub(super) use self::preview::Preview;
use self::preview::Previews;
use super::candidates;
use super::connect::{self, ClusterArgs, NamespacesArgs, RecordArgs, parse_release};
use super::contexts::ContextsArgs;
use super::labels::LabelArgs;
use super::list::{Items, SelectorArgs, nothing};
use super::output::{self, Form};
use super::{Outcome, standing, warn};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::comparison::object::State;
use kubemoor_inspect::comparison::{self, ObjectReport, ReleaseReport};
use kubemoor_inspect::reading::Reader;

/// Releases that are compared at once.
const RELEASES_AT_ONCE: usize = 4;

/// The flags of `kubemoor diff`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The release [default: all of the namespace, or of the cluster with -A]
    #[arg(value_name = "RELEASE", value_parser = parse_release, add = ArgValueCandidates::new(candidates::releases), conflicts_with_all = ["all_namespaces", "labels"])]
    release: Option<String>,

    /// Also exit with 1 if something stays in doubt
    #[arg(long)]
    strict: bool,

    /// Resolve doubts by dry runs; needs the right to patch
    #[arg(long)]
    settle: bool,

    #[command(flatten)]
    selector: SelectorArgs,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    /// How the comparison is printed
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: Form<People>,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    contexts: ContextsArgs,
}

/// How a comparison is printed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum People {
    /// For people
    Table,
    /// As a unified diff from the live objects to the declared ones
    Unified,
}

/// All releases that were compared.
#[derive(Debug)]
struct Report {
    releases: Vec<ReleaseReport>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.contexts.is_empty() {
        return connect::run(placed::run(args));
    }
    let (form, strict) = (args.output.clone(), args.strict);
    let report = connect::run(compare_one(args))?;
    match form {
        Form::People(People::Table) => output::write(show::text(&report).as_str())?,
        Form::People(People::Unified) => output::write(unified::text(&report).as_str())?,
        Form::Data(data) => data.print(&Items::of(&report.releases))?,
    };
    let failures: Vec<_> = report.failures().collect();
    for sentence in &failures {
        warn(sentence);
    }
    if report.has_drift() || (strict && report.has_doubt()) {
        return Ok(Outcome::Found);
    }
    match failures.len() {
        0 => Ok(Outcome::Clean),
        count => bail!("the comparison is incomplete: {count} of its parts failed, see above"),
    }
}

/// Prints what repairs would change now.
pub(super) fn preview(
    release: Option<String>,
    (records, cluster_labels): (RecordArgs, LabelArgs),
    namespaces: NamespacesArgs,
    cluster: ClusterArgs,
    form: &Form<output::People>,
) -> anyhow::Result<Outcome> {
    let (output, selector) = (Form::People(People::Table), SelectorArgs { labels: None });
    let (strict, settle) = (false, false);
    let contexts = ContextsArgs::default();
    let args = Args {
        release,
        strict,
        settle,
        selector,
        cluster_labels,
        output,
        namespaces,
        records,
        cluster,
        contexts,
    };
    let report = connect::run(compare_one(args))?;
    let failures: Vec<_> = report.failures().collect();
    for sentence in &failures {
        warn(sentence);
    }
    let previews = Previews::of(report);
    output::print(form, &Items::of(&previews.0), || previews.text())?;
    match failures.len() {
        0 if previews.has_changes() => Ok(Outcome::Found),
        0 => Ok(Outcome::Clean),
        count => bail!("the comparison is incomplete: {count} of its parts failed, see above"),
    }
}

async fn compare_one(args: Args) -> anyhow::Result<Report> {
    let connection = args.cluster.connect().await?;
    standing::say(&connection, args.namespaces.chosen(&connection).as_deref()).await;
    compare(args, connection).await
}

async fn compare(args: Args, connection: Connection) -> anyhow::Result<Report> {
    let Args {
        release,
        strict: _,
        settle,
        selector,
        cluster_labels,
        output: _,
        namespaces,
        records,
        cluster: _,
        contexts: _,
    } = args;
    let labels = cluster_labels.labels()?;
    let namespace = namespaces.chosen(&connection);
    let reader = Reader::new(connection, records.record_driver, &labels).await?;
    let now = Timestamp::now();
    if let Some(name) = release {
        let namespace = namespace.context("a release is named by its namespace: leave -A out")?;
        let release = reader.release(&ReleaseId { namespace: namespace.into(), name: name.into() }).await?;
        let bar = progress(release.objects.len(), "objects");
        let report = comparison::compare(&reader, &release, settle, now, &|| bar.inc(1)).await;
        bar.finish_and_clear();
        return Ok(Report { releases: vec![report] });
    }
    let mut listed = reader.list(namespace.as_deref()).await?;
    if let Some(labels) = &selector.labels {
        let labelled = reader.labelled(namespace.as_deref(), labels).await?;
        listed.retain(|release| labelled.contains(release));
    }
    if listed.is_empty() {
        warn(&nothing("releases", namespace.as_deref()));
    }
    let bar = progress(listed.len(), "releases");
    let (reader, shown) = (&reader, &bar);
    let mut releases: Vec<ReleaseReport> = futures::stream::iter(listed)
        .map(|id| async move {
            let report = match reader.release(&id).await {
                Ok(release) => comparison::compare(reader, &release, settle, now, &|| ()).await,
                Err(error) => ReleaseReport::unread(id, error.to_string()),
            };
            shown.inc(1);
            report
        })
        .buffer_unordered(RELEASES_AT_ONCE)
        .collect()
        .await;
    bar.finish_and_clear();
    releases.sort_by(|left, right| left.release.cmp(&right.release));
    Ok(Report { releases })
}

impl Report {
    /// Whether anything has drifted.
    fn has_drift(&self) -> bool {
        self.releases.iter().any(|release| release.drifted > 0)
    }

    /// Whether drift is in doubt for any object.
    fn has_doubt(&self) -> bool {
        self.releases.iter().any(|release| release.counts.in_doubt > 0)
    }

    /// A sentence for each release and each object that could not be read, and
    /// each doubt that was to be settled and could not be.
    fn failures(&self) -> impl Iterator<Item = String> {
        self.releases.iter().flat_map(|release| {
            let sentence = |object: &ObjectReport| {
                let reason = object.reason.as_deref()?;
                let what = match object.state {
                    State::Unread => "read",
                    State::Drifted | State::InDoubt => "settle the doubt about",
                    _ => return None,
                };
                Some(format!("cannot {what} {}: {reason}", object.object))
            };
            let objects: Vec<_> = release.objects.iter().filter_map(sentence).collect();
            release.error.clone().into_iter().chain(objects)
        })
    }
}

/// A progress bar on standard error that counts `what`; hidden for fewer than two items and where standard
/// error is not a terminal.
fn progress(length: usize, what: &str) -> ProgressBar {
    if length < 2 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(length).unwrap_or(u64::MAX));
    // The template is fixed, and a bad one would only cost its looks.
    if let Ok(style) = ProgressStyle::with_template(&format!("{{pos}}/{{len}} {what} {{wide_bar}} {{eta}}")) {
        bar.set_style(style);
    }
    bar
}
