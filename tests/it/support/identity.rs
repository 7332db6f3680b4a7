//! Who the tests are to the API server. Each identity is a line of its token file.

use std::fmt::Write as _;

/// A user of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// In `system:masters`: what tests prepare and look at things with.
    Admin,
    /// A person with every right by RBAC: whom the guard is for.
    Alice,
    /// Another person with every right.
    Bob,
    /// Runs Helm, with every right.
    Deployer,
    /// The guard's service account, with the rights that `deploy/` gives it and no other.
    Guard,
    /// Deletes the contents of terminating namespaces.
    NamespaceController,
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Scales workloads through the `scale` subresource.
    Autoscaler,
    /// The controller manager itself.
    ControllerManager,
}

impl Identity {
    pub(crate) const ALL: [Self; 9] = [
        Self::Admin,
        Self::Alice,
        Self::Bob,
        Self::Deployer,
        Self::Guard,
        Self::NamespaceController,
        Self::GarbageCollector,
        Self::Autoscaler,
        Self::ControllerManager,
    ];

    /// The identities that may do everything because a ClusterRoleBinding says so.
    pub(crate) const PRIVILEGED: [Self; 3] = [Self::Alice, Self::Bob, Self::Deployer];

    /// The user's name as the API server knows it.
    pub(crate) fn user(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Deployer => "deployer",
            Self::Guard => "system:serviceaccount:kubemoor-system:kubemoor",
            Self::NamespaceController => "system:serviceaccount:kube-system:namespace-controller",
            Self::GarbageCollector => "system:serviceaccount:kube-system:generic-garbage-collector",
            Self::Autoscaler => "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
            Self::ControllerManager => "system:kube-controller-manager",
        }
    }

    /// The bearer token; it also names the identity's files.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Deployer => "deployer",
            Self::Guard => "guard",
            Self::NamespaceController => "namespace-controller",
            Self::GarbageCollector => "generic-garbage-collector",
            Self::Autoscaler => "horizontal-pod-autoscaler",
            Self::ControllerManager => "controller-manager",
        }
    }

    fn groups(self) -> &'static [&'static str] {
        match self {
            Self::Admin => &["system:masters"],
            Self::Alice | Self::Bob => &["people"],
            Self::Deployer => &["automation"],
            Self::Guard => &["system:serviceaccounts", "system:serviceaccounts:kubemoor-system"],
            Self::NamespaceController | Self::GarbageCollector | Self::Autoscaler => {
                &["system:serviceaccounts", "system:serviceaccounts:kube-system"]
            }
            Self::ControllerManager => &[],
        }
    }
}

/// The API server's token file: `token,user,uid,"group,group"`.
pub(super) fn token_file() -> String {
    let mut lines = String::new();
    for identity in Identity::ALL {
        let (token, user, groups) = (identity.token(), identity.user(), identity.groups().join(","));
        let groups = if groups.is_empty() { groups } else { format!(",\"{groups}\"") };
        writeln!(lines, "{token},{user},{token}{groups}").unwrap();
    }
    lines
}
