//! Plain values that every other module uses: objects, releases, users and operations.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;

pub mod text;

/// The build of this program. `Makefile` and `deploy/image/build` pass commit and compiler as environment variables; a
/// build script would need the Git repository, which `cargo install` does not have.
pub mod build {
    pub const VERSION: &str = env!("CARGO_PKG_VERSION");

    pub fn commit() -> Option<&'static str> {
        option_env!("KUBEMOOR_COMMIT").filter(|commit| !commit.is_empty())
    }

    pub fn compiler() -> Option<&'static str> {
        option_env!("KUBEMOOR_RUSTC").filter(|compiler| !compiler.is_empty())
    }
}

/// The field manager of the arbiter's dry runs. The webhook does not judge a dry run under this name.
pub const PROBE_MANAGER: &str = "kubemoor-probe";

/// Helm's label on every object that it writes, and its value.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "Helm");

/// Helm's annotation that names the release which wrote an object.
pub const RELEASE_NAME: &str = "meta.helm.sh/release-name";

/// Helm's annotation that names the namespace of that release.
pub const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";

/// The fields that tell Helm and the guard to which release an object belongs.
pub const HELM_MARKS: [[&str; 3]; 3] = [
    ["metadata", "labels", MANAGED_BY.0],
    ["metadata", "annotations", RELEASE_NAME],
    ["metadata", "annotations", RELEASE_NAMESPACE],
];

/// The annotations that pause KEDA's scaling of a workload: entirely, at a fixed number of replicas, down, or up.
pub const PAUSED: &str = "autoscaling.keda.sh/paused";
pub const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
pub const PAUSED_SCALE_IN: &str = "autoscaling.keda.sh/paused-scale-in";
pub const PAUSED_SCALE_OUT: &str = "autoscaling.keda.sh/paused-scale-out";

/// Helm's annotation that keeps an object when its release drops it.
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The annotation that lists the allowed changes of an object: paths separated by commas, `*` or `delete`.
pub const ALLOW: &str = "kubemoor.dev/allow";

/// The annotation with the time until which they are allowed (RFC 3339).
pub const ALLOW_UNTIL: &str = "kubemoor.dev/allow-until";

pub const ALLOW_REASON: &str = "kubemoor.dev/allow-reason";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// Identifies an object in a cluster, without the API version: all versions of a group serve
/// the same object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct ObjectId {
    /// The API group; empty for the core group.
    pub group: SmolStr,
    /// The kind, such as `Deployment`.
    pub kind: SmolStr,
    /// The namespace; null for cluster-scoped objects.
    pub namespace: Option<SmolStr>,
    /// The name.
    pub name: SmolStr,
}

/// Identifies a release by its namespace and name, as the `meta.helm.sh/*` annotations do. For a
/// record, the namespace is the one that stores it, which differs only if a policy allows that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct ReleaseId {
    /// The release's namespace.
    pub namespace: SmolStr,
    /// The release's name.
    pub name: SmolStr,
}

/// The user who sent a request, as the API server authenticated them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "UserInfo")]
pub struct Actor {
    pub user: String,
    pub groups: Vec<String>,
    /// The user's uid; empty without one.
    pub uid: String,
    /// The authenticator's extra attributes, such as a token's scopes. Every access check for this user needs them.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A user as the API server serializes them. Lists may be null, because Go serializes nil slices as null.
#[derive(Deserialize)]
struct UserInfo {
    username: Option<String>,
    groups: Option<Vec<String>>,
    uid: Option<String>,
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl From<UserInfo> for Actor {
    fn from(user: UserInfo) -> Self {
        let listed = |(key, values): (String, Option<Vec<String>>)| (key, values.unwrap_or_default());
        Self {
            user: user.username.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            extra: user.extra.into_iter().flatten().map(listed).collect(),
        }
    }
}

/// The operation of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
}

/// The range in which an autoscaler may scale one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autoscaler {
    pub minimum: i32,
    pub maximum: i32,
    /// Whether KEDA created the autoscaler: its operator scales an idle workload to zero, below the minimum, and back.
    pub by_keda: bool,
    /// The releases that declare the autoscaler, or the object that it was created from.
    pub declared_by: Vec<ReleaseId>,
}

/// How to answer a change that causes drift, from lenient to strict.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    clap::ValueEnum,
)]
#[value(rename_all = "PascalCase")]
pub enum EditsMode {
    /// The change passes and is not recorded.
    Allow,
    /// The change passes and is recorded.
    Record,
    /// The change passes and is recorded, and the user gets a warning.
    Warn,
    /// Fields that would drift are reverted, the rest of the change passes, and the user
    /// gets a warning. A change that would only cause drift is denied.
    Revert,
    /// The change is denied and recorded.
    Deny,
}

/// How to treat drift in the cluster.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema, clap::ValueEnum,
)]
#[value(rename_all = "PascalCase")]
pub enum DriftMode {
    /// The guard does not look for drift.
    Ignore,
    /// Drift is logged, counted and shown in the status.
    Report,
    /// Drift is repaired, logged and counted.
    Repair,
}

/// One field that the API server rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable reason, such as `FieldValueInvalid`.
    pub reason: String,
    pub field: String,
    /// The API server's message. Withheld where it could quote a Secret.
    pub message: String,
}

impl Operation {
    pub const ALL: [Self; 3] = [Self::Create, Self::Update, Self::Delete];

    /// The operation's name, as in an AdmissionReview.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

impl Autoscaler {
    /// Whether the autoscaler may set this number of replicas. KEDA also scales an idle workload to zero.
    pub fn can_set(&self, replicas: i64) -> bool {
        let minimum = if self.by_keda { 0 } else { self.minimum };
        (i64::from(minimum)..=i64::from(self.maximum)).contains(&replicas)
    }

    /// Whether the autoscaler moves a workload with this many replicas into its range even without a metric. Zero
    /// replicas disable an autoscaler whose range excludes zero.
    pub fn brings_in(&self, replicas: i64) -> bool {
        replicas != 0 || self.can_set(0)
    }
}

impl Gvk {
    /// Splits `apiVersion` (`v1`, `apps/v1`) into group and version.
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// The `apiVersion` of a manifest: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl From<&ReleaseId> for Arc<ReleaseId> {
    fn from(release: &ReleaseId) -> Self {
        Self::new(release.clone())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{} in namespace {namespace}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

impl ObjectId {
    pub fn namespaced(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self { group: group.into(), kind: kind.into(), namespace: Some(namespace.into()), name: name.into() }
    }

    pub fn cluster_scoped(group: &str, kind: &str, name: &str) -> Self {
        Self { group: group.into(), kind: kind.into(), namespace: None, name: name.into() }
    }
}

impl ReleaseId {
    /// The release that Helm's annotations name, if any; `text` returns the value of an annotation.
    pub fn from_annotations(text: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self { namespace: text(RELEASE_NAMESPACE)?.into(), name: text(RELEASE_NAME)?.into() })
    }

    /// Like [`Self::from_annotations`], for an object as JSON.
    pub fn named_by(object: &Value) -> Option<Self> {
        let annotations = object.get("metadata")?.get("annotations")?;
        Self::from_annotations(|key| annotations.get(key)?.as_str().map(str::to_owned))
    }
}

impl fmt::Display for ReleaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Actor {
    pub fn is_service_account(&self, namespace: &str, name: &str) -> bool {
        self.user
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
            .is_some_and(|(ns, account)| ns == namespace && account == name)
    }
}

/// Whether `text` can name a namespace or a Service (RFC 1123 label).
pub fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 63
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().next_back().is_some_and(inner)
}

/// `KIND/NAME` or `KIND.GROUP/NAME`. The kind may be in any case, a plural or a short name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    pub kind: String,
    pub group: Option<String>,
    pub name: String,
}

impl FromStr for NamedObject {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "an object must be KIND/NAME, such as deployment/web, or KIND.GROUP/NAME";
        let (kind, name) = text.split_once('/').ok_or(form)?;
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (kind, None),
        };
        if kind.is_empty() || name.is_empty() || name.contains('/') {
            return Err(form);
        }
        Ok(Self { kind: kind.to_lowercase(), group, name: name.to_owned() })
    }
}

impl fmt::Display for NamedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, group, name } = self;
        match group {
            Some(group) => write!(f, "{kind}.{group}/{name}"),
            None => write!(f, "{kind}/{name}"),
        }
    }
}

#[derive(Debug)]
pub struct Sweep {
    least: usize,
    at: usize,
}

impl Sweep {
    /// A sweep of a collection that is never due below `least` values.
    pub const fn above(least: usize) -> Self {
        Self { least, at: least }
    }

    /// Whether to sweep a collection of `values` values before another one is added.
    pub fn is_due(&self, values: usize) -> bool {
        values >= self.at
    }

    /// Records that a sweep left `values` values.
    pub fn note_left(&mut self, values: usize) {
        self.at = self.least.max(values.saturating_mul(2));
    }
}

#[cfg(test)]
mod tests;
