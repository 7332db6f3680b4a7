//! The shared inputs of a suite's cases: its release, policies and allowances.
//!
//! Entry point: [`Suite::prepare`]. Invariant: a file that cannot be read, or a policy that is not accepted, is an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde_json::Value;

use super::super::super::check::{self, OPERATION_TIMEOUT};
use super::super::super::policy_files;
use super::super::edit;
use super::{AutoscalerSpec, ReleaseSpec, Spec, Suite};
use kubemoor_cluster::mirror::directory::{self, Content};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Autoscaler, ObjectId, ReleaseId};
use kubemoor_helm::record::Record;
use kubemoor_helm::release::{self, Release};
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::resolver::{Policies, PolicyResolver};
use kubemoor_policy::resource::DriftAllowance;

/// The shared inputs of a suite's cases.
pub(in crate::cli::policy) struct Ground {
    pub(super) folder: PathBuf,
    pub(super) release: Release,
    pub(super) record: Record,
    pub(super) with: PolicyResolver,
    pub(super) without: PolicyResolver,
    pub(super) allowances: Vec<Arc<Allowance>>,
    pub(super) autoscalers: Vec<(ObjectId, Autoscaler)>,
    pub(super) named: Vec<String>,
    pub(super) doubts: Vec<String>,
}

impl Suite {
    /// Reads what the suite names.
    ///
    /// # Errors
    /// A file cannot be read, or a policy is not accepted.
    pub(in crate::cli::policy) fn prepare(&self, path: &Path) -> anyhow::Result<Ground> {
        let Spec { policies, defaults, cluster_labels, release, allowances, autoscalers, .. } = &self.spec;
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let accepted =
            policy_files::files(&policies.iter().map(|file| folder.join(file)).collect::<Vec<_>>())?;
        let named = accepted.iter().map(|policy| policy.name.clone()).collect();
        let doubts = accepted.iter().flat_map(|policy| doubts(policy)).collect();
        let record = release.record(&folder)?;
        let assembled = directory::assemble(record.clone(), &Catalog::with_core());
        if let Some(skipped) = assembled.skipped.first() {
            return Err(anyhow::anyhow!("document {} of the release: {}", skipped.index + 1, skipped.reason));
        }
        let defaults = Policy::new(defaults.edits, defaults.drift, OPERATION_TIMEOUT);
        let resolver = |accepted| {
            let policies = Policies::new(defaults.clone(), cluster_labels, accepted);
            check::resolver(policies, &release.namespace, release.namespace_labels.clone())
        };
        let (with, without) = (resolver(accepted), resolver(Vec::new()));
        let allowances = allowances.iter().enumerate().map(|(index, spec)| {
            let mut resource = DriftAllowance::new(&format!("allowances[{index}]"), spec.clone());
            resource.metadata.namespace = Some(release.namespace.clone());
            Allowance::compile(&resource).map(Arc::new).map_err(|flaws| {
                let flaws: Vec<String> = flaws.iter().map(ToString::to_string).collect();
                anyhow::anyhow!("allowances[{index}]: {}", flaws.join("; "))
            })
        });
        let allowances = allowances.collect::<anyhow::Result<_>>()?;
        let ground = Ground {
            folder,
            release: assembled.release,
            record,
            with,
            without,
            allowances,
            autoscalers: Vec::new(),
            named,
            doubts,
        };
        let (documents, release) = (ground.documents(), ground.release());
        let autoscalers = autoscalers.iter().enumerate().map(|(index, spec)| {
            spec.scaling(&documents, release).with_context(|| format!("autoscalers[{index}]"))
        });
        Ok(Ground { autoscalers: autoscalers.collect::<anyhow::Result<_>>()?, ..ground })
    }
}

impl ReleaseSpec {
    fn record(&self, folder: &Path) -> anyhow::Result<Record> {
        let id = ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() };
        let content = match (&self.manifest, &self.file) {
            (Some(manifest), None) => Content::Manifest(manifest.clone()),
            (None, Some(file)) => directory::read(&folder.join(file))
                .with_context(|| format!("cannot read the release {}", folder.join(file).display()))?,
            _ => return Err(anyhow::anyhow!("spec.release has either a manifest or a file")),
        };
        Ok(content.into_record(&id))
    }
}

impl AutoscalerSpec {
    /// The workload among the release's objects, and how far it is scaled.
    fn scaling(
        &self,
        documents: &[(ObjectId, Value)],
        release: &ReleaseId,
    ) -> anyhow::Result<(ObjectId, Autoscaler)> {
        let Self { object, namespace, min_replicas, max_replicas, keda, declared } = self;
        if min_replicas > max_replicas {
            return Err(anyhow::anyhow!(
                "minReplicas {min_replicas} is more than maxReplicas {max_replicas}"
            ));
        }
        let (workload, _) = edit::find(object, namespace.as_deref(), documents)?;
        let autoscaler = Autoscaler {
            minimum: *min_replicas,
            maximum: *max_replicas,
            by_keda: *keda,
            declared_by: declared.then(|| release.clone()).into_iter().collect(),
        };
        Ok((workload.clone(), autoscaler))
    }
}

impl Ground {
    /// The policy of the release.
    pub(in crate::cli::policy) fn policy(&self) -> Arc<Policy> {
        self.with.of(&self.release.id)
    }

    /// The release.
    pub(in crate::cli::policy) fn release(&self) -> &ReleaseId {
        &self.release.id
    }

    /// The policies that do not match the release.
    pub(in crate::cli::policy) fn idle(&self) -> Vec<String> {
        let policy = self.policy();
        let matched: Vec<&str> = policy.matched().collect();
        self.named.iter().filter(|name| !matched.contains(&name.as_str())).cloned().collect()
    }

    /// What policies name and no object has: kinds and fields.
    pub(in crate::cli::policy) fn doubts(&self) -> &[String] {
        &self.doubts
    }

    /// The objects of the release as Helm sends them.
    pub(in crate::cli::policy) fn documents(&self) -> Vec<(ObjectId, Value)> {
        release::documents(&self.release.id, &self.record.manifest, &Catalog::with_core()).0
    }
}

/// The kinds and fields that a policy names and no object has, each as a sentence.
fn doubts(policy: &Compiled) -> Vec<String> {
    let kinds = policy.misspelled.iter().map(|(field, kind, meant)| {
        format!("policy {}: {field}: {kind:?} is no kind of Kubernetes: did you mean {meant}?", policy.name)
    });
    let fields = policy.unknown_fields.iter();
    kinds.chain(fields.map(|(field, what)| format!("policy {}: {field}: {what}", policy.name))).collect()
}
