//! Temporary exceptions (DriftAllowances): planned, created, ended and listed with the person's own rights.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::failure::{InspectError, failed, forbidden};
use super::reading::{self, DRY_RUNS, resolve_object};
use kubemoor_cluster::client::access;
use kubemoor_cluster::client::allowances::{self, AllowanceCreation, AllowanceRequest, CreateAllowanceError};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::discovery::confirm_absence;
use kubemoor_cluster::client::objects::Objects;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_declare::model::{Actor, Gvk, NamedObject, ObjectId};
use kubemoor_policy::allowance::{Allowance, DELETE, Grant, RequestedAllowance};
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::resource::{AllowedObject, DriftAllowance};

const PATIENCE: Duration = Duration::from_secs(30);

pub struct ExceptionPlan {
    pub resource: DriftAllowance,
    pub object: ObjectId,
    pub unchecked: Option<String>,
}

/// The resulting allowance.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allowed {
    pub namespace: String,
    pub name: String,
    /// Whether it was created now; false if an equal one already existed.
    pub created: bool,
    pub object: ObjectId,
    pub paths: Vec<String>,
    pub until: String,
    /// What could not be checked.
    #[serde(skip)]
    pub unchecked: Option<String>,
}

/// Plans the allowance; writes nothing. `*` and `delete` may be among the paths.
pub async fn plan(
    connection: &ClusterConnection,
    object: &NamedObject,
    namespace: &str,
    paths: &[String],
    until: Timestamp,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<ExceptionPlan, InspectError> {
    let request = request(paths, until, reason, now)?;
    let kinds = reading::kinds(connection).await?;
    let object = resolve_object(object, connection, &kinds, namespace).await?;
    let unchecked = check_existence(connection, &kinds, &object, &request.grant).await?;
    let user = access::own_name(&connection.client, connection.claimed.clone()).await;
    let user = user.map_err(|error| failed(connection, "ask who you are", error))?;
    let by = user.map(|user| Actor { user, ..Actor::default() });
    let patterns = request.grant.mask.0.iter().map(ToString::to_string);
    let allowance = AllowanceRequest {
        object: &object,
        namespace,
        paths: patterns.chain(request.grant.allows_delete.then(|| DELETE.to_owned())).collect(),
        until,
        reason,
        by: by.as_ref(),
    };
    let resource = allowances::resource(&allowance);
    check_room(connection, &resource, now).await?;
    Ok(ExceptionPlan { resource, object, unchecked })
}

pub fn request(
    paths: &[String],
    until: Timestamp,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<RequestedAllowance, InspectError> {
    let request = RequestedAllowance::read(&paths.join(","), Some(&until.to_string()), reason);
    let request = request.map_err(|flaws| flaws_error(&flaws))?;
    request.until_from(now).map_err(|flaw| flaws_error(&[flaw]))?;
    Ok(request)
}

impl ExceptionPlan {
    pub async fn make(self, connection: &ClusterConnection) -> Result<Allowed, InspectError> {
        let Self { resource, object, unchecked } = self;
        let ensured = allowances::create_allowance(&connection.client, &resource, PATIENCE).await;
        let ensured = ensured.map_err(|error| match error {
            CreateAllowanceError::Call(error) => failed(connection, "make the allowance", error),
            other => other.into(),
        })?;
        let resource = ensured.resource();
        Ok(Allowed {
            name: resource.metadata.name.clone().unwrap_or_default(),
            created: matches!(ensured, AllowanceCreation::Created(_)),
            paths: resource.spec.paths.clone(),
            until: resource.spec.until.clone(),
            namespace: resource.metadata.namespace.clone().unwrap_or_default(),
            object,
            unchecked,
        })
    }
}

pub async fn end(
    connection: &ClusterConnection,
    namespace: &str,
    names: &[String],
) -> Result<(), InspectError> {
    for name in names {
        let deleted = allowances::delete(&connection.client, namespace, name, None).await;
        if !deleted.map_err(|error| failed(connection, "delete the allowance", error))? {
            return Err(InspectError::InvalidInput(format!(
                "there is no allowance {name} in namespace {namespace}: `kubemoor get allowances -A` lists all"
            )));
        }
    }
    Ok(())
}

pub async fn end_one(
    connection: &ClusterConnection,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), InspectError> {
    let deleted = allowances::delete(&connection.client, namespace, name, Some(uid)).await;
    if deleted.map_err(|error| failed(connection, "delete the exception", error))? {
        return Ok(());
    }
    let there = allowances::read(&connection.client, namespace, name).await;
    Err(gone(namespace, name, matches!(there, Ok(Some(_)))))
}

/// The error for an exception that no longer exists; `is_replaced`: another one has its name.
pub fn gone(namespace: &str, name: &str, is_replaced: bool) -> InspectError {
    InspectError::InvalidInput(match is_replaced {
        true => format!(
            "another exception is now named {name} in namespace {namespace}: the one shown is gone, and no \
             exception was ended. Check the list again"
        ),
        false => {
            format!("there is no exception {name} in namespace {namespace} any more: it has already ended")
        }
    })
}

pub async fn names(
    connection: &ClusterConnection,
    what: &str,
    namespace: &str,
) -> Result<Vec<String>, InspectError> {
    let object: Result<NamedObject, _> = what.parse();
    let object = object.map_err(|error: &str| InspectError::InvalidInput(error.to_owned()))?;
    let kinds = reading::kinds(connection).await?;
    let object = resolve_object(&object, connection, &kinds, namespace).await?;
    let listed = allowances::list(&connection.client, Some(namespace), None).await;
    let listed = listed.map_err(|error| failed(connection, "list the allowances", error))?;
    let is_for = |spec: &kubemoor_policy::resource::AllowedObject| {
        spec.group == object.group && spec.kind == object.kind && spec.name == object.name
    };
    let of_object = listed.into_iter().filter(|allowance| is_for(&allowance.spec.object));
    let names: Vec<_> = of_object.filter_map(|allowance| allowance.metadata.name).collect();
    if names.is_empty() {
        return Err(InspectError::InvalidInput(format!(
            "there is no allowance for {object}: `kubemoor get allowances -A` lists all"
        )));
    }
    Ok(names)
}

/// Fails if the namespace already has the maximum number of open allowances. Without the right to list them, only the
/// guard can detect that.
async fn check_room(
    connection: &ClusterConnection,
    wanted: &DriftAllowance,
    now: Timestamp,
) -> Result<(), InspectError> {
    let namespace = wanted.metadata.namespace.clone().unwrap_or_default();
    let Ok(listed) = allowances::list(&connection.client, Some(&namespace), None).await else {
        return Ok(());
    };
    let others = listed.iter().filter(|it| it.metadata.name != wanted.metadata.name);
    let open = others.filter(|it| Allowance::compile(it).is_ok_and(|it| it.is_active(now))).count();
    if open >= allowances::MOST_HERE {
        return Err(CreateAllowanceError::Full { namespace }.into());
    }
    Ok(())
}

fn flaws_error(flaws: &[Flaw]) -> InspectError {
    InspectError::InvalidInput(flaws.iter().map(|flaw| flaw.message.clone()).collect::<Vec<_>>().join("; "))
}

/// Refuses an exception for an object or a field that certainly does not exist: the API server reports the object as
/// absent, or the schema of its kind does not have the field. Returns what could not be checked.
async fn check_existence(
    connection: &ClusterConnection,
    kinds: &ServedKinds,
    object: &ObjectId,
    grant: &Grant,
) -> Result<Option<String>, InspectError> {
    let read = match kinds.target(object, "") {
        Some(target) => Objects::new(connection.client.clone(), DRY_RUNS).get(&target).await,
        None => Ok(None),
    };
    let note = match read {
        Ok(Some(_)) => None,
        Err(ClusterError::Refused { code: 403, message, .. }) => {
            Some(format!("cannot check whether {object} exists: {}", forbidden(&message)))
        }
        Err(error) => return Err(failed(connection, "read the object", error)),
        // A user who may delete it may already have done so under an earlier exception.
        Ok(None) if grant.allows_delete => Some(format!("{object} does not exist now")),
        Ok(None) => {
            let kind = object.kind.to_lowercase();
            return Err(InspectError::InvalidInput(format!(
                "there is no {object}: `kubectl get {kind} -A` lists the existing ones"
            )));
        }
    };
    let gvk = Gvk { group: object.group.to_string(), version: String::new(), kind: object.kind.to_string() };
    if let Some(schema) = kinds.schema(&gvk).await {
        let unknown = grant.mask.unknown_fields(&schema);
        if !unknown.is_empty() {
            return Err(InspectError::InvalidInput(format!("{object}: {}", unknown.join("; "))));
        }
    }
    Ok(note)
}

/// One allowance of a list.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedAllowance {
    pub namespace: String,
    pub name: String,
    /// The uid, with which the page deletes this allowance and no later one of the same name.
    #[serde(skip)]
    pub uid: String,
    pub object: AllowedObject,
    pub paths: Vec<String>,
    pub until: String,
    pub state: AllowanceState,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flaws: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub enum AllowanceState {
    /// It is in force.
    Open,
    /// It has ended.
    Ended,
    /// It is invalid and has no effect.
    Invalid,
    /// It was deleted while the list was watched.
    Deleted,
}

pub async fn read(
    connection: &ClusterConnection,
    namespace: Option<&str>,
    labels: Option<&str>,
    now: Timestamp,
) -> Result<Vec<ListedAllowance>, InspectError> {
    let found = match allowances::list(&connection.client, namespace, labels).await {
        Ok(found) => found,
        // Without the CustomResourceDefinition there are no allowances.
        Err(error) => confirm_absence(&connection.client, &allowances::allowance_resource().plural, error)
            .await
            .map(|()| Vec::new())
            .map_err(|error| failed(connection, "list the allowances", error))?,
    };
    Ok(rows(found, now))
}

pub fn rows(found: Vec<DriftAllowance>, now: Timestamp) -> Vec<ListedAllowance> {
    let mut rows: Vec<_> =
        found.into_iter().map(|allowance| ListedAllowance::from_resource(allowance, now)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.until, &a.name).cmp(&(&b.namespace, &b.until, &b.name)));
    rows
}

pub async fn one(
    connection: &ClusterConnection,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Result<ListedAllowance, InspectError> {
    let read = allowances::read(&connection.client, namespace, name).await;
    let read = read.map_err(|error| failed(connection, "read the exception", error))?;
    let absent =
        || InspectError::InvalidInput(format!("there is no exception {name} in namespace {namespace}"));
    let garbled = |error| {
        InspectError::InvalidInput(format!(
            "the exception {name} in namespace {namespace} is not valid: {error}"
        ))
    };
    let allowance = serde_json::from_value(read.ok_or_else(absent)?).map_err(garbled)?;
    Ok(ListedAllowance::from_resource(allowance, now))
}

impl ListedAllowance {
    pub fn from_resource(allowance: DriftAllowance, now: Timestamp) -> Self {
        let (state, flaws) = match Allowance::compile(&allowance) {
            Ok(compiled) if compiled.is_active(now) => (AllowanceState::Open, Vec::new()),
            Ok(_) => (AllowanceState::Ended, Vec::new()),
            Err(flaws) => (AllowanceState::Invalid, flaws.iter().map(ToString::to_string).collect()),
        };
        let DriftAllowance { metadata, spec } = allowance;
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            object: spec.object,
            paths: spec.paths,
            until: spec.until,
            state,
            by: spec.requested_by.map(|by| by.user).unwrap_or_default(),
            reason: spec.reason.unwrap_or_default(),
            flaws,
        }
    }
}
