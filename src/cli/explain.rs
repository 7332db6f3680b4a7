//! `kubemoor explain`: explains the state of an object or a field, and how to change it. Uses the same records,
//! policies and comparison as the guard.

use std::io::{self, Read};

use anyhow::Context;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;

use super::connect::{self, LabelArgs, PlaceArgs, RecordArgs, warn_of_guard};
use super::output::{self, BAD, GOOD, HEAD, NOTE, OutputArgs, PLAIN, StyledText, Table};
use super::{CommandOutcome, completions};
use kubemoor_helm::values::Candidate;
use kubemoor_inspect::explanation::{
    self, ExplainQuery, ExplainedField, Explanation, FieldState, GUARD, PolicyFacts, ReleaseFacts, parse_path,
};
use kubemoor_inspect::reading::ClusterReader;
use kubemoor_verdict::health::ReportedHealth;
use kubemoor_verdict::shown::Difference;

const PASTED: u64 = 64 << 10;

const UNKNOWN: &str = "standard input has no Kubemoor message about an object: paste the whole denial or \
                       warning, or name the object as KIND/NAME";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The object, such as deployment/web, deploy/web or deployments.apps/web; - reads a denial or a warning from standard input
    #[arg(value_name = "KIND/NAME", add = ArgValueCandidates::new(completions::objects))]
    object: String,

    /// The field, such as /spec/replicas or spec.replicas; may be repeated. Without it: all fields that drift
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    path: Vec<String>,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let form = args.output.output.clone();
    let denial = denial(&args)?;
    let report = connect::run(explain(args, denial))?;
    output::print(&form, &report, || text(&report))
}

/// The object and fields to explain, from a message on standard input or from the flags.
fn denial(args: &Args) -> anyhow::Result<ExplainQuery> {
    if args.object != "-" {
        let (object, paths) = (args.object.clone(), args.path.clone());
        return Ok(ExplainQuery { object, namespace: None, release: None, paths });
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(PASTED)
        .read_to_string(&mut text)
        .context("cannot read the message from standard input")?;
    let denial = ExplainQuery::parse(&text).context(UNKNOWN)?;
    let paths = if args.path.is_empty() { denial.paths } else { args.path.clone() };
    Ok(ExplainQuery { paths, ..denial })
}

async fn explain(args: Args, query: ExplainQuery) -> anyhow::Result<Explanation> {
    let Args { records, cluster_labels, place, .. } = args;
    let labels = cluster_labels.labels()?;
    let (connection, namespace) = place.connect().await?;
    let reader = ClusterReader::new(connection, records.record_driver, &labels).await?;
    let looked_at = query.namespace.as_deref().unwrap_or(&namespace);
    warn_of_guard(&reader.connection, Some(looked_at), None).await;
    Ok(explanation::explain(&reader, query, namespace, Timestamp::now()).await?)
}

fn text(report: &Explanation) -> StyledText {
    let mut text = facts(report).text();
    for field in &report.fields {
        add_field(&mut text, field);
    }
    text.line();
    for advice in &report.advice {
        text.add(PLAIN, advice).line();
    }
    for unread in &report.unread {
        text.add(NOTE, &format!("Not considered: {unread}")).line();
    }
    text
}

fn facts(report: &Explanation) -> Table {
    let mut rows = Table::new(["OBJECT", &report.object.to_string()]);
    rows.row(["STATE", report.state]);
    if let Some(ReleaseFacts { release, revision, status, invalid, chart, effect }) = &report.release {
        rows.row(["RELEASE", &format!("{} in namespace {}", release.name, release.namespace)]);
        rows.row(["RECORD", &format!("revision {revision}, {status}: {effect}")]);
        if let Some(chart) = chart {
            rows.row(["CHART", chart]);
        }
        if let Some(invalid) = invalid {
            rows.row(["INVALID", invalid]);
        }
    }
    if let Some(PolicyFacts { matched, edits, drift }) = &report.policy {
        let of_guard = || "the default of the guard".to_owned();
        let names = if matched.is_empty() { "none".to_owned() } else { matched.join(", ") };
        rows.row(["POLICIES", &names]);
        rows.row(["EDITS", &edits.clone().unwrap_or_else(of_guard)]);
        rows.row(["DRIFT", &drift.clone().unwrap_or_else(of_guard)]);
    }
    match &report.guard {
        Some(ReportedHealth { edits, drift, ready, reason, message, .. }) => {
            let reason = reason.as_ref().unwrap_or(ready);
            rows.row(["GUARD", &format!("edits {edits}, drift {drift}; {reason}: {message}")]);
        }
        None if report.release.is_some() && !report.unread.iter().any(|unread| unread.starts_with(GUARD)) => {
            rows.row(["GUARD", "has no status for this release yet: `kubectl moor get releases` says why"]);
        }
        None => {}
    }
    for exception in &report.exceptions {
        rows.row(["EXCEPTION", exception]);
    }
    for flaw in &report.flaws {
        rows.row(["INVALID ANNOTATION", flaw]);
    }
    rows
}

fn add_field(text: &mut StyledText, field: &ExplainedField) {
    let (style, state) = match field.state {
        FieldState::AsDeclared => (GOOD, "as declared"),
        FieldState::Drifted => (BAD, "drifted"),
        FieldState::InDoubt => (NOTE, "in doubt"),
        FieldState::Absent => (BAD, "absent with its object"),
    };
    text.line().add(HEAD, &field.path).add(PLAIN, ": ").add(style, state).line();
    let shown = |value: &Option<_>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    let mut rows = Table::default();
    match field.difference.as_deref() {
        // Of long values, show only where they differ.
        Some(Difference { path, line, declared, new, .. }) => {
            let line = line.map_or_else(String::new, |line| format!(" line {line}"));
            rows.row(["  first difference", &format!("{path}{line}")]);
            rows.row(["  declared", &shown(declared)]);
            rows.row(["  live", &shown(new)]);
        }
        None => {
            rows.row(["  declared", &shown(&field.declared)]);
            rows.row(["  live", &shown(&field.live)]);
        }
    }
    let managers = field.managers.iter().map(|manager| format!("{} ({:?})", manager.name, manager.operation));
    let managers = managers.collect::<Vec<_>>().join(", ");
    rows.row(["  owned by", if managers.is_empty() { "nobody" } else { &managers }]);
    for Candidate { value, evidence, .. } in &field.values {
        let evidence: Vec<_> = evidence.iter().map(ToString::to_string).collect();
        rows.row(["  probable value", &format!("{value}: {}", evidence.join(", "))]);
    }
    for spared in &field.covered_by {
        rows.row(["  exception", spared]);
    }
    if let Some(does) = &field.next_upgrade {
        rows.row(["  next upgrade", does]);
    }
    text.append(&rows.text());
}
