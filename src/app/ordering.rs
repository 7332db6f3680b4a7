//! What orders of repairs take: what the loop leaves as it is until somebody gives
//! their word, and the key that replicas sign by.
//!
//! Entry points: `Work::orders`, `Work::signing`. Must not decide what is repaired.

use std::sync::Arc;

use super::cluster::Work;
use crate::callers::random_key;
use crate::model::{ObjectId, ReleaseId};
use crate::policy::order::Verb;
use crate::policy::signing::SigningKey;
use crate::reconcile::report::DriftKind;
use crate::webhook::order::Orders;

impl Work {
    /// What the webhook asks of the loop when somebody orders a repair.
    pub(super) fn orders(&self) -> Orders {
        let state = Arc::clone(&self.state);
        let unconfirmed = move |release: &ReleaseId| {
            let Some(report) = state.of(release) else { return Vec::new() };
            let is_missing = |object: &ObjectId| {
                report.drifted.iter().any(|it| it.kind == DriftKind::Missing && it.object == *object)
            };
            let verb = |object: &ObjectId| if is_missing(object) { Verb::Create } else { Verb::Update };
            report.unconfirmed.iter().map(|object| (verb(object), object.clone())).collect()
        };
        Orders { unconfirmed: Box::new(unconfirmed), callers: self.judging.door().callers().clone() }
    }

    /// What this guard and its other replicas sign by, once it is known; none if
    /// the guard is to stop before. One that writes nothing shares nothing.
    pub(super) async fn signing(&self, read_only: bool) -> Option<SigningKey> {
        if read_only {
            return random_key().inspect_err(|error| tracing::error!("the loop cannot start: {error}")).ok();
        }
        let door = self.judging.door();
        tokio::select! {
            () = self.stop.cancelled() => None,
            key = door.callers().signing() => Some(key),
        }
    }
}
