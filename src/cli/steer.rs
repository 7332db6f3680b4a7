//! `kubemoor suspend` and `resume`: whether the loop leaves a release alone.
//!
//! Entry points: [`suspend`], [`resume`]. Invariant: everything goes through the
//! GuardedRelease, so that the API server says who may, and keeps who did.

use std::time::Duration;

use anyhow::anyhow;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use serde::Serialize;

use super::Outcome;
use super::candidates;
use super::connect::{self, PlaceArgs, parse_release, spoken};
use super::output::{self, OutputArgs};
use kubemoor_cluster::client::guarded::Setting;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::orders;
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::suspension::{MAX_REASON, Suspension};

/// The flags of `kubemoor suspend`.
#[derive(Debug, clap::Args)]
pub(super) struct SuspendArgs {
    /// For how long [default: until `kubemoor resume`]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// Why
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,

    #[command(flatten)]
    release: ReleaseArgs,
}

/// The flags of `kubemoor resume`.
#[derive(Debug, clap::Args)]
pub(super) struct ReleaseArgs {
    /// The release
    #[arg(value_name = "RELEASE", value_parser = parse_release, add = ArgValueCandidates::new(candidates::releases))]
    release: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

/// What was said of which release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    #[serde(flatten)]
    release: ReleaseId,
    said: Said,
    /// When a suspension ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Why it was suspended.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
enum Said {
    Suspend,
    Resume,
}

/// Suspends repairs of a release.
pub(super) fn suspend(args: SuspendArgs) -> anyhow::Result<Outcome> {
    let SuspendArgs { release, duration, reason } = args;
    let end = |duration: Duration| {
        let end = Timestamp::now().checked_add(duration).map_err(|_| anyhow!("--for is too long"))?;
        // Whole seconds, so that it reads well.
        anyhow::Ok(Timestamp::from_second(end.as_second())?)
    };
    let suspension = Suspension { until: duration.map(end).transpose()?, reason: reason.unwrap_or_default() };
    say(release, Some(suspension))
}

/// Resumes repairs of a release.
pub(super) fn resume(args: ReleaseArgs) -> anyhow::Result<Outcome> {
    say(args, None)
}

/// Suspends a release like this, or resumes it.
fn say(args: ReleaseArgs, suspension: Option<Suspension>) -> anyhow::Result<Outcome> {
    let ReleaseArgs { release, output, place } = args;
    let (said, doing, setting) = match suspension.clone() {
        Some(suspension) => (Said::Suspend, "suspend the release", Setting::Suspend(suspension)),
        None => (Said::Resume, "resume the release", Setting::Resume),
    };
    let Suspension { until, reason } = suspension.unwrap_or_default();
    let (answer, warnings) = connect::run(async move {
        let (connection, namespace) = place.connect().await?;
        let release = ReleaseId { namespace: namespace.into(), name: release.into() };
        let warnings = orders::set(&connection, &release, &setting, doing).await?;
        anyhow::Ok((Answer { release, said, until, reason }, warnings))
    })?;
    warnings.iter().for_each(|warning| super::warn(warning));
    let name = spoken(&answer.release);
    let text = match said {
        Said::Suspend => {
            let end = until.map(|until| format!(" until {until}")).unwrap_or_default();
            format!("release {name} is suspended{end}: nothing is repaired; edits are judged as before")
        }
        Said::Resume => format!("release {name} is resumed"),
    };
    output::say(&output.output, &answer, &text)
}

/// A reason, as the API server accepts it.
fn parse_reason(text: &str) -> Result<String, String> {
    match text.chars().count() <= MAX_REASON {
        true => Ok(text.to_owned()),
        false => Err(format!("the reason is longer than {MAX_REASON} characters")),
    }
}
