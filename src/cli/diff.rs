//! `kubemoor diff`: compares live objects with their releases as the guard does. Also `kubemoor reconcile --dry-run`,
//! which shows what repairs would change.
//!
//! Nothing is written; `--settle` sends dry runs. The exit code is 1 if drift was found. Fields of which only a dry run
//! can tell whether they drifted are "in doubt": they are reported, and count as drift with `--strict`.

use std::io::IsTerminal;

use anstyle::Style;
use anyhow::{Context, bail};
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use json_patch::Patch;
use serde::Serialize;

use super::connect::{
    self, CLUSTER_PATIENCE, ClusterArgs, ContextsArgs, LabelArgs, NamespacesArgs, RecordArgs,
    describe_release, parse_release, query_clusters,
};
use super::list::{InCluster, Items, SelectorArgs, nothing};
use super::output::{
    self, BAD, GOOD, HEAD, NOTE, OutputFormat, PLAIN, StyledText, Table, TableOnly, counted,
};
use super::{CommandOutcome, completions, warn};
use kubemoor_cluster::client::connection::{self, ClusterAccess, ClusterConnection};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_inspect::comparison::{self, FieldDiff, ObjectDiff, ObjectDiffState, ReleaseDiff};
use kubemoor_inspect::reading::ClusterReader;
use kubemoor_policy::resolver::Labels;
use kubemoor_verdict::health::{HealthReason, ReleaseHealth, ReportedHealth};
use kubemoor_verdict::shown::Difference;

const RELEASES_AT_ONCE: usize = 4;

/// The reasons for which the guard holds back all repairs of a release; its message says why and for how long.
const HOLDING: [HealthReason; 4] =
    [HealthReason::Unconfirmed, HealthReason::Contested, HealthReason::Braked, HealthReason::Suspended];

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The release [default: all of the namespace, or of the cluster with -A]
    #[arg(value_name = "RELEASE", value_parser = parse_release, add = ArgValueCandidates::new(completions::releases), conflicts_with_all = ["all_namespaces", "labels"])]
    release: Option<String>,

    /// Also exit with 1 if something stays in doubt
    #[arg(long)]
    strict: bool,

    /// Resolve doubts with dry runs; needs permission to patch
    #[arg(long)]
    settle: bool,

    #[command(flatten)]
    selector: SelectorArgs,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    output: OutputFormat<DiffFormat>,

    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    contexts: ContextsArgs,
}

/// The output formats of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DiffFormat {
    /// For people
    Table,
    /// As a unified diff from the live objects to the declared ones
    Unified,
}

/// The changes that repairs of one release would make.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preview {
    #[serde(flatten)]
    release: ReleaseId,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    changes: Vec<RepairPreview>,
    /// Why the guard may not make some of the changes, as the guard reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
    /// Sources that could not be read and might allow some of the differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread_sources: Vec<String>,
}

/// The repair of one object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RepairPreview {
    #[serde(flatten)]
    object: ObjectId,
    action: RepairAction,
    /// The changes; omitted for Secrets, because they would show its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Patch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
enum RepairAction {
    /// Fields would be restored.
    Restore,
    /// The object would be re-created.
    Recreate,
    /// Helm's field manager would own the fields again.
    ReturnFields,
    /// Nothing, until it is known whether the object drifted.
    Nothing,
}

/// Which releases of a cluster are compared, and how.
pub(super) struct ComparisonScope<'a> {
    pub(super) namespaces: &'a NamespacesArgs,
    pub(super) release: Option<&'a str>,
    pub(super) selector: Option<&'a str>,
    pub(super) records: RecordArgs,
    pub(super) labels: &'a Labels,
    pub(super) settle: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    connect::run(compare_clusters(args))
}

async fn compare_clusters(args: Args) -> anyhow::Result<CommandOutcome> {
    let labels = args.cluster_labels.clone().labels()?;
    let scope = ComparisonScope {
        namespaces: &args.namespaces,
        release: args.release.as_deref(),
        selector: args.selector.labels.as_deref(),
        records: args.records,
        labels: &labels,
        settle: args.settle,
    };
    let (reports, incomplete) = match args.contexts.is_empty() {
        true => (vec![(String::new(), scope.compare(args.cluster.connect().await?, None).await?)], None),
        false => {
            let ask = async |name: &str, access: ClusterAccess| {
                scope.compare(connection::connect_by(&access).await?, Some(name)).await
            };
            query_clusters(args.contexts.clusters(&args.cluster), CLUSTER_PATIENCE, ask).await
        }
    };
    print(&args, &reports)?;
    let mut failures = 0;
    for (cluster, releases) in &reports {
        let about = if cluster.is_empty() { String::new() } else { format!("{cluster}: ") };
        failures += warn_of_failures(releases, &about);
    }
    let all = || reports.iter().flat_map(|(_, releases)| releases);
    let has_drift = all().any(|release| release.drifted > 0);
    let has_doubt = args.strict && all().any(|release| release.counts.in_doubt > 0);
    match incomplete {
        _ if has_drift || has_doubt => Ok(CommandOutcome::Found),
        Some(incomplete) => Err(incomplete),
        None => complete(failures),
    }
}

pub(super) async fn preview(
    scope: ComparisonScope<'_>,
    cluster: &ClusterArgs,
    format: &OutputFormat<TableOnly>,
) -> anyhow::Result<CommandOutcome> {
    let releases = scope.compare(cluster.connect().await?, None).await?;
    let failures = warn_of_failures(&releases, "");
    let previews: Vec<_> = releases.into_iter().map(Preview::new).collect();
    output::print(format, &Items::new(&previews), || preview_text(&previews))?;
    let mut changes = previews.iter().flat_map(|release| &release.changes);
    let has_changes = changes.any(|change| change.action != RepairAction::Nothing);
    if failures == 0 && has_changes { Ok(CommandOutcome::Found) } else { complete(failures) }
}

/// Fails if parts of a comparison failed.
fn complete(failures: usize) -> anyhow::Result<CommandOutcome> {
    match failures {
        0 => Ok(CommandOutcome::Clean),
        count => bail!("the comparison is incomplete: {count} of its parts failed, see above"),
    }
}

impl ComparisonScope<'_> {
    /// Compares the releases of a cluster. `cluster` is its name if there are several.
    async fn compare(
        &self,
        connection: ClusterConnection,
        cluster: Option<&str>,
    ) -> anyhow::Result<Vec<ReleaseDiff>> {
        let (connection, namespace) = self.namespaces.open(connection, cluster).await;
        let reader = &ClusterReader::new(connection, self.records.record_driver, self.labels).await?;
        let (now, settle) = (Timestamp::now(), self.settle);
        if let Some(name) = self.release {
            let namespace = namespace.context("a release needs its namespace: use -n instead of -A")?;
            let id = ReleaseId { namespace: namespace.into(), name: name.into() };
            let release = reader.release(&id).await?;
            let bar = progress(release.objects.len(), "objects");
            let report = comparison::compare(reader, &release, settle, now, &|| bar.inc(1)).await;
            bar.finish_and_clear();
            return Ok(vec![report]);
        }
        let mut listed = reader.list(namespace.as_deref()).await?;
        if let Some(labels) = self.selector {
            let labelled = reader.labelled(namespace.as_deref(), labels).await?;
            listed.retain(|release| labelled.contains(release));
        }
        if listed.is_empty() {
            warn(&nothing("releases", namespace.as_deref()));
        }
        let bar = &progress(listed.len(), "releases");
        let mut releases: Vec<ReleaseDiff> = futures::stream::iter(listed)
            .map(|id| async move {
                let report = match reader.release(&id).await {
                    Ok(release) => comparison::compare(reader, &release, settle, now, &|| ()).await,
                    Err(error) => ReleaseDiff::unread(id, error.to_string()),
                };
                bar.inc(1);
                report
            })
            .buffer_unordered(RELEASES_AT_ONCE)
            .collect()
            .await;
        bar.finish_and_clear();
        releases.sort_by(|left, right| left.release.cmp(&right.release));
        Ok(releases)
    }
}

/// Prints the comparisons, with the names of the clusters if there are several.
fn print(args: &Args, reports: &[(String, Vec<ReleaseDiff>)]) -> anyhow::Result<()> {
    match (&args.output, reports) {
        (OutputFormat::Data(data), [(_, releases)]) if args.contexts.is_empty() => {
            data.print(&Items::new(releases))?;
        }
        (OutputFormat::Data(data), reports) => {
            let releases = reports.iter().flat_map(|(cluster, releases)| {
                releases.iter().map(move |row| InCluster { cluster: cluster.clone(), row })
            });
            data.print(&Items::new(releases.collect::<Vec<_>>()))?;
        }
        (OutputFormat::People(format), reports) => {
            for (cluster, releases) in reports {
                let mut text = StyledText::default();
                if !cluster.is_empty() {
                    text.add(HEAD, &format!("# Cluster {cluster}")).line();
                }
                text.append(&match format {
                    DiffFormat::Table => table(releases),
                    DiffFormat::Unified => unified(releases),
                });
                output::write(text.as_str())?;
            }
        }
    }
    Ok(())
}

/// Warns about each release or object that could not be read, and each object whose doubt `--settle` could not resolve.
/// Returns the number of warnings.
fn warn_of_failures(releases: &[ReleaseDiff], about: &str) -> usize {
    let mut failures = 0;
    let mut note = |sentence: &str| {
        warn(&format!("{about}{sentence}"));
        failures += 1;
    };
    for release in releases {
        release.error.iter().for_each(|error| note(error));
        for object in &release.objects {
            let what = match object.state {
                ObjectDiffState::Unread => "read",
                ObjectDiffState::Drifted | ObjectDiffState::InDoubt => "complete the comparison of",
                _ => continue,
            };
            if let Some(reason) = &object.reason {
                note(&format!("cannot {what} {}: {reason}", object.object));
            }
        }
    }
    failures
}

fn preview_text(previews: &[Preview]) -> StyledText {
    let mut text = StyledText::default();
    for Preview { release, revision, changes, blocked, unread_sources } in previews {
        text.add(HEAD, &describe_release(release));
        let revision = revision.map(|revision| format!(" (revision {revision})")).unwrap_or_default();
        let none = if changes.is_empty() { ": nothing to repair" } else { "" };
        text.add(PLAIN, &format!("{revision}{none}")).line();
        for change in changes {
            change.add(&mut text);
        }
        if let Some(blocked) = blocked {
            text.add(NOTE, &format!("  {blocked}")).line();
        }
        for unread in unread_sources {
            text.add(NOTE, &format!("  Not considered: {unread}")).line();
        }
    }
    text
}

impl Preview {
    fn new(release: ReleaseDiff) -> Self {
        let holds = |told: &ReportedHealth| {
            told.is_stale() || told.reason.as_deref() == Some(HealthReason::Unconfirmed.as_str())
        };
        let blocked = release.guard.filter(holds).map(|told| told.message);
        let changes: Vec<_> = release.objects.into_iter().filter_map(RepairPreview::new).collect();
        let blocked = blocked.filter(|_| !changes.is_empty());
        Self {
            release: release.release,
            revision: release.revision,
            changes,
            blocked,
            unread_sources: release.unread_sources,
        }
    }
}

impl RepairPreview {
    /// Previews the repair of an object; `None` if there is nothing to do.
    fn new(report: ObjectDiff) -> Option<Self> {
        let ObjectDiff { object, state, reason, patch, .. } = report;
        let action = match state {
            ObjectDiffState::Drifted => RepairAction::Restore,
            ObjectDiffState::Missing => RepairAction::Recreate,
            ObjectDiffState::Ownership => RepairAction::ReturnFields,
            ObjectDiffState::InDoubt | ObjectDiffState::NotServed | ObjectDiffState::Unread => {
                RepairAction::Nothing
            }
            _ => return None,
        };
        let reason = match (action, state, &patch) {
            (RepairAction::Restore, _, None) => {
                Some("its values are secret, so the patch is not shown".to_owned())
            }
            (_, ObjectDiffState::InDoubt, _) => {
                Some("only a dry run can tell: `kubemoor diff --settle`".to_owned())
            }
            _ => reason,
        };
        Some(Self { object, action, patch, reason })
    }

    fn add(&self, text: &mut StyledText) {
        let Self { object, action, patch, reason } = self;
        let (style, what) = match action {
            RepairAction::Restore => (BAD, "would be restored"),
            RepairAction::Recreate => (BAD, "would be re-created"),
            RepairAction::ReturnFields => (BAD, "its fields would be returned to Helm"),
            RepairAction::Nothing => (NOTE, "would stay as it is"),
        };
        text.add(PLAIN, &format!("  {object}: ")).add(style, what);
        if let Some(reason) = reason {
            text.add(PLAIN, &format!(" ({reason})"));
        }
        text.line();
        for operation in patch.iter().flat_map(|patch| &patch.0) {
            // The operation was already serialized once, to check that it holds no secret.
            let line = serde_json::to_string(operation).unwrap_or_default();
            text.add(GOOD, &format!("    {line}")).line();
        }
    }
}

/// A progress bar on standard error that counts `what`; hidden for fewer than two items and without a terminal.
fn progress(length: usize, what: &str) -> ProgressBar {
    if length < 2 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(length).unwrap_or(u64::MAX));
    // The template is fixed; if it did not parse, the bar would have the default style.
    if let Ok(style) = ProgressStyle::with_template(&format!("{{pos}}/{{len}} {what} {{wide_bar}} {{eta}}")) {
        bar.set_style(style);
    }
    bar
}

/// The objects that are not in sync, with their fields. Of several releases only those with such objects are shown, and
/// a summary line.
fn table(releases: &[ReleaseDiff]) -> StyledText {
    let mut text = StyledText::default();
    for release in releases {
        if releases.len() == 1 || release.error.is_some() || !release.objects.is_empty() {
            add_release(&mut text, release);
        }
    }
    if releases.len() > 1 {
        let (style, line) = of_many(releases);
        text.add(style, &line).line();
    }
    text
}

fn of_many(releases: &[ReleaseDiff]) -> (Style, String) {
    let drifted = releases.iter().filter(|release| release.drifted > 0).count();
    let compared: usize = releases.iter().map(|release| release.compared).sum();
    let (releases, objects) = (counted(releases.len(), "release"), counted(compared, "object"));
    (if drifted > 0 { BAD } else { GOOD }, format!("{releases}, {objects}; {drifted} drifted"))
}

fn state(state: ObjectDiffState) -> (Style, &'static str) {
    match state {
        ObjectDiffState::Drifted => (BAD, "drifted"),
        ObjectDiffState::Missing => (BAD, "missing"),
        ObjectDiffState::InDoubt => (NOTE, "in doubt"),
        ObjectDiffState::Ownership => (BAD, "matches, but the next `helm upgrade` may fail with a conflict"),
        ObjectDiffState::Awaited => (PLAIN, "not there yet: a Helm operation is under way"),
        ObjectDiffState::NotCreated => (NOTE, "not created: the Helm operation failed"),
        ObjectDiffState::Allowed => (PLAIN, "missing, as an exception allows"),
        ObjectDiffState::AllowedToDiffer => (PLAIN, "differs, as an exception allows"),
        ObjectDiffState::Foreign => (NOTE, "owned by another release"),
        ObjectDiffState::OptedOut => (PLAIN, "opted out by its manifest"),
        ObjectDiffState::BeingDeleted => (NOTE, "being deleted"),
        ObjectDiffState::NotServed => (NOTE, "not served"),
        ObjectDiffState::Unread => (NOTE, "not read"),
    }
}

fn add_release(text: &mut StyledText, release: &ReleaseDiff) {
    text.add(HEAD, &format!("{} in namespace {}", release.release.name, release.release.namespace));
    if let (Some(revision), Some(status)) = (release.revision, &release.status) {
        text.add(PLAIN, &format!(" (revision {revision}, {status})"));
    }
    text.add(PLAIN, ": ");
    match &release.health {
        None => text.add(NOTE, "could not be compared"),
        Some(ReleaseHealth { counts, .. }) => {
            let style = match (counts.drifted, counts.in_doubt) {
                (0, 0) => GOOD,
                (0, _) => NOTE,
                (_, _) => BAD,
            };
            text.add(style, &counts.headline())
        }
    };
    text.line();
    if let Some(health) = release.health.as_ref().filter(|health| is_of_record(health.reason)) {
        text.add(NOTE, &format!("  {}", health.message)).line();
    }
    if let Some(invalid) = &release.invalid {
        text.add(NOTE, &format!("  the latest record is not accepted: {invalid}")).line();
    }
    for object in &release.objects {
        add_object(text, object);
    }
    // Why the guard holds back repairs, from its status.
    let guard = release.guard.as_ref().filter(|it| !release.objects.is_empty() || it.is_stale());
    if let Some(ReportedHealth { reason: Some(reason), message, .. }) = guard
        && (HOLDING.iter().any(|held| reason == held.as_str()) || guard.is_some_and(ReportedHealth::is_stale))
    {
        text.line().add(NOTE, &format!("  {reason}: {message}")).line();
    }
    for left in &release.left_behind {
        text.line().add(NOTE, &format!("  Left behind: {}", left.text())).line();
    }
    for unread in &release.unread_sources {
        text.line().add(NOTE, &format!("  Not considered: {unread}")).line();
    }
}

/// Whether the state of a release comes from its record rather than its objects.
fn is_of_record(reason: HealthReason) -> bool {
    matches!(
        reason,
        HealthReason::ReleaseFailed | HealthReason::PendingLocked | HealthReason::OperationUnderway
    )
}

fn add_object(text: &mut StyledText, object: &ObjectDiff) {
    let (style, state) = state(object.state);
    text.line().add(HEAD, &format!("  {}", object.object)).add(PLAIN, ": ").add(style, state);
    if let Some(reason) = &object.reason {
        text.add(PLAIN, &format!(" ({reason})"));
    }
    text.line();
    if let Some(why) = &object.not_repaired {
        text.add(NOTE, &format!("    not repaired: {why}")).line();
    }
    if object.fields.is_empty() {
        return;
    }
    let mut table = Table::new(["   ", "FIELD", "DECLARED", "LIVE"]);
    for field in &object.fields {
        add_field(&mut table, field, style);
    }
    text.append(&table.text());
}

fn add_field(table: &mut Table, field: &FieldDiff, style: Style) {
    let path = match field.place() {
        Some(Difference { path, line: Some(line), .. }) => format!("{path} line {line}"),
        Some(Difference { path, line: None, .. }) => path.clone(),
        None => field.path.clone(),
    };
    let [declared, live] = field.values();
    let (mark, style) = if field.in_doubt { ("   ?", NOTE) } else { ("   ~", style) };
    table.styled([(mark.to_owned(), style), (path, PLAIN), (declared, GOOD), (live, style)]);
}

/// The comparison as a unified diff from the live objects to the declared ones. Lines outside of diffs start with `#`,
/// so that diff tools skip them. No Secret's values are printed.
fn unified(releases: &[ReleaseDiff]) -> StyledText {
    let mut text = StyledText::default();
    for release in releases {
        for object in &release.objects {
            add_hunks(&mut text, release, object);
        }
        for left in &release.left_behind {
            text.add(NOTE, &format!("# Left behind: {}", left.text())).line();
        }
        for unread in &release.unread_sources {
            text.add(NOTE, &format!("# Not considered: {unread}")).line();
        }
    }
    if releases.len() > 1 {
        let (style, line) = of_many(releases);
        text.add(style, &format!("# {line}")).line();
    }
    text
}

fn add_hunks(text: &mut StyledText, release: &ReleaseDiff, object: &ObjectDiff) {
    let (style, state) = state(object.state);
    let reason = object.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    text.add(style, &format!("# {}: {state}{reason}", object.object)).line();
    if let Some(why) = &object.not_repaired {
        text.add(NOTE, &format!("# not repaired: {why}")).line();
    }
    let Some(hunks) = &object.hunks else {
        for field in &object.fields {
            text.add(NOTE, &format!("# {}", field.path)).line();
        }
        return;
    };
    let revision = release.revision.unwrap_or_default();
    text.add(HEAD, &format!("--- live {}", object.object)).line();
    text.add(HEAD, &format!("+++ revision {revision} {}", object.object)).line();
    for line in hunks.lines() {
        let style = match line.chars().next() {
            Some('-') => BAD,
            Some('+') => GOOD,
            Some('@') => NOTE,
            _ => PLAIN,
        };
        text.add(style, line).line();
    }
}
