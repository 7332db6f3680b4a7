//! The facts about a release and its policy in an explanation.
//!
//! Entry points: [`ReleaseFacts`], [`PolicyFacts`]. Invariant: values only; nothing is read here.

use jiff::Timestamp;
use serde::Serialize;

use super::super::advice;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;
use kubemoor_policy::{Policy, Source};

/// What is known of the release that declares the object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseFacts {
    #[serde(flatten)]
    pub release: ReleaseId,
    pub revision: u64,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// The chart that the revision was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
    /// What its record's state means for edits.
    pub means: &'static str,
}

/// What policies say of the release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyFacts {
    /// The policies that match.
    pub matched: Vec<String>,
    /// `None`: the flag of the guard holds.
    pub edits: Option<String>,
    pub drift: Option<String>,
}

impl ReleaseFacts {
    pub(super) fn of(release: &Release, policy: &Policy, now: Timestamp) -> Self {
        Self {
            release: release.id.clone(),
            revision: release.state.revision,
            status: release.state.status.to_string(),
            invalid: release.invalid.as_ref().map(|invalid| invalid.reason.clone()),
            chart: release.state.chart.as_ref().map(ToString::to_string),
            means: advice::means(release, policy.operation_timeout, now),
        }
    }
}

impl PolicyFacts {
    pub(super) fn of(policy: &Policy) -> Self {
        let by_policy = |source: &Source, value: String| match source {
            Source::Default => None,
            Source::Policy(name) => Some(format!("{value} (policy {name})")),
        };
        Self {
            matched: policy.matched().map(str::to_owned).collect(),
            edits: by_policy(&policy.sources.edits, format!("{:?}", policy.edits)),
            drift: by_policy(&policy.sources.drift, format!("{:?}", policy.drift)),
        }
    }
}
