//! `kubemoor check`: the verdict on one AdmissionReview, offline.
//!
//! Entry point: [`run`]. Invariant: the verdict is the one that the webhook
//! would come to, had it this release and no other, and no API server to ask.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Serialize;

use super::{Outcome, warn};
use crate::cluster::directory;
use crate::config::RecordDriver;
use crate::declaration::catalog::Catalog;
use crate::helm::index::Index;
use crate::model::{DriftMode, EditsMode, ObjectId, Operation, ReleaseId};
use crate::policy::Policy;
use crate::policy::book::Book;
use crate::verdict::edit::{self, Evidence, Owner, Rules, Verdict};
use crate::webhook::case::{Case, Subject};
use crate::webhook::review::{self, Request};

/// The flags of `kubemoor check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The release: what `helm get manifest` prints, or an exported record
    #[arg(long, env = "KUBEMOOR_RELEASE", value_name = "FILE")]
    release: PathBuf,

    /// The AdmissionReview, as the API server sends it
    #[arg(long, env = "KUBEMOOR_REVIEW", value_name = "FILE")]
    review: PathBuf,

    /// What becomes of an edit that drifts
    #[arg(long, env = "KUBEMOOR_EDITS", value_name = "MODE", default_value = "Deny", ignore_case = true)]
    edits: EditsMode,

    /// How the verdict is printed
    #[arg(long, short, env = "KUBEMOOR_OUTPUT", value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

/// Irrelevant here but for a pending record, which it lets grow stale.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// A verdict and what it is about.
#[derive(Debug, Serialize)]
struct Report {
    object: ObjectId,
    operation: Operation,
    #[serde(flatten)]
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let Args { release, review, edits, output } = args;
    let report = report(&release, &review, edits, Timestamp::now())?;
    let text = match output {
        Format::Table => report.table(),
        Format::Json => {
            serde_json::to_string_pretty(&report).context("cannot write the verdict as JSON")? + "\n"
        }
    };
    super::print(&text)?;
    Ok(if report.verdict.outcome.is_refusal() { Outcome::Found } else { Outcome::Clean })
}

fn report(release: &Path, review: &Path, edits: EditsMode, now: Timestamp) -> anyhow::Result<Report> {
    let cannot_read = || format!("cannot read the review {}", review.display());
    let body = fs::read(review).with_context(cannot_read)?;
    let request = Request::parse(&body).with_context(cannot_read)?;
    let operation = request
        .head
        .operation
        .context("its operation is none of CREATE, UPDATE and DELETE")
        .with_context(cannot_read)?;

    let content =
        directory::read(release).with_context(|| format!("cannot read the release {}", release.display()))?;
    let record = content.into_record(&assumed_release(release, &request));
    let assembled = directory::assemble(record, &Catalog::with_core());
    for skipped in &assembled.skipped {
        warn(&format!(
            "document {} of {} is not judged: {}",
            skipped.index,
            release.display(),
            skipped.reason
        ));
    }
    let mut index = Index::default();
    index.set(assembled.release);
    let policy = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let book = Book::new(policy);
    let rules = Rules { book: &book, own_account: None };
    let Some(subject) = Subject::of(&request.head, &index, RecordDriver::Secret) else {
        let object = object(&request);
        return Ok(Report {
            object,
            operation,
            verdict: Verdict::allow(edit::Reason::NotDeclared),
            message: None,
        });
    };
    let case = Case::of(subject, &request, RecordDriver::Secret);
    if case.subject.object.name.is_empty() {
        return Err(anyhow::anyhow!("it names no object").context(cannot_read()));
    }
    let index = RwLock::new(index);
    let mut judgement = case.judge(&index, &rules, Evidence::None, now);
    if judgement.verdict.arguable {
        judgement = case.judge(&index, &rules, Evidence::Nowhere, now);
    }
    let message = (judgement.verdict.outcome != edit::Outcome::Allow).then_some(judgement.message);
    Ok(Report { object: case.subject.object, operation, verdict: judgement.verdict, message })
}

/// What a review names whose subject is never judged.
fn object(request: &Request<'_>) -> ObjectId {
    let head = &request.head;
    let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
    ObjectId {
        group: head.kind.group.to_string(),
        kind: head.kind.kind.to_string(),
        namespace: text(&head.namespace),
        name: text(&head.name).unwrap_or_default(),
    }
}

/// Whose a manifest is that does not say so itself: of the release that the
/// object under judgement names, else of the one that the file is named for,
/// in the object's namespace.
fn assumed_release(file: &Path, request: &Request<'_>) -> ReleaseId {
    let object = request.old_object.or(request.object).and_then(|text| review::object(text).ok());
    if let Some(Owner::Release(id)) = object.as_ref().map(Owner::of) {
        return id;
    }
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let head = &request.head;
    let is_namespace = head.kind.group.is_empty() && head.kind.kind == "Namespace";
    let namespace = if is_namespace { &head.name } else { &head.namespace };
    ReleaseId { namespace: namespace.as_deref().unwrap_or("default").to_owned(), name }
}

impl Report {
    fn table(&self) -> String {
        let Self { object, operation, verdict, message } = self;
        let mut rows = vec![
            ["OBJECT".to_owned(), object.to_string()],
            ["OPERATION".to_owned(), format!("{operation:?}").to_uppercase()],
            ["VERDICT".to_owned(), verdict.outcome.as_str().to_owned()],
            ["REASON".to_owned(), verdict.reason.as_str().to_owned()],
        ];
        let mut fields = Vec::new();
        if let Some(grounds) = &verdict.grounds {
            rows.push(["RELEASE".to_owned(), format!("{} (revision {})", grounds.release, grounds.revision)]);
            let shown =
                |value: &Option<_>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            fields.extend(grounds.fields.iter().map(|finding| {
                let doubt = if finding.doubt { " (in doubt)" } else { "" };
                [
                    finding.path.to_string() + doubt,
                    shown(&finding.declared),
                    shown(&finding.old),
                    shown(&finding.new),
                ]
            }));
        }
        let mut text = aligned(&rows);
        if !fields.is_empty() {
            fields.insert(0, ["FIELD", "DECLARED", "WAS", "WOULD BE"].map(str::to_owned));
            text = text + "\n" + &aligned(&fields);
        }
        if let Some(message) = message {
            text = text + "\n" + message + "\n";
        }
        text
    }
}

/// Rows as lines, each column as wide as its widest cell.
fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}   ");
        }
        text = text + line.trim_end() + "\n";
    }
    text
}

#[cfg(test)]
mod tests;
