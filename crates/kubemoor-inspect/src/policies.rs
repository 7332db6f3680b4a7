//! The policies of a cluster. A policy is in force only if the guard has accepted its current generation.

use serde::Serialize;
use serde_json::Value;

use super::failure::{InspectError, failed};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::pages::Pages;
use kubemoor_cluster::client::resource::ApiResource;
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::compile as from_text;
use kubemoor_policy::lint::{LintFinding, lint, unmatched_globs};
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::resource::DriftPolicy;

/// One policy.
#[derive(Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedPolicy {
    pub name: String,
    pub priority: i64,
    pub edits: Option<String>,
    pub drift: Option<String>,
    /// `True`, `False`, or `Unknown` if the guard has not checked this generation yet.
    pub accepted: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The message of its Accepted condition, even if nothing is wrong.
    #[serde(skip)]
    pub told: String,
    /// Globs of the releases that it applies to; empty for all.
    pub releases: Vec<String>,
    /// Globs of the namespaces of these releases; empty for all.
    pub namespaces: Vec<String>,
}

/// The policies with these labels, in order of precedence.
pub async fn read(
    connection: &ClusterConnection,
    labels: Option<&str>,
) -> Result<Vec<ListedPolicy>, InspectError> {
    let found = documents(connection, labels).await?;
    let mut rows: Vec<_> = found.iter().map(ListedPolicy::from_resource).collect();
    rows.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
    Ok(rows)
}

/// The rules without effect in the accepted policies; also checked against the releases, if these are known.
pub async fn findings(
    connection: &ClusterConnection,
    releases: Option<&[ReleaseId]>,
) -> Result<Vec<LintFinding>, InspectError> {
    let accepted = |mut document: Value| -> Option<DriftPolicy> {
        document.as_object_mut()?.remove("status");
        from_text::policy(document.clone()).ok()?;
        from_text::typed(document).ok()
    };
    let policies: Vec<_> = documents(connection, None).await?.into_iter().filter_map(accepted).collect();
    let mut findings = lint(&policies);
    findings.extend(releases.into_iter().flat_map(|releases| unmatched_globs(&policies, releases)));
    Ok(findings)
}

/// All namespaces with their labels, which policies select by.
pub async fn namespaces(client: &kube::Client) -> Result<Vec<(String, Labels)>, ClusterError> {
    let resource = ApiResource::new("", "v1", "Namespace", "namespaces");
    let found = Pages::metadata(client, &resource, None)?.all().await?;
    Ok(found.into_iter().map(|it| (it.metadata.name, it.metadata.labels.unwrap_or_default())).collect())
}

/// The policies as the API server stores them.
pub async fn documents(
    connection: &ClusterConnection,
    labels: Option<&str>,
) -> Result<Vec<Value>, InspectError> {
    match guarded::list_policies(&connection.client, labels).await {
        Ok(found) => Ok(found),
        Err(error) if error.is_not_found() => {
            let undefined = "the cluster has no CustomResourceDefinition of DriftPolicy: `kubemoor manifests \
                             crds` prints it";
            Err(InspectError::InvalidInput(undefined.to_owned()))
        }
        Err(error) => Err(failed(connection, "list the policies", error)),
    }
}

impl ListedPolicy {
    /// A deleted policy, with its last known content.
    pub fn deleted(policy: &Value) -> Self {
        let told = "the policy was deleted and has no effect".to_owned();
        let (accepted, reason) = ("False".to_owned(), "Deleted".to_owned());
        Self { accepted, reason, message: told.clone(), told, ..Self::from_resource(policy) }
    }

    pub fn from_resource(policy: &Value) -> Self {
        let text = |pointer: &str| policy.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let texts = |pointer: &str| {
            let list = policy.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let conditions = policy.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let is_accepted =
            |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some("Accepted");
        let generation = policy.pointer("/metadata/generation").and_then(Value::as_i64);
        let judged = policy.pointer("/status/observedGeneration").and_then(Value::as_i64);
        let condition = conditions.into_iter().find(is_accepted).filter(|_| judged == generation);
        let of = |key: &str| condition.and_then(|it| it.get(key)?.as_str()).unwrap_or_default().to_owned();
        let accepted = condition.map_or_else(|| "Unknown".to_owned(), |_| of("status"));
        Self {
            name: text("/metadata/name").unwrap_or_default(),
            priority: policy.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or_default(),
            edits: text("/spec/edits"),
            drift: text("/spec/drift"),
            message: if accepted == "False" { of("message") } else { String::new() },
            told: of("message"),
            accepted,
            reason: of("reason"),
            releases: texts("/spec/releases/names"),
            namespaces: texts("/spec/releases/namespaces"),
        }
    }
}
