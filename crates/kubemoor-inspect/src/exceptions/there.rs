//! Checks that the object and the field to allow exist.
//!
//! Entry point: [`check`]. Invariant: refuses only in certain cases: the API server reports the object as
//! absent, or the types of its kind do not have the field.

use serde_json::Value;

use super::super::failure::{Failure, failed, forbidden};
use kubemoor_cluster::client::call::{self, CallError, PATIENCE};
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::objects::Target;
use kubemoor_cluster::client::resource::segment;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_declare::model::{Gvk, ObjectId};
use kubemoor_policy::grant::Grant;

/// What is known of the live object.
enum Live {
    There,
    Absent,
    /// It may not be read: why.
    Unread(String),
}

/// Refuses an exception for an object or a field that does not exist; gives what could not be checked.
pub(super) async fn check(
    connection: &Connection,
    kinds: &Kinds,
    object: &ObjectId,
    grant: &Grant,
) -> Result<Option<String>, Failure> {
    let note = match live(connection, kinds, object).await? {
        Live::There => None,
        // A user who may delete it may already have done so under an earlier exception.
        Live::Absent if grant.deletes => Some(format!("there is no {object} now")),
        Live::Absent => {
            let kind = object.kind.to_lowercase();
            return Err(Failure::Named(format!(
                "there is no {object}: `kubectl get {kind} -A` lists those that are there"
            )));
        }
        Live::Unread(why) => Some(format!("nobody can tell whether there is a {object}: {why}")),
    };
    let gvk = Gvk { group: object.group.to_string(), version: String::new(), kind: object.kind.to_string() };
    if let Some(schema) = kinds.schema(&gvk).await {
        let unknown: Vec<_> = grant.mask.0.iter().filter_map(|path| path.unknown_field(&schema)).collect();
        if !unknown.is_empty() {
            let told: Vec<_> = unknown.iter().map(ToString::to_string).collect();
            return Err(Failure::Named(format!("{object}: {}", told.join("; "))));
        }
    }
    Ok(note)
}

async fn live(connection: &Connection, kinds: &Kinds, object: &ObjectId) -> Result<Live, Failure> {
    let Some(target) = kinds.target(object, "") else { return Ok(Live::Absent) };
    match read(connection, &target).await {
        Ok(_) => Ok(Live::There),
        Err(error) if error.proves_absence() => Ok(Live::Absent),
        Err(CallError::Refused { code: 403, message, .. }) => Ok(Live::Unread(forbidden(&message))),
        Err(error) => Err(failed(connection, "read the object", error)),
    }
}

async fn read(connection: &Connection, target: &Target) -> Result<Value, CallError> {
    let path = format!("{}/{}", target.resource.path(target.namespace.as_deref())?, segment(&target.name)?);
    call::fetch(&connection.client, call::get(&path)?, PATIENCE).await
}
