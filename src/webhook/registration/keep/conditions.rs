//! The guard's own conditions among those of a webhook.
//!
//! Entry point: [`merge`]. Invariant: conditions that the admin added stay. Must not drop the
//! guard's own: without them, a webhook for statuses would receive all updates of controllers.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

/// The conditions `live` with those of `own` in their places.
pub(super) fn merge(live: &mut Option<Vec<MatchCondition>>, own: Option<&[MatchCondition]>) {
    for condition in own.into_iter().flatten() {
        let live = live.get_or_insert_default();
        match live.iter_mut().find(|it| it.name == condition.name) {
            Some(known) => known.clone_from(condition),
            None => live.push(condition.clone()),
        }
    }
}
