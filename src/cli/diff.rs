//! `kubemoor diff`: compares live objects with their releases as the guard does, and `kubemoor reconcile --dry-run`, which
//! shows what repairs would change.
//!
//! Nothing is written, except the dry runs of `--settle`. The exit code is 1 when drift was found. A doubt is only reported;
//! with `--strict` it counts as drift.

use std::io::IsTerminal;

use anstyle::Style;
use anyhow::{Context, bail};
use clap_complete::ArgValueCandidates;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use json_patch::Patch;
use serde::Serialize;

use super::candidates;
use super::connect::{self, ClusterArgs, NamespacesArgs, RecordArgs, parse_release, spoken};
use super::contexts::{self, ContextsArgs};
use super::labels::LabelArgs;
use super::list::{Items, SelectorArgs, nothing};
use super::output::{self, BAD, Form, GOOD, HEAD, NOTE, PLAIN, Table, Text, counted};
use super::{Outcome, standing, warn};
use kubemoor_cluster::client::connection::{self, Access, Connection};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_inspect::comparison::object::{FieldReport, State, What};
use kubemoor_inspect::comparison::{self, ObjectReport, ReleaseReport};
use kubemoor_inspect::reading::Reader;
use kubemoor_verdict::difference::Difference;
use kubemoor_verdict::health::reported::ReportedHealth;
use kubemoor_verdict::health::{Health, Reason};

/// Releases that are compared at once.
const RELEASES_AT_ONCE: usize = 4;

/// The reasons for which the guard holds repairs of a whole release; its message says which and for how long.
const HOLDING: [Reason; 4] = [Reason::Unconfirmed, Reason::Contested, Reason::Braked, Reason::Suspended];

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

/// A release of one of several clusters.
#[derive(Serialize)]
struct Placed<'r> {
    /// The context.
    cluster: &'r str,
    #[serde(flatten)]
    release: &'r ReleaseReport,
}

/// The changes that repairs of releases would make.
#[derive(Debug)]
struct Previews(Vec<Preview>);

/// What repairs of one release would change.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preview {
    #[serde(flatten)]
    release: ReleaseId,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    changes: Vec<Change>,
    /// Why the guard may leave some of it as it is, by its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_up: Option<String>,
    /// What could not be read and may spare some of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_considered: Vec<String>,
}

/// What a repair would do with one object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Change {
    #[serde(flatten)]
    object: ObjectId,
    action: Action,
    /// What would change; not for Secrets, whose values it would show.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Patch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
enum Action {
    /// Fields would be set back.
    Restore,
    /// The object would be made anew.
    Recreate,
    /// Fields would be given back to Helm's field manager.
    ReturnFields,
    /// Nothing, before somebody can tell whether it drifted.
    Nothing,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.contexts.is_empty() {
        return connect::run(compare_everywhere(args));
    }
    let (form, strict) = (args.output.clone(), args.strict);
    let report = connect::run(compare_one(args))?;
    match form {
        Form::People(People::Table) => output::write(table(&report).as_str())?,
        Form::People(People::Unified) => output::write(unified(&report).as_str())?,
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

/// Compares in each context.
async fn compare_everywhere(args: Args) -> anyhow::Result<Outcome> {
    let ask = async |name: &str, access: Access| {
        let connection = connection::connect_by(&access).await?;
        standing::say_of(name, &connection, args.namespaces.chosen(&connection).as_deref()).await;
        compare(args.clone(), connection).await
    };
    let answers = contexts::each(args.contexts.clusters(&args.cluster), contexts::PATIENCE, ask).await;
    let reports = &answers.found;
    print_everywhere(&args.output, reports)?;
    let mut failures = 0;
    for (cluster, report) in reports {
        for sentence in report.failures() {
            warn(&format!("{cluster}: {sentence}"));
            failures += 1;
        }
    }
    let has_drift = reports.iter().any(|(_, report)| report.has_drift());
    let has_doubt = args.strict && reports.iter().any(|(_, report)| report.has_doubt());
    match (answers.incomplete(), failures) {
        _ if has_drift || has_doubt => Ok(Outcome::Found),
        (Some(incomplete), _) => Err(incomplete),
        (None, 0) => Ok(Outcome::Clean),
        (None, count) => bail!("the comparison is incomplete: {count} of its parts failed, see above"),
    }
}

fn print_everywhere(form: &Form<People>, reports: &[(String, Report)]) -> anyhow::Result<()> {
    let data = match form {
        Form::People(form) => {
            for (cluster, report) in reports {
                let mut text = Text::default();
                text.add(HEAD, &format!("# Cluster {cluster}")).line();
                text.append(&if *form == People::Unified { unified(report) } else { table(report) });
                output::write(text.as_str())?;
            }
            return Ok(());
        }
        Form::Data(data) => data,
    };
    let releases = reports
        .iter()
        .flat_map(|(cluster, report)| report.releases.iter().map(move |release| Placed { cluster, release }));
    data.print(&Items::of(releases.collect::<Vec<_>>()))?;
    Ok(())
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

impl Previews {
    /// Previews the repairs of the releases in a comparison.
    fn of(report: Report) -> Self {
        Self(report.releases.into_iter().map(Preview::of).collect())
    }

    /// Whether anything would change.
    fn has_changes(&self) -> bool {
        self.0.iter().flat_map(|release| &release.changes).any(|change| change.action != Action::Nothing)
    }

    fn text(&self) -> Text {
        let mut text = Text::default();
        for Preview { release, revision, changes, held_up, not_considered } in &self.0 {
            text.add(HEAD, &spoken(release));
            let revision = revision.map(|revision| format!(" (revision {revision})")).unwrap_or_default();
            let none = if changes.is_empty() { ": nothing to repair" } else { "" };
            text.add(PLAIN, &format!("{revision}{none}")).line();
            for change in changes {
                change.add(&mut text);
            }
            if let Some(held_up) = held_up {
                text.add(NOTE, &format!("  {held_up}")).line();
            }
            for unread in not_considered {
                text.add(NOTE, &format!("  Not considered: {unread}")).line();
            }
        }
        text
    }
}

impl Preview {
    fn of(release: ReleaseReport) -> Self {
        let holds = |told: &ReportedHealth| {
            told.is_stale() || told.reason.as_deref() == Some(Reason::Unconfirmed.as_str())
        };
        let held_up = release.guard.filter(holds).map(|told| told.message);
        let changes: Vec<Change> = release.objects.into_iter().filter_map(Change::of).collect();
        let held_up = held_up.filter(|_| !changes.is_empty());
        Self {
            release: release.release,
            revision: release.revision,
            changes,
            held_up,
            not_considered: release.not_considered,
        }
    }
}

impl Change {
    /// Previews the repair of an object; `None` where there is nothing to do.
    fn of(report: ObjectReport) -> Option<Self> {
        let ObjectReport { object, state, reason, patch, .. } = report;
        let action = match state {
            State::Drifted => Action::Restore,
            State::Missing => Action::Recreate,
            State::Ownership => Action::ReturnFields,
            State::InDoubt | State::NotServed | State::Unread => Action::Nothing,
            _ => return None,
        };
        let reason = match (action, state, &patch) {
            (Action::Restore, _, None) => Some("its values are secret, so the patch is not shown".to_owned()),
            (_, State::InDoubt, _) => Some("only a dry run can tell: `kubemoor diff --settle`".to_owned()),
            _ => reason,
        };
        Some(Self { object, action, patch, reason })
    }

    fn add(&self, text: &mut Text) {
        let Self { object, action, patch, reason } = self;
        let (style, what) = match action {
            Action::Restore => (BAD, "would be restored"),
            Action::Recreate => (BAD, "would be re-created"),
            Action::ReturnFields => (BAD, "its fields would be given back to Helm"),
            Action::Nothing => (NOTE, "would stay as it is"),
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

/// The comparison: every object that is not in sync, with its fields. For many releases only those with such
/// objects are shown, and a line of counts.
fn table(report: &Report) -> Text {
    let mut text = Text::default();
    for release in &report.releases {
        if report.releases.len() == 1 || release.error.is_some() || !release.objects.is_empty() {
            add_release(&mut text, release);
        }
    }
    if report.releases.len() > 1 {
        let (style, line) = of_many(report);
        text.add(style, &line).line();
    }
    text
}

/// The counts of many releases.
fn of_many(report: &Report) -> (Style, String) {
    let drifted = report.releases.iter().filter(|release| release.drifted > 0).count();
    let compared: usize = report.releases.iter().map(|release| release.compared).sum();
    let (releases, objects) = (counted(report.releases.len(), "release"), counted(compared, "object"));
    (if drifted > 0 { BAD } else { GOOD }, format!("{releases}, {objects}; {drifted} drifted"))
}

/// The state of an object in words.
fn state(state: State) -> (Style, &'static str) {
    match state {
        State::Drifted => (BAD, "drifted"),
        State::Missing => (BAD, "missing"),
        State::InDoubt => (NOTE, "in doubt"),
        State::Ownership => (BAD, "matches, but the next `helm upgrade` may fail with a conflict"),
        State::Awaited => (PLAIN, "not there yet: a Helm operation is under way"),
        State::NotCreated => (NOTE, "not created: the Helm operation failed"),
        State::Allowed => (PLAIN, "missing, as an exception allows"),
        State::AllowedToDiffer => (PLAIN, "differs, as an exception allows"),
        State::Foreign => (NOTE, "owned by another release"),
        State::OptedOut => (PLAIN, "opted out by its manifest"),
        State::BeingDeleted => (NOTE, "being deleted"),
        State::NotServed => (NOTE, "not served"),
        State::Unread => (NOTE, "not read"),
    }
}

fn add_release(text: &mut Text, release: &ReleaseReport) {
    text.add(HEAD, &format!("{} in namespace {}", release.release.name, release.release.namespace));
    if let (Some(revision), Some(status)) = (release.revision, &release.status) {
        text.add(PLAIN, &format!(" (revision {revision}, {status})"));
    }
    text.add(PLAIN, ": ");
    match &release.health {
        None => text.add(NOTE, "could not be compared"),
        Some(Health { counts, .. }) => {
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
        text.add(NOTE, &format!("  the latest record does not count: {invalid}")).line();
    }
    for object in &release.objects {
        add_object(text, object);
    }
    // The reason why the guard holds repairs, in the guard's words.
    let guard = release.guard.as_ref().filter(|it| !release.objects.is_empty() || it.is_stale());
    if let Some(ReportedHealth { reason: Some(reason), message, .. }) = guard
        && (HOLDING.iter().any(|held| reason == held.as_str()) || guard.is_some_and(ReportedHealth::is_stale))
    {
        text.line().add(NOTE, &format!("  {reason}: {message}")).line();
    }
    for left in &release.left_behind {
        text.line().add(NOTE, &format!("  Left behind: {}", left.text())).line();
    }
    for unread in &release.not_considered {
        text.line().add(NOTE, &format!("  Not considered: {unread}")).line();
    }
}

/// Whether the state of a release comes from its record rather than its objects.
fn is_of_record(reason: Reason) -> bool {
    matches!(reason, Reason::ReleaseFailed | Reason::PendingLocked | Reason::OperationUnderway)
}

fn add_object(text: &mut Text, object: &ObjectReport) {
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

fn add_field(table: &mut Table, field: &FieldReport, style: Style) {
    let shown = |value: &Option<_>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    // Of long values the place at which they differ.
    let at = field.difference.as_deref().filter(|_| field.what == What::Changed);
    let path = match at {
        Some(Difference { path, line: Some(line), .. }) => format!("{path} line {line}"),
        Some(Difference { path, line: None, .. }) => path.clone(),
        None => field.path.clone(),
    };
    let (declared, live) = match (field.what, at) {
        (_, Some(at)) => (shown(&at.declared), shown(&at.new)),
        (What::Changed | What::Removed, None) => (shown(&field.declared), shown(&field.live)),
        (What::ElementRemoved, None) => ("one element".to_owned(), "removed".to_owned()),
        (What::ElementMoved, None) => ("one element".to_owned(), format!("moved: {}", shown(&field.live))),
        (What::ElementRepeated, None) => {
            ("one element".to_owned(), format!("several: {}", shown(&field.live)))
        }
    };
    let (mark, style) = if field.doubt { ("   ?", NOTE) } else { ("   ~", style) };
    table.styled([(mark.to_owned(), style), (path, PLAIN), (declared, GOOD), (live, style)]);
}

/// The comparison as a unified diff, from the live objects to the declared ones. Every line outside of a hunk starts with
/// `#`, so that diff tools skip it, and a Secret's values appear in no hunk.
fn unified(report: &Report) -> Text {
    let mut text = Text::default();
    for release in &report.releases {
        for object in &release.objects {
            add_hunks(&mut text, release, object);
        }
        for left in &release.left_behind {
            text.add(NOTE, &format!("# Left behind: {}", left.text())).line();
        }
        for unread in &release.not_considered {
            text.add(NOTE, &format!("# Not considered: {unread}")).line();
        }
    }
    if report.releases.len() > 1 {
        let (style, line) = of_many(report);
        text.add(style, &format!("# {line}")).line();
    }
    text
}

fn add_hunks(text: &mut Text, release: &ReleaseReport, object: &ObjectReport) {
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
