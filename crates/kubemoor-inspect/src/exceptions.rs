//! Exceptions that a person makes and ends: DriftAllowances.
//!
//! Entry points: [`plan`], then [`Plan::make`]; [`names`] and [`end`]. Invariant: all act with the person's own
//! rights, and the same plan with the same end makes one allowance.

mod there;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::failure::{Failure, failed};
use super::{object, reading};
use kubemoor_cluster::client::allowances::{self, AllowanceRequest, Ensured, MakeError};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::identity;
use kubemoor_declare::model::{Actor, NamedObject, ObjectId};
use kubemoor_policy::allowance::{Allowance, Request};
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::grant::DELETE;
use kubemoor_policy::resource::DriftAllowance;

/// How long the API server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A requested exception.
pub struct Asked<'a> {
    pub object: &'a NamedObject,
    pub namespace: &'a str,
    /// The paths as texts, `*` and `delete` among them.
    pub paths: &'a [String],
    pub until: Timestamp,
    pub reason: Option<&'a str>,
}

/// An allowance that may be made.
pub struct Plan {
    pub resource: DriftAllowance,
    pub object: ObjectId,
    /// The check that could not be made.
    pub unchecked: Option<String>,
}

/// The allowance that there is now.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allowed {
    pub namespace: String,
    pub name: String,
    /// Whether it was made now, not by an equal request before.
    pub made: bool,
    pub object: ObjectId,
    pub paths: Vec<String>,
    pub until: String,
    /// What could not be checked.
    #[serde(skip)]
    pub unchecked: Option<String>,
}

/// Plans the allowance; writes nothing.
pub async fn plan(connection: &Connection, asked: &Asked<'_>, now: Timestamp) -> Result<Plan, Failure> {
    let Asked { object, namespace, paths, until, reason } = asked;
    let request = request(paths, *until, *reason, now)?;
    let kinds = reading::kinds(connection).await?;
    let object = object::resolve(object, connection, &kinds, namespace).await?;
    let unchecked = there::check(connection, &kinds, &object, &request.grant).await?;
    let user = identity::own_name(&connection.client, connection.claimed.clone()).await;
    let user = user.map_err(|error| failed(connection, "ask who you are", error))?;
    let by = user.map(|user| Actor { user, ..Actor::default() });
    let patterns = request.grant.mask.0.iter().map(ToString::to_string);
    let allowance = AllowanceRequest {
        object: &object,
        namespace,
        paths: patterns.chain(request.grant.deletes.then(|| DELETE.to_owned())).collect(),
        until: *until,
        reason: *reason,
        by: by.as_ref(),
    };
    let resource = allowances::resource(&allowance);
    check_room(connection, &resource, now).await?;
    Ok(Plan { resource, object, unchecked })
}

/// The request, as the guard would read it.
pub fn request(
    paths: &[String],
    until: Timestamp,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Request, Failure> {
    let request = Request::read(&paths.join(","), Some(&until.to_string()), reason);
    let request = request.map_err(|flaws| told(&flaws))?;
    request.until_from(now).map_err(|flaw| told(&[flaw]))?;
    Ok(request)
}

impl Plan {
    /// Makes it.
    pub async fn make(self, connection: &Connection) -> Result<Allowed, Failure> {
        let Self { resource, object, unchecked } = self;
        let ensured = allowances::make(&connection.client, &resource, PATIENCE).await;
        let ensured = ensured.map_err(|error| match error {
            MakeError::Call(error) => failed(connection, "make the allowance", error),
            other => other.into(),
        })?;
        let resource = ensured.resource();
        Ok(Allowed {
            name: resource.metadata.name.clone().unwrap_or_default(),
            made: matches!(ensured, Ensured::Made(_)),
            paths: resource.spec.paths.clone(),
            until: resource.spec.until.clone(),
            namespace: resource.metadata.namespace.clone().unwrap_or_default(),
            object,
            unchecked,
        })
    }
}

/// Deletes allowances.
pub async fn end(connection: &Connection, namespace: &str, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let deleted = allowances::delete(&connection.client, namespace, name, None).await;
        if !deleted.map_err(|error| failed(connection, "delete the allowance", error))? {
            return Err(Failure::Named(format!(
                "there is no allowance {name} in namespace {namespace}: `kubemoor get allowances -A` lists all"
            )));
        }
    }
    Ok(())
}

/// Deletes the exception with this uid, and no other one that has its name.
pub async fn end_one(connection: &Connection, namespace: &str, name: &str, uid: &str) -> Result<(), Failure> {
    let deleted = allowances::delete(&connection.client, namespace, name, Some(uid)).await;
    if deleted.map_err(|error| failed(connection, "delete the exception", error))? {
        return Ok(());
    }
    let there = allowances::read(&connection.client, namespace, name).await;
    Err(gone(namespace, name, matches!(there, Ok(Some(_)))))
}

/// The sentence for an exception that is gone; `is_replaced`: another one has its name.
pub fn gone(namespace: &str, name: &str, is_replaced: bool) -> Failure {
    Failure::Named(match is_replaced {
        true => format!(
            "another exception has the name {name} in namespace {namespace} now: the one that was shown is \
             gone, and nothing was ended. Look at the exceptions again"
        ),
        false => {
            format!("there is no exception {name} in namespace {namespace} any more: it has ended already")
        }
    })
}

/// The names of the allowances for an object.
pub async fn names(connection: &Connection, what: &str, namespace: &str) -> Result<Vec<String>, Failure> {
    let object: Result<NamedObject, _> = what.parse();
    let object = object.map_err(|error: &str| Failure::Named(error.to_owned()))?;
    let kinds = reading::kinds(connection).await?;
    let object = object::resolve(&object, connection, &kinds, namespace).await?;
    let listed = allowances::list(&connection.client, Some(namespace)).await;
    let listed = listed.map_err(|error| failed(connection, "list the allowances", error))?;
    let is_for = |spec: &kubemoor_policy::resource::AllowedObject| {
        spec.group == object.group && spec.kind == object.kind && spec.name == object.name
    };
    let of_object = listed.into_iter().filter(|allowance| is_for(&allowance.spec.object));
    let names: Vec<_> = of_object.filter_map(|allowance| allowance.metadata.name).collect();
    if names.is_empty() {
        return Err(Failure::Named(format!(
            "there is no allowance for {object}: `kubemoor get allowances -A` lists all"
        )));
    }
    Ok(names)
}

/// Fails where the guard would not count another one in its namespace. Without the right to list them only
/// the guard finds that out.
async fn check_room(connection: &Connection, wanted: &DriftAllowance, now: Timestamp) -> Result<(), Failure> {
    let namespace = wanted.metadata.namespace.clone().unwrap_or_default();
    let Ok(listed) = allowances::list(&connection.client, Some(&namespace)).await else { return Ok(()) };
    let others = listed.iter().filter(|it| it.metadata.name != wanted.metadata.name);
    let open = others.filter(|it| Allowance::compile(it).is_ok_and(|it| it.open(now))).count();
    if open >= allowances::MOST_HERE {
        return Err(MakeError::Full { namespace }.into());
    }
    Ok(())
}

fn told(flaws: &[Flaw]) -> Failure {
    Failure::Named(flaws.iter().map(|flaw| flaw.message.clone()).collect::<Vec<_>>().join("; "))
}
