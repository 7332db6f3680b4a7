//! Failures between a user and a cluster, as sentences that say what failed and what to do.

use kubemoor_cluster::client::allowances::CreateAllowanceError;
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::{ClusterConnection, ConnectError};
use kubemoor_declare::model::ReleaseId;
use kubemoor_ledger::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("cannot {doing}: {}", reason(.url, .error))]
    Call {
        /// The attempted action; completes "cannot …".
        doing: String,
        url: String,
        error: Box<ClusterError>,
    },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Records(#[from] ClusterError),
    #[error(transparent)]
    Make(Box<CreateAllowanceError>),
    #[error(transparent)]
    Ledger(Box<StoreError>),
    #[error("{0}")]
    Forbidden(String),
    /// Something that the user named does not exist or is not valid.
    #[error("{0}")]
    InvalidInput(String),
}

impl From<CreateAllowanceError> for InspectError {
    fn from(error: CreateAllowanceError) -> Self {
        Self::Make(Box::new(error))
    }
}

impl From<StoreError> for InspectError {
    fn from(error: StoreError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

impl InspectError {
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Call { error, .. } if error.is_unauthorized())
    }

    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Call { error, .. } => error.is_forbidden(),
            Self::Forbidden(_) => true,
            _ => false,
        }
    }
}

/// The failure of a call; `doing` completes "cannot …".
pub fn failed(connection: &ClusterConnection, doing: &str, error: ClusterError) -> InspectError {
    InspectError::Call { doing: doing.to_owned(), url: connection.url.clone(), error: Box::new(error) }
}

pub(crate) fn forbidden(message: &str) -> String {
    format!("no permission: {message}: ask for a role with this right (docs/cli.md)")
}

pub fn describe_release(release: &ReleaseId) -> String {
    format!("{} in namespace {}", release.name, release.namespace)
}

/// The error for a release without records; `unread` is the reason if the policies could not be read.
pub(crate) fn unknown_release(release: &ReleaseId, unread: Option<&str>) -> InspectError {
    InspectError::InvalidInput(match unread {
        None => format!(
            "there is no release {}: `helm list --all -n {}` lists the existing ones",
            describe_release(release),
            release.namespace
        ),
        Some(unread) => format!(
            "release {} has no records there, and where else they may be is not known: {unread}",
            describe_release(release)
        ),
    })
}

fn reason(url: &str, error: &ClusterError) -> String {
    match error {
        ClusterError::Refused { code: 401, .. } => {
            format!("{url} does not accept these credentials: log in again, or choose others with --context")
        }
        ClusterError::Refused { code: 403, message, .. } => forbidden(message),
        ClusterError::Unreachable { reason } | ClusterError::Untrusted { reason } => {
            format!("{url} cannot be reached: {reason}: check --context and the network")
        }
        ClusterError::Late { within } => {
            format!("{url} did not answer within {} s: try again", within.as_secs())
        }
        _ => error.to_string(),
    }
}
