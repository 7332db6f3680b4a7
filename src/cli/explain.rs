//! `kubemoor explain`: explains the state of an object or a field, and how to change it.
//!
//! Entry point: [`run`]. Invariant: the answer comes from the same records, policies and comparison as the
//! guard's verdicts. Nothing is written.

mod show;

use std::io::{self, Read};

use anyhow::Context;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;

use super::candidates;
use super::connect::{self, PlaceArgs, RecordArgs};
use super::labels::LabelArgs;
use super::output::{self, OutputArgs};
use super::{Outcome, standing};
use kubemoor_inspect::explanation::report::Report;
use kubemoor_inspect::explanation::{self, Denial, Question, advice_on_message, parse_path};
use kubemoor_inspect::reading::Reader;

/// The most of a pasted message that is read.
const PASTED: u64 = 64 << 10;

/// The advice for a text that is not a message of this program.
const UNKNOWN: &str =
    "standard input holds no message of Kubemoor: paste the whole message, or name the object as KIND/NAME";

/// The flags of `kubemoor explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The object, such as deployment/web, deploy/web or deployments.apps/web; - reads a denial or a warning from standard input
    #[arg(value_name = "KIND/NAME", add = ArgValueCandidates::new(candidates::objects))]
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

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let form = args.output.output.clone();
    let denial = denial(&args)?;
    let report = connect::run(explain(args, denial))?;
    output::print(&form, &report, || show::text(&report))
}

/// The subject of a message on standard input, or of the flags.
fn denial(args: &Args) -> anyhow::Result<Denial> {
    if args.object != "-" {
        let (object, paths) = (args.object.clone(), args.path.clone());
        return Ok(Denial { object, namespace: None, release: None, paths });
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(PASTED)
        .read_to_string(&mut text)
        .context("cannot read the message from standard input")?;
    let denial = Denial::parse(&text)
        .with_context(|| advice_on_message(&text).unwrap_or_else(|| UNKNOWN.to_owned()))?;
    let paths = if args.path.is_empty() { denial.paths } else { args.path.clone() };
    Ok(Denial { paths, ..denial })
}

async fn explain(args: Args, denial: Denial) -> anyhow::Result<Report> {
    let Args { records, cluster_labels, place, .. } = args;
    let labels = cluster_labels.labels()?;
    let (connection, namespace) = place.connect().await?;
    let reader = Reader::new(connection, records.record_driver, &labels).await?;
    let Denial { object, namespace: named, release, paths } = denial;
    let namespace = named.unwrap_or(namespace);
    standing::say(&reader.connection, Some(&namespace)).await;
    let question = Question { object, namespace, release, paths };
    Ok(explanation::explain(&reader, question, Timestamp::now()).await?)
}
