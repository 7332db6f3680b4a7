//! A file of cases, and the judgement of one case.
//!
//! Entry points: [`read`], [`Suite::prepare`], [`Case::judge`]. Invariant: a file with an unknown field or
//! value fails. No case is skipped.

mod case;
mod ground;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

pub(super) use self::case::Case;
pub(super) use self::ground::Ground;
use super::super::policy_files;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_helm::manifest;
use kubemoor_policy::read::typed;
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::resource::DriftAllowanceSpec;

/// Cases that share a release and policies.
#[derive(Debug)]
pub(super) struct Suite {
    /// Its name.
    pub(super) name: String,
    /// What it says.
    pub(super) spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

/// The content of a suite.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Spec {
    /// Files of policies, from this file's folder.
    #[serde(default)]
    policies: Vec<PathBuf>,
    /// What holds where no policy says otherwise.
    #[serde(default)]
    defaults: Defaults,
    /// The labels of the cluster.
    #[serde(default)]
    cluster_labels: Labels,
    /// The release.
    release: ReleaseSpec,
    /// Allowances in the namespace of the release.
    #[serde(default)]
    allowances: Vec<DriftAllowanceSpec>,
    /// Autoscalers of the release's workloads.
    #[serde(default)]
    autoscalers: Vec<AutoscalerSpec>,
    /// The cases.
    pub(super) cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Defaults {
    edits: EditsMode,
    drift: DriftMode,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReleaseSpec {
    name: String,
    namespace: String,
    /// The labels of that namespace.
    #[serde(default)]
    namespace_labels: Labels,
    /// What `helm get manifest` prints.
    manifest: Option<String>,
    /// A file with the same, or with an exported record.
    file: Option<PathBuf>,
}

/// The scaling range that an autoscaler gives a workload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AutoscalerSpec {
    /// The workload: `Deployment/web`.
    object: String,
    /// Its namespace, where several objects have this kind and name.
    #[serde(default)]
    namespace: Option<String>,
    /// The fewest replicas.
    #[serde(default = "one")]
    min_replicas: i32,
    /// The most replicas.
    max_replicas: i32,
    /// Whether KEDA made it.
    #[serde(default)]
    keda: bool,
    /// Whether a release declares it, or what made it.
    #[serde(default)]
    declared: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { edits: EditsMode::Deny, drift: DriftMode::Repair }
    }
}

/// The suites of a file; `None` where it holds something else.
///
/// # Errors
/// The file cannot be read, or a suite has an unknown field or value.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Suite>> {
    let text = policy_files::text(path)?;
    if !text.contains("PolicyTest") {
        return Ok(Vec::new());
    }
    let cannot_read = || format!("cannot read {} as PolicyTest", path.display());
    let parsed = manifest::parse(&text);
    if let Some(skipped) = parsed.skipped.first() {
        let message = format!("document {}: {}", skipped.index + 1, skipped.reason);
        return Err(anyhow::anyhow!(message)).with_context(cannot_read);
    }
    let is_suite = |document: &Value| document.get("kind").and_then(Value::as_str) == Some("PolicyTest");
    let documents = parsed.objects.into_iter().filter(is_suite);
    let suites = documents.map(|document| {
        let Document { metadata: Metadata { name }, spec, .. } =
            typed(document).map_err(|flaw| anyhow::anyhow!("{flaw}"))?;
        Ok(Suite { name, spec })
    });
    suites.collect::<anyhow::Result<_>>().with_context(cannot_read)
}

/// The default of an autoscaler's `minReplicas`.
fn one() -> i32 {
    1
}
