//! Repair orders: `spec.reconcileAt` of a GuardedRelease, set by users who may patch it. Creations and deletions are
//! reviewed too, because a suspension may begin or end with them.
//!
//! An order is always allowed. The guard writes values that it has never seen in the live objects only if the API
//! server confirms that the user who orders it may write these objects; a ticket records that, so that the leader,
//! perhaps another replica, can check it. A dry run makes no ticket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::review::{AdmissionRequest, AdmissionResponse, ReviewHead};
use super::validate::ValidatorContext;
use crate::LiveCluster;
use crate::guard::state::LoopState;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::guarded::KIND;
use kubemoor_cluster::client::objects::ObjectTarget;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::{Actor, ObjectId, Operation, ReleaseId};
use kubemoor_helm::release::Release;
use kubemoor_ledger::row::{Act, LedgerRow, ReviewedEdit};
use kubemoor_policy::guarded::{GuardedReleaseSpec, Suspension};
use kubemoor_policy::signing::{CONFIRMED_BY, OrderGrant, Ticket, TicketOrder, Verb, hex};
use kubemoor_reconcile::report::DriftKind;
use kubemoor_runtime::callers::CallerSecrets;
use kubemoor_verdict::message::{UnrepairedReason, of_order};

/// The maximum number of objects that are checked for one order; the rest needs another order.
const OBJECTS: usize = 200;

/// Questions to the API server at one time.
const AT_ONCE: usize = 10;

/// Objects that the answer names one by one.
const NAMED: usize = 10;

/// The annotation of a dry-run creation that tests whether the API server reaches the guard, and the warning that
/// answers it: without the warning, `failurePolicy: Ignore` would hide an unreachable guard.
pub const PROBE: &str = "kubemoor.dev/probe";
pub const PROBE_ANSWER: &str = "the guard answers";

/// The API group whose objects need more than the permission to update: the API server requires
/// further permissions, which depend on the values.
const ESCALATING: &str = "rbac.authorization.k8s.io";

pub(super) fn is_order(head: &ReviewHead) -> bool {
    head.resource.resource == "guardedreleases"
        && head.resource.group == "kubemoor.dev"
        && head.subresource.is_none()
        && head.operation.is_some()
}

/// The GuardedRelease before and after an edit. Before its creation and after its deletion it is null. Returns `None` if
/// either object cannot be read.
pub(super) fn objects(request: &AdmissionRequest<'_>) -> Option<(Value, Value)> {
    let read = |text: &Option<Excerpt<'_>>| match text {
        Some(text) => text.value(),
        None => Some(Value::Null),
    };
    Some((read(&request.old_object)?, read(&request.object)?))
}

/// The answer to an order, and to any other change of a GuardedRelease from `old` to `new`.
pub(super) async fn answer(
    request: &AdmissionRequest<'_>,
    (old, new): (&Value, &Value),
    (live, callers): (&LiveCluster, &CallerSecrets),
    deadline: Instant,
) -> AdmissionResponse {
    // A ticket contains the uid of the GuardedRelease, which a creation does not have yet.
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
    let (objects, refused) = ask_grants(&known, &request.actor, live, deadline).await;
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
    let secret = callers.secret();
    let key = secret.signing().filter(|_| !ticket.objects.is_empty());
    let text = key.and_then(|key| ticket.sign(key, &order).ok());
    answer.patch(annotating(new, text))
}

/// Asks the API server whether the user may write each of the unconfirmed objects. Returns what is granted, and the objects
/// that stay unchanged, and why.
async fn ask_grants(
    release: &Arc<Release>,
    user: &Actor,
    live: &LiveCluster,
    deadline: Instant,
) -> (Vec<OrderGrant>, Vec<String>) {
    let mut open = unconfirmed(&live.state, &release.id);
    let beyond = open.split_off(open.len().min(OBJECTS));
    let within = deadline.saturating_duration_since(Instant::now());
    let target = |object: &ObjectId| {
        let declared = release.declared(object).filter(|_| object.group != ESCALATING)?;
        live.kinds.target(object, &declared.version)
    };
    let open: Vec<_> = open
        .into_iter()
        .map(|(verb, object)| {
            let target = target(&object);
            (verb, object, target)
        })
        .collect();
    let may = |verb: Verb, target: ObjectTarget, name: Option<String>| async move {
        let right = Right {
            verb: word(verb),
            group: &target.resource.group,
            resource: &target.resource.plural,
            namespace: target.namespace.as_deref(),
            name: name.as_deref(),
        };
        let asked = timeout_at(deadline, access::is_user_allowed(&live.client, user, &right)).await;
        asked.unwrap_or(Err(ClusterError::Late { within }))
    };
    // Most users who may write one object of a kind may write all of them: then one question per kind is enough.
    let kind = |verb: Verb, target: &ObjectTarget| {
        (
            word(verb).to_owned(),
            target.resource.group.clone(),
            target.resource.plural.clone(),
            target.namespace.clone(),
        )
    };
    let kinds: BTreeMap<_, _> = open
        .iter()
        .filter_map(|(verb, _, target)| Some((kind(*verb, target.as_ref()?), (*verb, target.clone()?))))
        .collect();
    let whole: BTreeSet<_> = futures::stream::iter(kinds)
        .map(|(kind, (verb, target))| async move {
            may(verb, target, None).await.is_ok_and(|may| may).then_some(kind)
        })
        .buffered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let whole = &whole;
    let ask = |(verb, object, target): (Verb, ObjectId, Option<ObjectTarget>)| async move {
        let refused = |why| Err(of_order(&object, &release.id, why));
        let Some(target) = target else { return refused(UnrepairedReason::OnlyHelm) };
        let answer = match whole.contains(&kind(verb, &target)) {
            true => Ok(true),
            false => may(verb, target, Some(object.name.to_string())).await,
        };
        let (user, verb_word) = (&*user.user, word(verb));
        match answer {
            Ok(true) => Ok(OrderGrant::new(verb, &object, &release.id)),
            Ok(false) => refused(UnrepairedReason::NoRight { user, verb: verb_word }),
            Err(error) => {
                let (reason, is_outage) = (error.to_string(), error.is_outage());
                refused(UnrepairedReason::Unchecked { user, verb: verb_word, error: &reason, is_outage })
            }
        }
    };
    let answers: Vec<_> = futures::stream::iter(open.into_iter().map(ask)).buffered(AT_ONCE).collect().await;
    let (mut granted, mut refused) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(grant) => granted.push(grant),
            Err(why) => refused.push(why),
        }
    }
    refused.extend(
        beyond.iter().map(|(_, object)| of_order(object, &release.id, UnrepairedReason::TooManyObjects)),
    );
    (granted, refused)
}

/// The objects of a release that the loop does not repair until a user confirms it, and what a repair does to each.
fn unconfirmed(state: &LoopState, release: &ReleaseId) -> Vec<(Verb, ObjectId)> {
    let Some(report) = state.report(release) else { return Vec::new() };
    let is_missing = |object: &ObjectId| {
        report.drifted.iter().any(|it| it.kind == DriftKind::Missing && *it.object == *object)
    };
    let verb = |object: &ObjectId| if is_missing(object) { Verb::Create } else { Verb::Update };
    report.unconfirmed.iter().map(|object| (verb(object), object.clone())).collect()
}

fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "create",
        Verb::Update => "update",
    }
}

/// The patch that sets the ticket of this order, or removes an earlier ticket.
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

/// Records a user's commands in this edit of a GuardedRelease. Edits by the guard itself are skipped: it creates and
/// deletes GuardedReleases with their releases.
pub(super) fn record_acts(
    setup: &ValidatorContext,
    request: &AdmissionRequest<'_>,
    old: &Value,
    new: &Value,
) {
    let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
    let Some((namespace, name)) = request.head.namespace.as_deref().zip(name(new).or_else(|| name(old)))
    else {
        return;
    };
    if request.dry_run || setup.own_account.as_ref() == Some(&request.actor.user) {
        return;
    }
    for (act, detail) in acts(old, new) {
        let edit = ReviewedEdit {
            object: ObjectId::namespaced(GROUP, KIND, namespace, &name),
            operation: request.head.operation,
            actor: request.actor.clone(),
            uid: request.head.uid.to_string(),
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
    let [old, new] = [old, new].map(|object| {
        let spec = object.get("spec").cloned().unwrap_or_default();
        serde_json::from_value::<GuardedReleaseSpec>(spec).unwrap_or_default()
    });
    let suspension = |spec: &GuardedReleaseSpec| spec.suspend.then(|| Suspension::describe(spec));
    let steered = match (suspension(&old), suspension(&new)) {
        (before, Some(now)) if before.as_ref() != Some(&now) => Some((Act::Suspend, now)),
        (Some(_), None) => Some((Act::Resume, String::new())),
        _ => None,
    };
    let is_ordered = new.reconcile_at.is_some() && old.reconcile_at != new.reconcile_at;
    let ordered = is_ordered.then(|| (Act::Reconcile, String::new()));
    steered.into_iter().chain(ordered).collect()
}

#[cfg(test)]
mod tests;
