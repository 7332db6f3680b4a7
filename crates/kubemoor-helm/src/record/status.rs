//! The status of a release, as Helm writes it.
//!
//! Entry point: [`Status`]. Invariant: a text that Helm does not write is no status.

use std::fmt;
use std::str::FromStr;

/// Helm's status of a revision. Only the latest revision's matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Helm's own `unknown`, and every word that Helm does not use.
    Unknown,
    /// The revision is what the cluster should hold.
    Deployed,
    /// The release was uninstalled with its history kept.
    Uninstalled,
    /// A later revision took the place of this one.
    Superseded,
    /// The operation failed; the cluster may hold a part of it.
    Failed,
    /// An uninstallation is under way.
    Uninstalling,
    /// An installation is under way.
    PendingInstall,
    /// An upgrade is under way.
    PendingUpgrade,
    /// A rollback is under way.
    PendingRollback,
}

impl Status {
    /// Whether an install, upgrade or rollback is in progress by the rules of Helm's own lock: `uninstalling`
    /// is not pending.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }

    /// The status in Helm's words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }
}

impl FromStr for Status {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "deployed" => Self::Deployed,
            "uninstalled" => Self::Uninstalled,
            "superseded" => Self::Superseded,
            "failed" => Self::Failed,
            "uninstalling" => Self::Uninstalling,
            "pending-install" => Self::PendingInstall,
            "pending-upgrade" => Self::PendingUpgrade,
            "pending-rollback" => Self::PendingRollback,
            _ => Self::Unknown,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
