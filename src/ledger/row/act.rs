//! Acts of administrators.
//!
//! Entry point: [`Act`].

/// What somebody told the guard to do, or the guard did to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To repair a release now.
    Reconcile,
    /// To repair a release no more.
    Suspend,
    /// To repair a release again.
    Resume,
    /// To judge and repair nothing.
    Open,
    /// To judge and repair again.
    Close,
    /// To follow a new policy.
    CreatePolicy,
    /// To follow a policy that says something else.
    ChangePolicy,
    /// To follow a policy no more.
    DeletePolicy,
    /// Nothing: somebody else changed the webhook configuration that it keeps.
    ChangeWebhooks,
    /// Nothing: somebody else deleted it.
    DeleteWebhooks,
    /// Nothing: the guard itself renewed the certificate that its replicas share.
    RenewCertificate,
}

impl Act {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Reconcile => "Reconcile",
            Self::Suspend => "Suspend",
            Self::Resume => "Resume",
            Self::Open => "Open",
            Self::Close => "Close",
            Self::CreatePolicy => "CreatePolicy",
            Self::ChangePolicy => "ChangePolicy",
            Self::DeletePolicy => "DeletePolicy",
            Self::ChangeWebhooks => "ChangeWebhooks",
            Self::DeleteWebhooks => "DeleteWebhooks",
            Self::RenewCertificate => "RenewCertificate",
        }
    }
}
