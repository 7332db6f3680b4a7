//! The built-in identities: Kubernetes' own controllers, each with exactly the changes that are its
//! work.
//!
//! Entry points: [`deletes`], [`writes`]. Invariant: a table; every identity that is not in it
//! counts as a person. Controllers without accounts of their own all run as
//! `system:kube-controller-manager`, which may do the work of any of them. Must not read a policy.

mod table;

use self::table::{ACCOUNTS, ALL_CONTROLLERS, KEDA, Row, SERVERS, TABLE, Verb};
use kubemoor_declare::model::{Actor, Autoscaler, ObjectId};
use kubemoor_declare::path::{Path, Segment};

/// Whether deleting `object` is this actor's built-in work.
pub fn deletes(actor: &Actor, object: &ObjectId) -> bool {
    rows(actor, object).any(|row| matches!(row.verb, Verb::Delete))
}

/// The users whose built-in work includes deleting any object.
pub fn delete_everything() -> impl Iterator<Item = String> {
    let rows = TABLE.iter().filter(|row| row.kinds.is_empty() && matches!(row.verb, Verb::Delete));
    let accounts = rows.map(|row| format!("system:serviceaccount:kube-system:{}", row.account));
    std::iter::once(ALL_CONTROLLERS.to_owned()).chain(accounts)
}

/// Whether this actor may set the replicas for an autoscaler.
pub fn autoscales(actor: &Actor, autoscaler: &Autoscaler) -> bool {
    let (namespace, account) = KEDA;
    let scales = |row: &Row| matches!(row.verb, Verb::Scale) && is(actor, row);
    TABLE.iter().any(scales) || (autoscaler.by_keda && actor.is_service_account(namespace, account))
}

/// Whether changing `path` of `object` is this actor's built-in work.
pub fn writes(actor: &Actor, object: &ObjectId, path: &Path) -> bool {
    rows(actor, object).any(|row| match row.verb {
        Verb::Delete | Verb::Scale => false,
        Verb::Update(paths) => paths.iter().any(|prefix| is_below(path, prefix)),
    })
}

/// Whether this actor is a part of Kubernetes itself, which sets more fields of objects than a
/// release declares.
pub fn is_built_in(actor: &Actor) -> bool {
    let is_controller = || {
        let account = actor.user.strip_prefix("system:serviceaccount:kube-system:");
        account.is_some_and(|name| ACCOUNTS.contains(&name))
    };
    SERVERS.contains(&actor.user.as_str()) || is_controller()
}

fn rows<'a>(actor: &'a Actor, object: &'a ObjectId) -> impl Iterator<Item = &'static Row> + 'a {
    TABLE.iter().filter(|row| {
        let kind =
            row.kinds.is_empty() || (row.group == object.group && row.kinds.contains(&object.kind.as_str()));
        kind && is(actor, row)
    })
}

fn is(actor: &Actor, row: &Row) -> bool {
    actor.user == ALL_CONTROLLERS || actor.is_service_account("kube-system", row.account)
}

fn is_below(path: &Path, prefix: &str) -> bool {
    let names = prefix.split('/').skip(1);
    names
        .enumerate()
        .all(|(index, name)| matches!(path.0.get(index), Some(Segment::Field(field)) if field == name))
}

#[cfg(test)]
mod tests;
