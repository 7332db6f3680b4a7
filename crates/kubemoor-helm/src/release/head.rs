//! One record as its metadata shows it.
//!
//! Entry point: [`Head`].

use jiff::Timestamp;

use crate::record::Status;

/// The prefix of the field managers of Terraform's provider for Helm, in every version.
const TERRAFORM: &str = "terraform-provider-helm";

/// The field manager of Flux's controller for Helm.
const FLUX: &str = "helm-controller";

/// The prefix of the field managers of Argo CD: `argocd-controller`, `argocd-application-controller`.
const ARGO: &str = "argocd-";

/// One record as its metadata shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The name of the Secret or ConfigMap.
    pub secret: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// The label `version`.
    pub revision: u64,
    /// The label `status`.
    pub status: Status,
    /// Its creationTimestamp.
    pub created: Timestamp,
    /// When it was last written: the newest time in its managedFields.
    pub touched: Timestamp,
    /// How the guard first saw the record.
    pub appearance: Appearance,
    /// Which program wrote it.
    pub writer: Writer,
}

/// How the guard first saw a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appearance {
    /// It was there when the guard first listed records.
    Listed,
    /// It appeared while the guard ran, with this status.
    Seen(Status),
}

/// The program that deploys a release, as a field manager of its record or of its objects names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writer {
    /// Terraform's provider for Helm.
    Terraform,
    /// Flux.
    Flux,
    /// Argo CD.
    Argo,
    /// Any other.
    #[default]
    Other,
}

impl Head {
    /// Whether both are the same record in the same version.
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }
}

impl Writer {
    /// The program with this field manager. Helm as a library goes by the name of the program that runs it.
    pub fn of(manager: &str) -> Self {
        match manager {
            FLUX => Self::Flux,
            _ if manager.starts_with(TERRAFORM) => Self::Terraform,
            _ if manager.starts_with(ARGO) => Self::Argo,
            _ => Self::Other,
        }
    }
}
