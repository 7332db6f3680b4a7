//! `kubemoor explain`: why an object, or a field of it, is as it is, and what
//! may be done about it.
//!
//! Entry point: [`run`]. Invariant: what is said comes from the same records,
//! policies and comparison that the guard judges by; nothing is written.

mod advice;
mod compare;
mod exceptions;
mod fields;
mod pasted;
mod report;
mod show;

use std::io::{self, Read};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;

use self::pasted::Denial;
use self::report::{Inquiry, Report};
use super::candidates;
use super::connect::{self, ClusterArgs, NamespaceArgs};
use super::labels::LabelArgs;
use super::output::{self, OutputArgs};
use super::reading::{Found, Reader, RecordArgs};
use super::{Outcome, standing};
use crate::declaration::path::Path;
use crate::helm::release::Release;
use crate::model::{NamedObject, ObjectId, ReleaseId};
use crate::policy::pattern::Pattern;

/// The most of a pasted message that is read.
const PASTED: u64 = 64 << 10;

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
    namespace: NamespaceArgs,

    #[command(flatten)]
    records: RecordArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What is asked about.
struct Question {
    object: String,
    namespace: Option<String>,
    /// The release that a denial names.
    release: Option<ReleaseId>,
    /// None for all fields that are not as declared.
    paths: Vec<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let output = args.output.output;
    let question = question(&args)?;
    let report = connect::run(explain(args, question))?;
    output::print(output, &report, || report.text())
}

fn question(args: &Args) -> anyhow::Result<Question> {
    if args.object != "-" {
        let (object, paths) = (args.object.clone(), args.path.clone());
        return Ok(Question { object, namespace: None, release: None, paths });
    }
    let mut text = String::new();
    io::stdin()
        .lock()
        .take(PASTED)
        .read_to_string(&mut text)
        .context("cannot read the message from standard input")?;
    let Denial { object, namespace, release, paths } = Denial::parse(&text).context(
        "standard input holds no message of Kubemoor: paste the whole message, or name the object as KIND/NAME",
    )?;
    let paths = if args.path.is_empty() { paths } else { args.path.clone() };
    Ok(Question { object, namespace, release, paths })
}

async fn explain(args: Args, question: Question) -> anyhow::Result<Report> {
    let Args { namespace, records, cluster_labels, cluster, .. } = args;
    let labels = cluster_labels.labels()?;
    let connection = cluster.connect().await?;
    let reader = Reader::new(connection, records, &labels).await?;
    let namespace = question.namespace.clone().unwrap_or_else(|| namespace.or_default(&reader.connection));
    standing::say(&reader.connection, Some(&namespace)).await;
    let text = &question.object;
    let named: NamedObject = text.parse().map_err(|error: &str| anyhow!("{text:?}: {error}"))?;
    let object = named.resolve(&reader.connection, &reader.kinds, &namespace).await?;
    let preferred = reader
        .kinds
        .catalog()
        .facts(&object.group, &object.kind)
        .and_then(|facts| facts.versions.first().cloned());
    let live = match reader.live(&object, &preferred.unwrap_or_default()).await {
        Found::Object(live) => Some(live),
        Found::Absent => None,
        Found::NotServed => bail!("the API server serves no {} in the group {:?}", object.kind, object.group),
        Found::Unread(reason) => return Err(anyhow!("cannot read {object}: {reason}")),
    };
    let named = live.as_ref().and_then(ReleaseId::named_by);
    // The release that the object or the denial names, else any in its namespace.
    let named: Vec<ReleaseId> = named.into_iter().chain(question.release).collect();
    let mut release = declaring(&reader, named, &object).await;
    if release.is_none() && object.namespace.is_some() {
        release = declaring(&reader, reader.list(Some(&namespace)).await?, &object).await;
    }
    let patterns = question.paths.iter().filter_map(|path| Pattern::parse(path).ok()).collect();
    let inquiry = Inquiry { object, live, release, patterns };
    Ok(report::of(&reader, inquiry, Timestamp::now()).await)
}

/// The first of these releases that declares the object. One that cannot be
/// read is none: annotations and denials can name anything.
async fn declaring(reader: &Reader, releases: Vec<ReleaseId>, object: &ObjectId) -> Option<Arc<Release>> {
    for id in releases {
        match reader.release(&id).await {
            Ok(release) if release.objects.contains_key(object) => return Some(release),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

fn parse_path(text: &str) -> Result<String, String> {
    // As people write it.
    let pointer = match text.starts_with('/') {
        true => None,
        false => Path::from_plain(text).map(|path| path.to_string()),
    };
    let pointer = pointer.unwrap_or_else(|| text.to_owned());
    Pattern::parse(&pointer).map(|_| pointer.clone()).map_err(|error| error.to_string())
}
