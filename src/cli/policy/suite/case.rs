//! One case: a change, the verdict on it, and the expected one.
//!
//! Entry point: [`Case::judge`]. Invariant: judges as the webhook does, without an API server to ask.

use std::path::PathBuf;

use anyhow::Context;
use jiff::Timestamp;
use serde::Deserialize;

use super::super::super::check::{Bench, Report};
use super::super::super::policy_files;
use super::super::edit::Change;
use super::Ground;
use kubemoor_declare::model::Actor;
use kubemoor_guard::webhook::review::Request;

/// One edit and what must become of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::cli::policy) struct Case {
    /// What the case shows.
    pub(in crate::cli::policy) name: String,
    /// The user who makes the change.
    #[serde(default)]
    user: Option<String>,
    /// The editor's groups.
    #[serde(default)]
    groups: Vec<String>,
    /// The time of the change; defaults to now.
    #[serde(default)]
    time: Option<Timestamp>,
    /// A file with an AdmissionReview, from this file's folder.
    #[serde(default)]
    review: Option<PathBuf>,
    /// The edit, where there is no review.
    #[serde(flatten)]
    change: Change,
    /// How the guard answers it: Allow, Record, Warn, Revert or Deny.
    expect: String,
    /// Why, where that is part of the case.
    #[serde(default)]
    reason: Option<String>,
    /// The fields that drift, where they are part of the case.
    #[serde(default)]
    fields: Option<Vec<String>>,
    /// The expected outcome without any policy or allowance.
    #[serde(default)]
    without: Option<String>,
}

impl Case {
    /// The difference between the verdict and the expected one, if there is any.
    ///
    /// # Errors
    /// The case cannot be judged.
    pub(in crate::cli::policy) fn judge(
        &self,
        ground: &Ground,
        now: Timestamp,
    ) -> anyhow::Result<Option<String>> {
        let actor = Actor {
            user: self.user.clone().unwrap_or_else(|| "somebody".to_owned()),
            groups: self.groups.clone(),
            ..Actor::default()
        };
        let body = match &self.review {
            Some(file) => policy_files::text(&ground.folder.join(file))?,
            None => self.change.review(&actor, &ground.documents())?.to_string(),
        };
        let request = Request::parse(body.as_bytes()).context("the review cannot be read")?;
        let judge = |resolver, allowances| {
            let now = self.time.unwrap_or(now);
            let (release, autoscalers) = (ground.release.clone(), &ground.autoscalers);
            Bench { release, resolver, allowances, autoscalers, now }.judge(&request)
        };
        let report = judge(&ground.with, ground.allowances.clone())?;
        if let Some(without) = &self.without {
            let bare = judge(&ground.without, Vec::new())?;
            if bare.verdict.outcome.as_str() != without {
                return Ok(Some(format!("without policies expected {without}, got {}", told(&bare))));
            }
        }
        let reason = self.reason.as_ref().is_none_or(|reason| report.verdict.reason.as_str() == reason);
        let fields = self.fields.as_ref().is_none_or(|fields| *fields == drifting(&report));
        if report.verdict.outcome.as_str() == self.expect && reason && fields {
            return Ok(None);
        }
        let mut expected = self.expect.clone();
        if let Some(reason) = &self.reason {
            expected = format!("{expected} ({reason})");
        }
        if let Some(fields) = &self.fields {
            expected = format!("{expected} at [{}]", fields.join(", "));
        }
        Ok(Some(format!("expected {expected}, got {}", told(&report))))
    }
}

fn drifting(report: &Report) -> Vec<String> {
    let fields = report.verdict.grounds.iter().flat_map(|grounds| &grounds.fields);
    fields.map(|finding| finding.path.to_string()).collect()
}

fn told(report: &Report) -> String {
    let verdict = &report.verdict;
    let fields = drifting(report);
    let at = if fields.is_empty() { String::new() } else { format!(" at [{}]", fields.join(", ")) };
    format!("{} ({}){at}", verdict.outcome.as_str(), verdict.reason.as_str())
}
