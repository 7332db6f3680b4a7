//! `kubemoor check`: the verdict on one AdmissionReview, offline. The verdict is that of a webhook that knows only this
//! release and has no API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Serialize;

use super::connect::LabelArgs;
use super::output::{self, OutputArgs, PLAIN, StyledText, Table};
use super::{CommandOutcome, warn};
use kubemoor_cluster::mirror::directory;
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::{Autoscaler, DriftMode, EditsMode, ObjectId, Operation, ReleaseId};
use kubemoor_guard::webhook::case::{JudgementInputs, ReviewCase, ReviewSubject};
use kubemoor_guard::webhook::review::AdmissionRequest;
use kubemoor_helm::index::Index;
use kubemoor_helm::release::Release;
use kubemoor_inspect::reading::OPERATION_TIMEOUT;
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::compile::{self, CompiledPolicy};
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_runtime::config::RecordDriver;
use kubemoor_verdict::edit::{self, DryRunEvidence, ObjectContext, ObjectOwner, Rules, Verdict};
use kubemoor_verdict::replay::NAMESPACE_NAME;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The release: the output of `helm get manifest`, or an exported record
    #[arg(long, value_name = "FILE")]
    release: PathBuf,

    /// The AdmissionReview, as the API server sends it
    #[arg(long, value_name = "FILE")]
    review: PathBuf,

    /// How to answer a change that causes drift, unless a policy decides
    #[arg(long, value_name = "MODE", default_value = "Deny", ignore_case = true)]
    edits: EditsMode,

    /// A directory of policies
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,

    #[command(flatten)]
    cluster_labels: LabelArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The maximum depth of subdirectories that are read.
const MAX_DEPTH: usize = 8;

/// A verdict and its object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct CheckReport {
    object: ObjectId,
    operation: Operation,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { release, review, edits, policies, cluster_labels, output } = args;
    let cluster = cluster_labels.labels()?;
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let accepted = policies.as_deref().map(read_policy_folder).transpose()?.unwrap_or_default();
    let policies = Policies::new(defaults, &cluster, accepted);
    let report = report(&release, &review, policies, Timestamp::now())?;
    output::print(&output.output, &report, || report.table())?;
    Ok(if report.verdict.outcome.is_refusal() { CommandOutcome::Found } else { CommandOutcome::Clean })
}

/// A resolver for one namespace; adds the name label that every namespace has.
pub(super) fn resolver(policies: Policies, namespace: &str, mut labels: Labels) -> PolicyResolver {
    labels.entry(NAMESPACE_NAME.to_owned()).or_insert_with(|| namespace.to_owned());
    let resolver = PolicyResolver::of_policies(policies);
    resolver.set_namespace(namespace, Some(labels));
    resolver
}

fn report(release: &Path, review: &Path, policies: Policies, now: Timestamp) -> anyhow::Result<CheckReport> {
    let cannot_read = || format!("cannot read the review {}", review.display());
    let body = fs::read(review).with_context(cannot_read)?;
    let request = AdmissionRequest::parse(&body).with_context(cannot_read)?;

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
    let resolver = resolver(policies, &assembled.release.id.namespace, Labels::new());
    judge(&request, assembled.release, &resolver, Vec::new(), &[], now).with_context(cannot_read)
}

/// Judges a request against one release, with allowances and with the autoscalers of each workload.
pub(super) fn judge(
    request: &AdmissionRequest<'_>,
    release: Release,
    resolver: &PolicyResolver,
    allowances: Vec<Arc<Allowance>>,
    autoscalers: &[(ObjectId, Autoscaler)],
    now: Timestamp,
) -> anyhow::Result<CheckReport> {
    let operation = request.head.operation.context("its operation is not CREATE, UPDATE or DELETE")?;
    let mut index = Index::default();
    index.set(release);
    let rules = Rules { resolver, own_account: None };
    let Some(subject) = ReviewSubject::from_head(&request.head, &index, RecordDriver::Secret) else {
        let (object, verdict) = (request.head.object(), Verdict::allow(edit::VerdictReason::NotDeclared));
        return Ok(CheckReport { object, operation, verdict, message: None });
    };
    let case = ReviewCase::new(subject, request.clone(), RecordDriver::Secret);
    if case.subject.object.name.is_empty() {
        return Err(anyhow::anyhow!("it names no object"));
    }
    let scaling = autoscalers.iter().filter(|(workload, _)| *workload == case.subject.object);
    let autoscalers = scaling.map(|(_, autoscaler)| autoscaler.clone()).collect();
    let circumstances = ObjectContext { allowances, autoscalers, ..ObjectContext::default() };
    let index = RwLock::new(index);
    let (circumstances, rules, evidence) = (&circumstances, &rules, DryRunEvidence::None);
    let basis = JudgementInputs { index: &index, circumstances, rules, evidence, now };
    let mut judgement = case.judge(basis);
    if judgement.verdict.arguable {
        judgement = case.judge(JudgementInputs { evidence: DryRunEvidence::Nowhere, ..basis });
    }
    let message = match judgement.verdict.outcome {
        edit::EditOutcome::Allow => None,
        outcome if outcome.is_refusal() => Some(judgement.message.denial()),
        _ => Some(judgement.message.warnings().join("\n")),
    };
    Ok(CheckReport { object: case.subject.object, operation, verdict: judgement.verdict, message })
}

/// The release of a manifest that does not name one: the release in the reviewed object's annotations, otherwise the
/// file's name as the release's name, in the object's namespace.
fn assumed_release(file: &Path, request: &AdmissionRequest<'_>) -> ReleaseId {
    let object = request.old_object.as_ref().or(request.object.as_ref()).and_then(Excerpt::value);
    if let Some(ObjectOwner::Release(id)) = object.as_ref().map(ObjectOwner::named_by) {
        return id;
    }
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let head = &request.head;
    let is_namespace = head.kind.group.is_empty() && head.kind.kind == "Namespace";
    let namespace = if is_namespace { &head.name } else { &head.namespace };
    ReleaseId { namespace: namespace.as_deref().unwrap_or("default").into(), name: name.into() }
}

impl CheckReport {
    fn table(&self) -> StyledText {
        let Self { object, operation, verdict, message } = self;
        let mut rows = Table::new(["OBJECT", &object.to_string()]);
        rows.row(["OPERATION", &format!("{operation:?}").to_uppercase()]);
        rows.row(["VERDICT", verdict.outcome.as_str()]);
        rows.row(["REASON", verdict.reason.as_str()]);
        let mut fields = Table::new(["FIELD", "DECLARED", "WAS", "WOULD BE"]);
        if let Some(grounds) = &verdict.grounds {
            rows.row(["RELEASE", &format!("{} (revision {})", grounds.release, grounds.revision)]);
            let shown =
                |value: &Option<_>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            for finding in &grounds.fields {
                let doubt = if finding.in_doubt { " (in doubt)" } else { "" };
                // Of long values, show only where they differ.
                let (path, values) = match finding.difference.as_deref() {
                    Some(it) => (it.path.clone(), [&it.declared, &it.old, &it.new]),
                    None => (finding.path.to_string(), [&finding.declared, &finding.old, &finding.new]),
                };
                let [declared, old, new] = values.map(shown);
                fields.row([path + doubt, declared, old, new]);
            }
        }
        let mut text = rows.text();
        if verdict.grounds.as_ref().is_some_and(|grounds| !grounds.fields.is_empty()) {
            text.line().append(&fields.text());
        }
        if let Some(message) = message {
            text.line();
            for line in message.lines() {
                text.add(PLAIN, line).line();
            }
        }
        text
    }
}

/// Reads the policies in a directory, not in its subdirectories.
pub(super) fn read_policy_folder(path: &Path) -> anyhow::Result<Vec<Arc<CompiledPolicy>>> {
    read_policy_files(&yaml_files(path, false)?)
}

/// The `.yaml`, `.yml` and `.json` files of a directory, without hidden ones; with `below` also those of its
/// subdirectories.
pub(super) fn yaml_files(folder: &Path, below: bool) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![(folder.to_owned(), 0)]);
    while let Some((folder, depth)) = folders.pop() {
        let cannot_list = || format!("cannot list {}", folder.display());
        if depth > MAX_DEPTH {
            return Err(anyhow::anyhow!("it is nested more than {MAX_DEPTH} folders deep"))
                .with_context(cannot_list);
        }
        for entry in fs::read_dir(&folder).with_context(cannot_list)? {
            let entry = entry.with_context(cannot_list)?;
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // Symbolic links to directories are not followed: they could form a loop.
            if entry.file_type().with_context(cannot_list)?.is_dir() {
                folders.extend(below.then_some((path, depth + 1)));
            } else if is_yaml(&path) && path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(super) fn read_policy_files(paths: &[PathBuf]) -> anyhow::Result<Vec<Arc<CompiledPolicy>>> {
    let mut texts = Vec::with_capacity(paths.len());
    for path in paths {
        texts.push((path.display().to_string(), read_text(path)?));
    }
    let (accepted, flawed) = compile::read(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    if flawed.is_empty() {
        return Ok(accepted);
    }
    let flaws: Vec<String> = flawed.iter().map(ToString::to_string).collect();
    Err(anyhow::anyhow!("{}", flaws.join("\n")).context("no verdict with policies that are not accepted"))
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}

/// Reads a file of at most [`compile::MAX_FILE`] bytes.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let cannot_read = || format!("cannot read {}", path.display());
    let length = fs::metadata(path).with_context(cannot_read)?.len();
    if length > compile::MAX_FILE as u64 {
        return Err(anyhow::anyhow!("it has more than {} bytes", compile::MAX_FILE))
            .with_context(cannot_read);
    }
    fs::read_to_string(path).with_context(cannot_read)
}

#[cfg(test)]
mod tests;
