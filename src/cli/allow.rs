//! `kubemoor allow` and `kubemoor revoke`: DriftAllowances made and deleted.
//!
//! Entry points: [`run`], [`revoke`]. Invariant: both act with the caller's own
//! rights, and the same `allow` with the same end makes one allowance.

mod there;

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap_complete::ArgValueCandidates;
use jiff::Timestamp;
use serde::Serialize;

use super::candidates;
use super::connect::{self, ClusterArgs, NamespaceArgs};
use super::output::{self, OutputArgs};
use super::times::parse_duration;
use super::{Outcome, warn};
use crate::client::allowances::{self, Kept, MakeError, Wish};
use crate::client::connection::Connection;
use crate::client::identity;
use crate::model::{Actor, NamedObject, ObjectId};
use crate::policy::allowance::{Allowance, Request};
use crate::policy::flaw::Flaw;
use crate::policy::grant::DELETE;
use crate::policy::resource::DriftAllowance;

/// How long the API server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flags of `kubemoor allow`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("end").required(true))]
pub(super) struct Args {
    /// The object, such as deployment/web, deploy/web or deployments.apps/web
    #[arg(value_name = "KIND/NAME", add = ArgValueCandidates::new(candidates::objects))]
    object: NamedObject,

    /// What may be changed: a path such as /spec/replicas, * for every field, delete; may be repeated
    #[arg(long, value_name = "PATH", required = true)]
    path: Vec<String>,

    /// For how long
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, group = "end")]
    duration: Option<Duration>,

    /// Until when (RFC 3339)
    #[arg(long, value_name = "TIME", group = "end")]
    until: Option<Timestamp>,

    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    namespace: NamespaceArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The flags of `kubemoor revoke`.
#[derive(Debug, clap::Args)]
pub(super) struct RevokeArgs {
    /// The object, such as deployment/web, deploy/web or deployments.apps/web, or an allowance's name
    #[arg(value_name = "KIND/NAME|NAME", add = ArgValueCandidates::new(candidates::objects))]
    what: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    namespace: NamespaceArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The allowance that there is now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Allowed {
    namespace: String,
    name: String,
    /// Whether it was made now, not by an equal request before.
    made: bool,
    object: ObjectId,
    paths: Vec<String>,
    until: String,
    /// What could not be checked.
    #[serde(skip)]
    unchecked: Option<String>,
}

/// The allowances that are no more.
#[derive(Debug, Serialize)]
struct Revoked {
    namespace: String,
    names: Vec<String>,
}

pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let format = args.output.output;
    let allowed = connect::run(allow(args))?;
    let Allowed { namespace: _, name, made, object, paths, until, unchecked } = &allowed;
    unchecked.iter().for_each(|unchecked| warn(unchecked));
    let (verb, paths) = (if *made { "made" } else { "unchanged" }, paths.join(", "));
    let told = format!("driftallowance/{name} {verb}: {paths} of {object} may change until {until}");
    output::say(format, &allowed, &told)
}

pub(super) fn revoke(args: RevokeArgs) -> anyhow::Result<Outcome> {
    let format = args.output.output;
    let revoked = connect::run(revoked(args))?;
    let told: Vec<_> = revoked.names.iter().map(|name| format!("driftallowance/{name} deleted")).collect();
    output::say(format, &revoked, &told.join("\n"))
}

async fn allow(args: Args) -> anyhow::Result<Allowed> {
    let Args { object, path, duration, until, reason, output: _, namespace, cluster } = args;
    let now = Timestamp::now();
    let until = match (duration, until) {
        (Some(duration), _) => {
            // Whole seconds, so that it reads well.
            let end = now.checked_add(duration).map_err(|_| anyhow!("--for is too long"))?;
            Timestamp::from_second(end.as_second())?
        }
        (None, Some(until)) => until,
        (None, None) => bail!("say until when, with --for or --until"),
    };
    let request = Request::read(&path.join(","), Some(&until.to_string()), reason.as_deref());
    let request = request.map_err(|flaws| anyhow!("{}", told(&flaws)))?;
    request.until_from(now).map_err(|flaw| anyhow!("{}", told(&[flaw])))?;

    let connection = cluster.connect().await?;
    let namespace = namespace.or_default(&connection);
    let kinds = connect::kinds(&connection).await?;
    let object = object.resolve(&connection, &kinds, &namespace).await?;
    let unchecked = there::check(&connection, &kinds, &object, &request.grant).await?;
    let user = identity::own_name(&connection.client, connection.claimed.clone()).await;
    let user = user.map_err(|error| connect::failed(&connection, "ask who you are", error))?;
    let by = user.map(|user| Actor { user, ..Actor::default() });
    let patterns = request.grant.mask.0.iter().map(ToString::to_string);
    let wish = Wish {
        object: &object,
        namespace: &namespace,
        paths: patterns.chain(request.grant.deletes.then(|| DELETE.to_owned())).collect(),
        until,
        reason: reason.as_deref(),
        by: by.as_ref(),
    };
    let resource = allowances::resource(&wish);
    check_room(&connection, &resource, now).await?;
    let kept = allowances::make(&connection.client, &resource, PATIENCE).await;
    let kept = kept.map_err(|error| match error {
        MakeError::Call(error) => connect::failed(&connection, "make the allowance", error),
        other => anyhow::Error::new(other),
    })?;
    let resource = kept.resource();
    Ok(Allowed {
        name: resource.metadata.name.clone().unwrap_or_default(),
        made: matches!(kept, Kept::Made(_)),
        paths: resource.spec.paths.clone(),
        until: resource.spec.until.clone(),
        namespace,
        object,
        unchecked,
    })
}

/// Fails where the guard would not count one more in its namespace. Whoever may
/// not list them learns that from the guard alone.
async fn check_room(connection: &Connection, wanted: &DriftAllowance, now: Timestamp) -> anyhow::Result<()> {
    let namespace = wanted.metadata.namespace.clone().unwrap_or_default();
    let Ok(listed) = allowances::list(&connection.client, Some(&namespace)).await else { return Ok(()) };
    let others = listed.iter().filter(|it| it.metadata.name != wanted.metadata.name);
    let open = others.filter(|it| Allowance::compile(it).is_ok_and(|it| it.open(now))).count();
    if open >= allowances::MOST_HERE {
        return Err(MakeError::Full { namespace }.into());
    }
    Ok(())
}

async fn revoked(args: RevokeArgs) -> anyhow::Result<Revoked> {
    let RevokeArgs { what, output: _, namespace, cluster } = args;
    let connection = cluster.connect().await?;
    let namespace = namespace.or_default(&connection);
    let names =
        if what.contains('/') { of_object(&connection, &what, &namespace).await? } else { vec![what] };
    for name in &names {
        let deleted = allowances::delete(&connection.client, &namespace, name, None).await;
        if !deleted.map_err(|error| connect::failed(&connection, "delete the allowance", error))? {
            bail!(
                "there is no allowance {name} in namespace {namespace}: `kubemoor get allowances -A` lists all"
            );
        }
    }
    Ok(Revoked { namespace, names })
}

/// The names of the allowances for an object.
async fn of_object(connection: &Connection, what: &str, namespace: &str) -> anyhow::Result<Vec<String>> {
    let object: NamedObject = what.parse().map_err(|error: &str| anyhow!(error))?;
    let kinds = connect::kinds(connection).await?;
    let object = object.resolve(connection, &kinds, namespace).await?;
    let listed = allowances::list(&connection.client, Some(namespace)).await;
    let listed = listed.map_err(|error| connect::failed(connection, "list the allowances", error))?;
    let is_for = |spec: &crate::policy::resource::AllowedObject| {
        spec.group == object.group && spec.kind == object.kind && spec.name == object.name
    };
    let of_object = listed.into_iter().filter(|allowance| is_for(&allowance.spec.object));
    let names: Vec<_> = of_object.filter_map(|allowance| allowance.metadata.name).collect();
    if names.is_empty() {
        bail!("there is no allowance for {object}: `kubemoor get allowances -A` lists all");
    }
    Ok(names)
}

fn told(flaws: &[Flaw]) -> String {
    flaws.iter().map(|flaw| flaw.message.clone()).collect::<Vec<_>>().join("; ")
}
