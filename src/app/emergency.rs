//! Applies the emergency switch to a running guard.
//!
//! Entry points: [`obey`]; [`keep`] records each turn in the ledger and notifies receivers. Invariant: during
//! an emergency the resolver allows every change of every release, so that nothing is denied or repaired.
//! Health, metrics and the log report the emergency.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use kubemoor_cluster::mirror::policies::InForce;
use kubemoor_declare::model::{Actor, ObjectId};
use kubemoor_guard::admin::Condition;
use kubemoor_guard::webhook::registration::emergency::{MARKER, Turn};
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Act, ReviewedEdit, Row};
use kubemoor_notify::Notifiers;
use kubemoor_notify::message::{Message, Subject};
use kubemoor_runtime::metrics::EmergencyMetrics;

/// Records each turn in the ledger, and notifies receivers.
pub(super) fn keep(ledger: Ledger, notifiers: Notifiers) -> impl Fn(Turn) + Send {
    move |turn| {
        notifiers.send(&[], message(&turn));
        ledger.record(row(turn));
    }
}

/// Does what `open` says until `stop`.
pub(super) async fn obey(
    mut open: watch::Receiver<Option<bool>>,
    in_force: Arc<InForce>,
    condition: Condition,
    metrics: EmergencyMetrics,
    stop: CancellationToken,
) {
    let mut was_open = false;
    loop {
        let is_open = open.borrow_and_update().unwrap_or_default();
        if is_open != was_open {
            in_force.set_open(is_open);
            metrics.open(is_open);
            if is_open {
                tracing::warn!("the emergency is open: no change is checked and nothing is repaired");
                condition.noted(
                    "open: no change is checked and nothing is repaired until `kubemoor emergency close`",
                );
            } else {
                tracing::info!("the emergency is over: changes are checked and drift is repaired again");
                condition.met();
            }
            was_open = is_open;
        } else if !is_open {
            condition.met();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = open.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// The notification that an emergency began or ended.
fn message(turn: &Turn) -> Message {
    let subject = if turn.open { Subject::EmergencyOpened } else { Subject::EmergencyClosed };
    let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    Message { by: said(&turn.by), detail: said(&turn.reason), ..Message::new(subject, Timestamp::now()) }
}

/// The same as the ledger keeps it: once, whichever guard sees it first.
fn row(turn: Turn) -> Row {
    let act = if turn.open { Act::Open } else { Act::Close };
    let edit = ReviewedEdit {
        object: ObjectId {
            group: "admissionregistration.k8s.io".into(),
            kind: "ValidatingWebhookConfiguration".into(),
            namespace: None,
            name: MARKER.into(),
        },
        operation: None,
        actor: Actor { user: turn.by, ..Actor::default() },
        uid: String::new(),
    };
    let same = Some(format!("{} {act:?}", turn.emergency)).filter(|_| !turn.emergency.is_empty());
    Row { same, detail: turn.reason, ..Row::act(Timestamp::now(), edit, None, act) }
}
