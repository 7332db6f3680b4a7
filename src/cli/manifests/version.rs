//! The version of a cluster, as far as manifests depend on it.
//!
//! Entry points: [`KubeVersion`] as the value of a flag, [`KubeVersion::budget`]. Invariant: for the version of a
//! cluster the text is what the chart renders there (`deploy/chart/templates/availability.yaml`).

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Major and minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KubeVersion(u32, u32);

/// The field that a budget has since 1.27, as the rendered file spells it.
const EVICTION: &str = "  # A guard that is not ready keeps no node from being drained.\n  \
                        unhealthyPodEvictionPolicy: AlwaysAllow\n";

impl KubeVersion {
    /// The version that the rendered files are for, and every later one.
    pub(super) const CURRENT: Self = Self(1, 27);

    /// The PodDisruptionBudget for this version, from the one for [`KubeVersion::CURRENT`].
    pub(super) fn budget(self, current: &str) -> String {
        let mut text = current.to_owned();
        if self < Self(1, 27) {
            text = text.replace(EVICTION, "");
        }
        if self < Self(1, 21) {
            text = text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n");
        }
        text
    }
}

impl FromStr for KubeVersion {
    type Err = &'static str;

    /// Takes what `kubectl version` prints, too: `v1.20.2`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let mut parts = numbers.split('.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self(major, minor)),
            _ => Err("a version is MAJOR.MINOR, such as 1.20"),
        }
    }
}

impl Display for KubeVersion {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.0, self.1)
    }
}
