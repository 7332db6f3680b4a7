//! Orders: `spec.reconcileAt` of a GuardedRelease, set by users who may patch it. Its creation and deletion are sent
//! too: a suspension may begin or end with them.
//!
//! An order is always allowed. The guard writes values that it has never seen in the live objects only if the API server
//! confirms that the user who orders it may write these objects; a ticket records that, which the leader, perhaps another
//! replica, can check. A dry run makes no ticket.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::look::LiveCluster;
use super::review::{self, AdmissionRequest, AdmissionResponse, ReviewHead};
use super::validate::Setup;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::guarded::KIND;
use kubemoor_cluster::client::objects::ObjectTarget;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::release::Release;
use kubemoor_ledger::row::{Act, LedgerRow, ReviewedEdit};
use kubemoor_policy::signing::{CONFIRMED_BY, OrderGrant, Ticket, TicketOrder, Verb, hex};
use kubemoor_runtime::callers::CallerSecrets;
use kubemoor_verdict::message::{Unwritten, of_order};

/// The most objects that are checked for one order; the rest needs another order.
const OBJECTS: usize = 200;

/// Questions about single objects that one order may cost, and how many at once.
const QUESTIONS: usize = 50;
const AT_ONCE: usize = 10;

/// Objects that the answer names one by one.
const NAMED: usize = 10;

/// The annotation by which the dry run of a creation asks whether the API server reaches the guard, and the warning that is
/// the answer: without one, `failurePolicy: Ignore` looks the same.
pub const PROBE: &str = "kubemoor.dev/probe";
pub const PROBE_ANSWER: &str = "the guard answers";

/// The API group whose objects need more than the permission to update: the API server requires
/// further permissions, which depend on the values.
const ESCALATING: &str = "rbac.authorization.k8s.io";

/// Returns the objects of a release that are not repaired without a person's confirmation, and the
/// action of a repair on each.
pub type Unconfirmed = dyn Fn(&ReleaseId) -> Vec<(Verb, ObjectId)> + Send + Sync;

/// The knowledge of the loop, and the key for tickets.
pub struct OrderDesk {
    /// The objects that the loop leaves unchanged until a person confirms the repair.
    pub unconfirmed: Box<Unconfirmed>,
    pub callers: CallerSecrets,
}

/// Objects of one kind in one namespace, and what is done to them.
type OfKind = (Verb, ObjectTarget, Vec<ObjectId>);

/// The user who gives an order, and the time until which the guard asks what they may do.
struct Orderer<'a> {
    live: &'a LiveCluster,
    user: &'a Actor,
    deadline: Instant,
    /// The time from the first question to the deadline.
    within: Duration,
}

pub(super) fn is_order(head: &ReviewHead<'_>) -> bool {
    head.resource.resource == "guardedreleases"
        && head.resource.group == "kubemoor.dev"
        && head.subresource.is_none()
        && head.operation.is_some()
}

/// The GuardedRelease before and after an edit. Before its creation and after its deletion it is null. Returns `None` if
/// either object cannot be read.
pub(super) fn objects(request: &AdmissionRequest<'_>) -> Option<(Value, Value)> {
    let read = |text: &Option<Excerpt<'_>>| match text {
        Some(text) => review::object(text.get()).ok(),
        None => Some(Value::Null),
    };
    Some((read(&request.old_object)?, read(&request.object)?))
}

/// The answer to an order, and to any other change of a GuardedRelease from `old` to `new`.
pub(super) async fn answer(
    request: &AdmissionRequest<'_>,
    (old, new): (&Value, &Value),
    (orders, live): (&OrderDesk, &LiveCluster),
    deadline: Instant,
) -> AdmissionResponse {
    // A ticket is for one object, whose uid the API server has not made yet when it is created.
    if request.head.operation != Some(Operation::Update) {
        let annotations = new.pointer("/metadata/annotations").filter(|_| request.dry_run);
        let is_probe = annotations.is_some_and(|annotations| annotations.get(PROBE).is_some());
        let answer = AdmissionResponse::allow();
        return if is_probe { answer.warn(PROBE_ANSWER) } else { answer };
    }
    let text = |object: &Value, pointer| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let [before, at] = [old, new].map(|object| text(object, "/spec/reconcileAt"));
    let (Some(at), Some(uid)) = (at.filter(|at| before.as_ref() != Some(at)), text(new, "/metadata/uid"))
    else {
        return AdmissionResponse::allow();
    };
    let (Some(namespace), Some(name)) = (&request.head.namespace, &request.head.name) else {
        return AdmissionResponse::allow();
    };
    let release = ReleaseId { namespace: (&**namespace).into(), name: (&**name).into() };
    let known = live.releases.index().read().release(&release).cloned();
    let Some(known) = known else { return AdmissionResponse::allow() };
    let (objects, refused) = ask_grants(&known, &request.actor, orders, live, deadline).await;
    let answer = refused.iter().take(NAMED).fold(AdmissionResponse::allow(), |answer, why| answer.warn(why));
    let answer = match refused.len().checked_sub(NAMED).filter(|more| *more > 0) {
        Some(more) => answer.warn(format!("{more} more objects stay as they are")),
        None => answer,
    };
    if request.dry_run {
        return answer;
    }
    let ticket = Ticket {
        user: request.actor.user.clone(),
        issued: Timestamp::now(),
        revision: known.state.revision,
        manifest: hex(&known.state.digest),
        objects,
    };
    let order = TicketOrder { release: &release, uid: &uid, at: &at };
    let secret = orders.callers.secret();
    let key = secret.signing().filter(|_| !ticket.objects.is_empty());
    let text = key.and_then(|key| ticket.sign(key, &order).ok());
    answer.patch(annotating(new, text))
}

/// Asks the API server whether the user may write the unconfirmed objects: first about all objects
/// of a kind in a namespace, then about each one. Returns what is granted, and the objects that stay unchanged, and why.
async fn ask_grants(
    release: &Arc<Release>,
    user: &Actor,
    orders: &OrderDesk,
    live: &LiveCluster,
    deadline: Instant,
) -> (Vec<OrderGrant>, Vec<String>) {
    let mut open = (orders.unconfirmed)(&release.id);
    let beyond = open.split_off(open.len().min(OBJECTS));
    let (kinds, only_helm) = by_kind(release, open, &live.kinds);
    let (mut granted, mut single) = (Vec::new(), Vec::new());
    let mut refused: Vec<_> =
        only_helm.iter().map(|object| of_order(object, &release.id, Unwritten::OnlyHelm)).collect();
    let within = deadline.saturating_duration_since(Instant::now());
    let orderer = &Orderer { live, user, deadline, within };
    let unchecked = |object: &ObjectId, verb, error: &ClusterError| {
        let (user, verb, reason) = (&*user.user, word(verb), error.to_string());
        let why = Unwritten::Unchecked { user, verb, error: &reason, is_outage: error.is_outage() };
        of_order(object, &release.id, why)
    };
    let whole = kinds.into_iter().map(|(verb, target, objects)| async move {
        let may = orderer.may(verb, &target, None).await;
        (verb, target, objects, may)
    });
    let answers: Vec<_> = futures::stream::iter(whole).buffered(AT_ONCE).collect().await;
    for (verb, target, objects, may) in answers {
        match may {
            Ok(true) => {
                granted.extend(objects.iter().map(|object| OrderGrant::new(verb, object, &release.id)))
            }
            Ok(false) => single.extend(objects.into_iter().map(|object| (verb, target.clone(), object))),
            Err(error) => refused.extend(objects.iter().map(|object| unchecked(object, verb, &error))),
        }
    }
    let unasked = single.split_off(single.len().min(QUESTIONS));
    let single = single.into_iter().map(|(verb, target, object)| async move {
        let may = orderer.may(verb, &target, Some(&object.name)).await;
        (verb, object, may)
    });
    let answers: Vec<_> = futures::stream::iter(single).buffered(AT_ONCE).collect().await;
    for (verb, object, may) in answers {
        match may {
            Ok(true) => granted.push(OrderGrant::new(verb, &object, &release.id)),
            Ok(false) => {
                let why = Unwritten::NoRight { user: &user.user, verb: word(verb) };
                refused.push(of_order(&object, &release.id, why));
            }
            Err(error) => refused.push(unchecked(&object, verb, &error)),
        }
    }
    let unasked = unasked.into_iter().map(|(_, _, object)| object);
    let rest = unasked.chain(beyond.into_iter().map(|(_, object)| object));
    refused.extend(rest.map(|object| of_order(&object, &release.id, Unwritten::OrderAgain)));
    (granted, refused)
}

/// The objects of each kind in each namespace, by what is done to them, and those that only Helm may confirm.
fn by_kind(
    release: &Release,
    open: Vec<(Verb, ObjectId)>,
    served: &ServedKinds,
) -> (Vec<OfKind>, Vec<ObjectId>) {
    let mut kinds: Vec<OfKind> = Vec::new();
    let mut only_helm = Vec::new();
    for (verb, object) in open {
        let target = release.declared(&object).and_then(|it| served.target(&object, &it.version));
        let Some(target) = target.filter(|_| object.group != ESCALATING) else {
            only_helm.push(object);
            continue;
        };
        let is_alike = |(known, other, _): &&mut OfKind| {
            *known == verb && other.resource == target.resource && other.namespace == target.namespace
        };
        match kinds.iter_mut().find(is_alike) {
            Some((_, _, objects)) => objects.push(object),
            None => kinds.push((verb, target, vec![object])),
        }
    }
    (kinds, only_helm)
}

impl Orderer<'_> {
    /// Whether the user may do that, if the API server says so in time.
    async fn may(&self, verb: Verb, target: &ObjectTarget, name: Option<&str>) -> Result<bool, ClusterError> {
        let right = Right {
            verb: word(verb),
            group: &target.resource.group,
            resource: &target.resource.plural,
            namespace: target.namespace.as_deref(),
            name,
        };
        let asking = access::may(&self.live.client, self.user, &right);
        timeout_at(self.deadline, asking).await.unwrap_or(Err(ClusterError::Late { within: self.within }))
    }
}

/// The API server's word for an action.
fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Update => "update",
    }
}

/// The patch that replaces any other ticket by that of this order.
fn annotating(object: &Value, ticket: Option<String>) -> Patch {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let has = annotations.is_some_and(|annotations| annotations.contains_key(CONFIRMED_BY));
    let path = || PointerBuf::from_tokens(["metadata", "annotations", CONFIRMED_BY]);
    let operation = match (ticket, annotations) {
        (Some(ticket), Some(_)) => {
            Some(PatchOperation::Add(AddOperation { path: path(), value: Value::String(ticket) }))
        }
        (Some(ticket), None) => Some(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["metadata", "annotations"]),
            value: json!({CONFIRMED_BY: ticket}),
        })),
        (None, _) => has.then(|| PatchOperation::Remove(RemoveOperation { path: path() })),
    };
    Patch(operation.into_iter().collect())
}

/// Stores the commands of a user to the guard in this edit of a GuardedRelease. The guard itself creates and deletes
/// GuardedReleases with their releases.
pub(super) fn record_acts(setup: &Setup, request: &AdmissionRequest<'_>, old: &Value, new: &Value) {
    let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
    let Some((namespace, name)) = request.head.namespace.as_deref().zip(name(new).or_else(|| name(old)))
    else {
        return;
    };
    if request.dry_run || setup.own_account.as_ref() == Some(&request.actor.user) {
        return;
    }
    for (act, detail) in acts(old, new) {
        let object = ObjectId {
            group: GROUP.into(),
            kind: KIND.into(),
            namespace: Some(namespace.into()),
            name: name.as_str().into(),
        };
        let edit = ReviewedEdit {
            object,
            operation: request.head.operation,
            actor: request.actor.clone(),
            uid: request.head.uid.clone().into_owned(),
        };
        let id = ReleaseId { namespace: namespace.into(), name: name.as_str().into() };
        let known = setup.source.index().read().release(&id).map(|release| release.state.revision);
        let row = LedgerRow::act(Timestamp::now(), edit, known.map(|revision| (id, revision)), act);
        setup.ledger.record(LedgerRow { detail, ..row });
    }
}

/// The commands in an edit of a GuardedRelease from `old` to `new`, each with its description.
/// `old` is null for a creation, `new` for a deletion.
fn acts(old: &Value, new: &Value) -> Vec<(Act, String)> {
    let at = |object: &Value| object.pointer("/spec/reconcileAt").cloned().unwrap_or_default();
    let steered = match (suspension(old), suspension(new)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => Some((Act::Suspend, now)),
        (Some(_), None) => Some((Act::Resume, String::new())),
        _ => None,
    };
    let is_ordered = !at(new).is_null() && at(old) != at(new);
    let ordered = is_ordered.then(|| (Act::Reconcile, String::new()));
    steered.into_iter().chain(ordered).collect()
}

/// The end and the reason of a suspension, as far as they are given; `None` if repairs are not
/// suspended.
fn suspension(object: &Value) -> Option<String> {
    let spec = object.get("spec")?;
    let text = |field: &str| spec.get(field).and_then(Value::as_str);
    let until = text("suspendUntil").map(|until| format!("until {until}"));
    let parts = [until.as_deref(), text("suspendReason")];
    spec.get("suspend")?.as_bool()?.then(|| parts.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

#[cfg(test)]
mod tests;
