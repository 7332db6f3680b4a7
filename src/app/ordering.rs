//! What ordered repairs need: the list of objects whose repair needs a confirmation, and the key with which
//! replicas sign.
//!
//! Entry points: `Work::orders`, `Work::signing`. Must not decide what is repaired.

use std::sync::Arc;

use anyhow::Context as _;

use super::cluster::Work;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_guard::webhook::order::Orders;
use kubemoor_policy::order::Verb;
use kubemoor_policy::signing::SigningKey;
use kubemoor_reconcile::report::DriftKind;
use kubemoor_runtime::callers::random_key;

impl Work {
    /// The webhook's access to the loop when a user orders a repair.
    pub(super) fn orders(&self) -> Orders {
        let state = Arc::clone(&self.services.state);
        let unconfirmed = move |release: &ReleaseId| {
            let Some(report) = state.of(release) else { return Vec::new() };
            let is_missing = |object: &ObjectId| {
                report.drifted.iter().any(|it| it.kind == DriftKind::Missing && *it.object == *object)
            };
            let verb = |object: &ObjectId| if is_missing(object) { Verb::Create } else { Verb::Update };
            report.unconfirmed.iter().map(|object| (verb(object), object.clone())).collect()
        };
        Orders { unconfirmed: Box::new(unconfirmed), callers: self.services.judging.door().callers().clone() }
    }

    /// The key with which this guard and its other replicas sign, once it is known. A read-only guard shares
    /// no key.
    pub(super) async fn signing(&self, read_only: bool) -> anyhow::Result<SigningKey> {
        if read_only {
            return random_key().context("the loop cannot start");
        }
        Ok(self.services.judging.door().callers().signing().await)
    }
}
