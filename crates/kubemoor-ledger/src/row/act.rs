//! Acts of administrators.
//!
//! Entry point: [`Act`].

/// An order to the guard, or an action of the guard on itself.
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
    /// No order: another user changed the webhook configuration that the guard maintains.
    ChangeWebhooks,
    /// No order: another user deleted it.
    DeleteWebhooks,
    /// Nothing: the guard serves another certificate, or makes the one that its replicas share.
    RenewCertificate,
    /// To judge other policies in a namespace, by its labels.
    LabelNamespace,
    /// To let an autoscaler set the replicas of a declared workload.
    StartAutoscaling,
    /// To let it set them in another range.
    ChangeAutoscaling,
    /// To guard the replicas again that an autoscaler has set.
    StopAutoscaling,
    /// Nothing: a guard started, with these settings.
    Start,
    /// Nothing: a guard was told to stop, or cannot go on.
    Stop,
    /// Nothing: so much drifts that the guard stopped repairs.
    EngageBrake,
    /// To repair again what the guard had stopped repairing.
    ReleaseBrake,
    /// Nothing: the guard puts repairs of a release on hold.
    HoldRepairs,
}

impl Act {
    /// The act's name, as rows have it.
    pub fn as_str(self) -> &'static str {
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
            Self::LabelNamespace => "LabelNamespace",
            Self::StartAutoscaling => "StartAutoscaling",
            Self::ChangeAutoscaling => "ChangeAutoscaling",
            Self::StopAutoscaling => "StopAutoscaling",
            Self::Start => "Start",
            Self::Stop => "Stop",
            Self::EngageBrake => "EngageBrake",
            Self::ReleaseBrake => "ReleaseBrake",
            Self::HoldRepairs => "HoldRepairs",
        }
    }
}
