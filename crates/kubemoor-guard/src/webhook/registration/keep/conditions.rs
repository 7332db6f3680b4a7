//! The guard's own conditions among those of a webhook.
//!
//! Entry points: [`merge`], [`admins`]. Invariant: conditions that the admin added stay. Must not drop the
//! guard's own: without them, a webhook for statuses would receive all updates of controllers.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use super::super::conditions::OWN;

/// The conditions `live` with those of `own` in their places, and no others of the guard.
pub(super) fn merge(live: &mut Option<Vec<MatchCondition>>, own: Option<&[MatchCondition]>) {
    let own = own.unwrap_or_default();
    if let Some(live) = live {
        live.retain(|it| is_admins(it) || own.iter().any(|own| own.name == it.name));
    }
    for condition in own {
        let live = live.get_or_insert_default();
        match live.iter_mut().find(|it| it.name == condition.name) {
            Some(known) => known.clone_from(condition),
            None => live.push(condition.clone()),
        }
    }
    live.take_if(|live| live.is_empty());
}

/// The conditions that are not the guard's own.
pub(super) fn admins(all: Option<&[MatchCondition]>) -> Option<Vec<MatchCondition>> {
    let admins: Vec<_> = all.unwrap_or_default().iter().filter(|it| is_admins(it)).cloned().collect();
    (!admins.is_empty()).then_some(admins)
}

fn is_admins(condition: &MatchCondition) -> bool {
    !OWN.contains(&condition.name.as_str())
}
