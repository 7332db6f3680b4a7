//! `kubemoor allow` and `kubemoor revoke`: create and delete DriftAllowances with the user's own rights. Repeating an
//! `allow` with the same end changes nothing.

use std::time::Duration;

use anyhow::bail;
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use serde::Serialize;

use super::connect::{self, PlaceArgs, end_after};
use super::output::{self, OutputArgs};
use super::{CommandOutcome, completions, warn};
use kubemoor_declare::model::NamedObject;
use kubemoor_inspect::exceptions::{self, Allowed};
use kubemoor_inspect::times::parse_duration;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("end").required(true))]
pub(super) struct Args {
    /// The object, such as deployment/web, deploy/web or deployments.apps/web
    #[arg(value_name = "KIND/NAME", add = ArgValueCandidates::new(completions::objects))]
    object: NamedObject,

    /// The field that may change, such as /spec/replicas; * for every field, delete for the deletion; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    path: Vec<String>,

    /// How long the exception lasts
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, group = "end")]
    duration: Option<Duration>,

    /// When the exception ends (RFC 3339)
    #[arg(long, value_name = "TIME", group = "end")]
    until: Option<Timestamp>,

    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// The object, such as deployment/web, deploy/web or deployments.apps/web, or an allowance's name
    #[arg(value_name = "KIND/NAME|NAME", add = ArgValueCandidates::new(completions::objects))]
    what: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

/// The allowances that were deleted.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Revoked {
    namespace: String,
    names: Vec<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let form = args.output.output.clone();
    let allowed = connect::run(allow(args))?;
    let Allowed { namespace: _, name, created, object, paths, until, unchecked } = &allowed;
    unchecked.iter().for_each(|unchecked| warn(unchecked));
    let (verb, paths) = (if *created { "created" } else { "unchanged" }, paths.join(", "));
    let told = format!("driftallowance/{name} {verb}: {paths} of {object} may change until {until}");
    output::print_text(&form, &allowed, &told)
}

pub(super) fn revoke(args: RevokeArgs) -> anyhow::Result<CommandOutcome> {
    let form = args.output.output.clone();
    let revoked = connect::run(revoked(args))?;
    let told: Vec<_> = revoked.names.iter().map(|name| format!("driftallowance/{name} deleted")).collect();
    output::print_text(&form, &revoked, &told.join("\n"))
}

async fn allow(args: Args) -> anyhow::Result<Allowed> {
    let Args { object, path, duration, until, reason, output: _, place } = args;
    let now = Timestamp::now();
    let until = match (duration, until) {
        (Some(duration), _) => end_after(now, duration)?,
        (None, Some(until)) => until,
        (None, None) => bail!("set an end with --for or --until"),
    };
    // An invalid flag is reported before the cluster is contacted.
    exceptions::request(&path, until, reason.as_deref(), now)?;
    let (connection, namespace) = place.connect().await?;
    let plan =
        exceptions::plan(&connection, &object, &namespace, &path, until, reason.as_deref(), now).await?;
    Ok(plan.make(&connection).await?)
}

async fn revoked(args: RevokeArgs) -> anyhow::Result<Revoked> {
    let RevokeArgs { what, output: _, place } = args;
    let (connection, namespace) = place.connect().await?;
    let names = match what.contains('/') {
        true => exceptions::names(&connection, &what, &namespace).await?,
        false => vec![what],
    };
    exceptions::end(&connection, &namespace, &names).await?;
    Ok(Revoked { namespace, names })
}
