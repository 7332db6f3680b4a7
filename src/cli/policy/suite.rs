//! A file of cases for `kubemoor policy test`. Each case describes a change, which becomes the AdmissionReview that the
//! API server would send and is judged as by the webhook, without an API server. A file with an unknown field or value
//! fails; no case is skipped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::check::{self, CheckReport};
use kubemoor_cluster::mirror::directory::{self, ReleaseFile};
use kubemoor_declare::catalog::Catalog;
use kubemoor_declare::model::{Actor, Autoscaler, DriftMode, EditsMode, Gvk, ObjectId, Operation, ReleaseId};
use kubemoor_guard::webhook::review::AdmissionRequest;
use kubemoor_helm::manifest;
use kubemoor_helm::record::Record;
use kubemoor_helm::release::{self, Release, gvk};
use kubemoor_inspect::reading::OPERATION_TIMEOUT;
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::Allowance;
use kubemoor_policy::compile::{CompiledPolicy, typed};
use kubemoor_policy::flaw;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_policy::resource::{DriftAllowance, DriftAllowanceSpec};

/// Cases that share a release and policies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub(super) metadata: SuiteMetadata,
    pub(super) spec: SuiteSpec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteMetadata {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SuiteSpec {
    /// Policy files, relative to this file's directory.
    #[serde(default)]
    policies: Vec<PathBuf>,
    /// The modes that apply unless a policy sets them.
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    cluster_labels: Labels,
    release: ReleaseSpec,
    #[serde(default)]
    allowances: Vec<DriftAllowanceSpec>,
    #[serde(default)]
    autoscalers: Vec<SuiteAutoscaler>,
    pub(super) cases: Vec<SuiteCase>,
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
    #[serde(default)]
    namespace_labels: Labels,
    /// What `helm get manifest` prints.
    manifest: Option<String>,
    /// A file with such a manifest, or with an exported record.
    file: Option<PathBuf>,
}

/// The replica range that an autoscaler may set on a workload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SuiteAutoscaler {
    /// The workload: `Deployment/web`.
    object: String,
    /// Its namespace, where several objects have this kind and name.
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default = "one")]
    min_replicas: i32,
    max_replicas: i32,
    #[serde(default)]
    keda: bool,
    /// Whether the release declares the autoscaler, or the object that created it.
    #[serde(default)]
    declared: bool,
}

/// One change and its expected verdict.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SuiteCase {
    pub(super) name: String,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    /// The time of the change; defaults to now.
    #[serde(default)]
    time: Option<Timestamp>,
    /// A file with an AdmissionReview, relative to this file's directory.
    #[serde(default)]
    review: Option<PathBuf>,
    #[serde(flatten)]
    change: CaseChange,
    /// The expected outcome: Allow, Record, Warn, Revert or Deny.
    expect: String,
    #[serde(default)]
    reason: Option<String>,
    /// The expected fields that drift.
    #[serde(default)]
    fields: Option<Vec<String>>,
    /// The expected outcome without any policy or allowance.
    #[serde(default)]
    without: Option<String>,
}

pub(super) struct SuiteFixture {
    folder: PathBuf,
    release: Release,
    record: Record,
    with: PolicyResolver,
    without: PolicyResolver,
    allowances: Vec<Arc<Allowance>>,
    autoscalers: Vec<(ObjectId, Autoscaler)>,
    named: Vec<String>,
    doubts: Vec<String>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { edits: EditsMode::Deny, drift: DriftMode::Repair }
    }
}

/// The suites of a file; empty if it holds something else.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Suite>> {
    let text = check::read_text(path)?;
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
    let suites = documents.map(|document| typed(document).map_err(|flaw| anyhow::anyhow!("{flaw}")));
    suites.collect::<anyhow::Result<_>>().with_context(cannot_read)
}

fn one() -> i32 {
    1
}

impl Suite {
    pub(super) fn prepare(&self, path: &Path) -> anyhow::Result<SuiteFixture> {
        let SuiteSpec { policies, defaults, cluster_labels, release, allowances, autoscalers, .. } =
            &self.spec;
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let accepted =
            check::read_policy_files(&policies.iter().map(|file| folder.join(file)).collect::<Vec<_>>())?;
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
            let compiled = Allowance::compile(&resource).map(Arc::new);
            compiled.map_err(|flaws| anyhow::anyhow!("allowances[{index}]: {}", flaw::join(&flaws)))
        });
        let allowances = allowances.collect::<anyhow::Result<_>>()?;
        let ground = SuiteFixture {
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
        let (documents, release) = (ground.documents(), &ground.release.id);
        let autoscalers = autoscalers.iter().enumerate().map(|(index, spec)| {
            spec.scaling(&documents, release).with_context(|| format!("autoscalers[{index}]"))
        });
        Ok(SuiteFixture { autoscalers: autoscalers.collect::<anyhow::Result<_>>()?, ..ground })
    }
}

impl ReleaseSpec {
    fn record(&self, folder: &Path) -> anyhow::Result<Record> {
        let id = ReleaseId { namespace: self.namespace.clone().into(), name: self.name.clone().into() };
        let content = match (&self.manifest, &self.file) {
            (Some(manifest), None) => ReleaseFile::Manifest(manifest.clone()),
            (None, Some(file)) => directory::read(&folder.join(file))
                .with_context(|| format!("cannot read the release {}", folder.join(file).display()))?,
            _ => return Err(anyhow::anyhow!("spec.release needs either a manifest or a file")),
        };
        Ok(content.into_record(&id))
    }
}

impl SuiteAutoscaler {
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
        let (workload, _) = find(object, namespace.as_deref(), documents)?;
        let autoscaler = Autoscaler {
            minimum: *min_replicas,
            maximum: *max_replicas,
            by_keda: *keda,
            declared_by: declared.then(|| release.clone()).into_iter().collect(),
        };
        Ok((workload.clone(), autoscaler))
    }
}

impl SuiteCase {
    /// Judges the case. Returns how the verdict differs from the expected one, or `None` if it does not.
    pub(super) fn judge(&self, ground: &SuiteFixture, now: Timestamp) -> anyhow::Result<Option<String>> {
        let actor = Actor {
            user: self.user.clone().unwrap_or_else(|| "somebody".to_owned()),
            groups: self.groups.clone(),
            ..Actor::default()
        };
        let body = match &self.review {
            Some(file) => check::read_text(&ground.folder.join(file))?,
            None => self.change.review(&actor, &ground.documents())?.to_string(),
        };
        let request = AdmissionRequest::parse(body.as_bytes()).context("the review cannot be read")?;
        let now = self.time.unwrap_or(now);
        let judge = |resolver, allowances| {
            check::judge(&request, ground.release.clone(), resolver, allowances, &ground.autoscalers, now)
        };
        let report = judge(&ground.with, ground.allowances.clone())?;
        if let Some(without) = &self.without {
            let bare = judge(&ground.without, Vec::new())?;
            if bare.verdict.outcome.as_str() != without {
                return Ok(Some(format!("without policies expected {without}, got {}", describe(&bare))));
            }
        }
        let reason = self.reason.as_ref().is_none_or(|reason| report.verdict.reason.as_str() == reason);
        let fields = self.fields.as_ref().is_none_or(|fields| *fields == drifting(&report));
        if report.verdict.outcome.as_str() == self.expect && reason && fields {
            return Ok(None);
        }
        let mut expected = self.expect.clone();
        if let Some(reason) = &self.reason {
            expected = format!("{expected} ({reason})");
        }
        if let Some(fields) = &self.fields {
            expected = format!("{expected} at [{}]", fields.join(", "));
        }
        Ok(Some(format!("expected {expected}, got {}", describe(&report))))
    }
}

impl SuiteFixture {
    /// The warnings: ties, policies that do not match the release, and unknown kinds and fields.
    pub(super) fn fixture_warnings(&self) -> Vec<String> {
        let (policy, release) = (self.with.policy(&self.release.id), &self.release.id);
        let matched: Vec<&str> = policy.matched().collect();
        let idle = self.named.iter().filter(|name| !matched.contains(&name.as_str()));
        let idle = idle.map(|name| format!("policy {name} does not match release {release}"));
        let ties = policy.ties().into_iter().map(|tie| tie.to_string());
        ties.chain(idle).chain(self.doubts.iter().cloned()).collect()
    }

    /// The release's manifest objects, as Helm sends them.
    fn documents(&self) -> Vec<(ObjectId, Value)> {
        release::documents(&self.release.id, &self.record.manifest, &Catalog::with_core()).0
    }
}

fn drifting(report: &CheckReport) -> Vec<String> {
    let fields = report.verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
    fields.map(|finding| finding.path.to_string()).collect()
}

fn describe(report: &CheckReport) -> String {
    let verdict = &report.verdict;
    let fields = drifting(report);
    let at = if fields.is_empty() { String::new() } else { format!(" at [{}]", fields.join(", ")) };
    format!("{} ({}){at}", verdict.outcome.as_str(), verdict.reason.as_str())
}

/// Warnings about the kinds and fields of a policy that no object has.
fn doubts(policy: &CompiledPolicy) -> Vec<String> {
    let doubts = policy.misspelled.iter().chain(&policy.unknown_fields);
    doubts.map(|(field, what)| format!("policy {}: {field}: {what}", policy.name)).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CaseChange {
    /// The object: `Deployment/web`.
    object: Option<String>,
    /// Its namespace, where several objects have this kind and name.
    namespace: Option<String>,
    /// The live fields that the manifest does not declare, as a merge patch.
    live: Option<Value>,
    merge: Option<Value>,
    json: Option<Patch>,
    /// The replicas that are requested through the `scale` subresource.
    scale: Option<u32>,
    #[serde(default)]
    delete: bool,
    /// The object is created, with this merge patch applied to its manifest.
    create: Option<Value>,
}

impl CaseChange {
    pub(super) fn review(&self, actor: &Actor, documents: &[(ObjectId, Value)]) -> anyhow::Result<Value> {
        let name =
            self.object.as_deref().context("a case needs an object, such as Deployment/web, or a review")?;
        let (object, document) = find(name, self.namespace.as_deref(), documents)?;
        let operation = self.operation()?;
        let gvk = gvk(document);
        let catalog = Catalog::with_core();
        let facts = catalog.facts(&gvk.group, &gvk.kind);
        let plural =
            facts.map_or_else(|| format!("{}s", gvk.kind.to_lowercase()), |facts| facts.plural.clone());
        let (old, new) = self.objects(document)?;
        let (kind, subresource, old, new) = match self.scale {
            None => (gvk.clone(), None, old, new),
            Some(replicas) => {
                let path = facts.and_then(|facts| facts.scale_replicas_path.as_ref());
                let path = path.with_context(|| format!("{} has no scale", gvk.kind))?;
                let now = path.get(&old).first().map_or(json!(1), |now| (*now).clone());
                let scale = |replicas: Value| {
                    json!({
                        "apiVersion": "autoscaling/v1", "kind": "Scale",
                        "metadata": {"name": object.name, "namespace": object.namespace},
                        "spec": {"replicas": replicas},
                    })
                };
                let kind = Gvk::from_api_version("autoscaling/v1", "Scale");
                (kind, Some("scale"), scale(now), scale(replicas.into()))
            }
        };
        let new = (operation != Operation::Delete).then_some(new);
        let old = (operation != Operation::Create).then_some(old);
        let Actor { user, groups, uid, extra } = actor;
        Ok(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "test", "operation": operation, "name": object.name, "namespace": object.namespace,
                "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
                "resource": {"group": gvk.group, "version": gvk.version, "resource": plural},
                "subResource": subresource,
                "userInfo": {"username": user, "groups": groups, "uid": uid, "extra": extra},
                "object": new, "oldObject": old,
            },
        }))
    }

    /// The operation; a case has exactly one.
    fn operation(&self) -> anyhow::Result<Operation> {
        let updates = [self.merge.is_some(), self.json.is_some(), self.scale.is_some()];
        let updates = updates.into_iter().filter(|given| *given).count();
        match (updates, self.delete, &self.create) {
            (1, false, None) => Ok(Operation::Update),
            (0, true, None) => Ok(Operation::Delete),
            (0, false, Some(_)) => Ok(Operation::Create),
            _ => Err(anyhow::anyhow!("a case needs exactly one of merge, json, scale, delete and create")),
        }
    }

    fn objects(&self, document: &Value) -> anyhow::Result<(Value, Value)> {
        let mut old = document.clone();
        if let Some(live) = &self.live {
            json_patch::merge(&mut old, live);
        }
        let mut new = old.clone();
        if let Some(patch) = self.merge.as_ref().or(self.create.as_ref()) {
            json_patch::merge(&mut new, patch);
        }
        if let Some(patch) = &self.json {
            json_patch::patch(&mut new, patch).context("the JSON Patch does not apply")?;
        }
        Ok((old, new))
    }
}

/// The object of the release that `name` names, such as `Deployment/web`.
pub(super) fn find<'d>(
    name: &str,
    namespace: Option<&str>,
    documents: &'d [(ObjectId, Value)],
) -> anyhow::Result<(&'d ObjectId, &'d Value)> {
    let named = documents.iter().filter(|(object, _)| {
        name.split_once('/') == Some((object.kind.as_str(), object.name.as_str()))
            && (namespace.is_none() || namespace == object.namespace.as_deref())
    });
    match named.collect::<Vec<_>>().as_slice() {
        [(object, document)] => Ok((object, document)),
        [] => Err(anyhow::anyhow!("the release declares no {name}")),
        _ => Err(anyhow::anyhow!("the release declares {name} in several namespaces: name one")),
    }
}
