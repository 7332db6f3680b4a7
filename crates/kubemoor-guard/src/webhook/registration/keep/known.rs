//! The last known state of a webhook configuration, and the changes by others.
//!
//! Entry points: `Known::note_own`, `meet`, `note_gone`, `take_changes`. Invariant: a state that is
//! older than the last one is ignored, and the guard's own writes are not changes by others.
//! Must not publish the value of an address: it holds the token by which the API server proves that
//! it calls.

mod differences;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use tokio::time::Instant;

use self::differences::differences;
use super::kinds::Configuration;

/// How many webhooks are named beside a change that many have in common.
const NAMED: usize = 3;

/// The field manager of every guard.
const GUARD: &str = "kubemoor";

/// For how long nobody may lead after a leader is gone.
const LEADERLESS: Duration = Duration::from_secs(60);

/// The most changes that are set aside.
const ASIDE: usize = 16;

/// A change or deletion by others of a configuration that the guard keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideChange {
    /// The kind of the configuration.
    pub kind: &'static str,
    /// Whether it was deleted or withdrawn.
    pub is_deletion: bool,
    /// The field managers that wrote it, as far as it says so.
    pub managers: Vec<String>,
    /// What tells this change from others, the same to every guard.
    pub same: String,
    /// The change, such as `failurePolicy Fail → Ignore (scale.kubemoor.dev)`.
    pub what: String,
}

/// One configuration in its last known state.
pub(super) struct Known<C> {
    last: Option<C>,
    is_gone: bool,
    changes: Vec<OutsideChange>,
    /// Changes that were seen while this replica did not lead, and when.
    aside: Vec<(Instant, OutsideChange)>,
}

impl OutsideChange {
    /// Whether somebody else than a guard wrote it. Where a guard wrote as well, the change may be its own.
    fn is_by_others(&self) -> bool {
        !self.managers.is_empty() && !self.managers.iter().any(|manager| manager == GUARD)
    }
}

impl<C: Configuration> Known<C> {
    pub(super) fn new() -> Self {
        Self { last: None, is_gone: false, changes: Vec::new(), aside: Vec::new() }
    }

    /// The last known state, even if the configuration is gone by now.
    pub(super) fn last(&self) -> Option<&C> {
        self.last.as_ref()
    }

    /// Records a state that the guard itself wrote.
    pub(super) fn note_own(&mut self, written: &C) {
        self.last = Some(written.clone());
        self.is_gone = false;
    }

    /// Compares a state that was read or watched with the last known one.
    pub(super) fn meet(&mut self, live: &C) {
        if self.last.as_ref().is_some_and(|last| !is_newer(live, last)) {
            return;
        }
        self.is_gone = false;
        let Some(before) = self.last.replace(live.clone()) else { return };
        let what = differences(&before.webhooks(), &live.webhooks());
        if !what.is_empty() {
            self.changes.push(OutsideChange {
                kind: C::KIND,
                is_deletion: false,
                managers: writers(&before, live),
                same: same(live),
                what: what.join("; "),
            });
        }
    }

    /// Records that the configuration is gone, and why.
    pub(super) fn note_gone(&mut self, what: &str) {
        let Some(last) = self.last.as_ref().filter(|_| !std::mem::replace(&mut self.is_gone, true)) else {
            return;
        };
        let (what, same) = (what.to_owned(), format!("{} {what}", same(last)));
        self.changes.push(OutsideChange {
            kind: C::KIND,
            is_deletion: true,
            managers: Vec::new(),
            same,
            what,
        });
    }

    /// Sets aside what was changed while another replica leads, or none does.
    pub(super) fn set_aside(&mut self, now: Instant) {
        self.aside.extend(std::mem::take(&mut self.changes).into_iter().map(|change| (now, change)));
        let surplus = self.aside.len().saturating_sub(ASIDE);
        self.aside.drain(..surplus);
    }

    /// Takes the lead: what others than a guard changed shortly before counts, also if the leader before told of it.
    pub(super) fn take_over(&mut self, now: Instant) {
        let aside = std::mem::take(&mut self.aside).into_iter();
        let recent = aside.filter(|(at, _)| now.duration_since(*at) < LEADERLESS).map(|(_, change)| change);
        let all = recent.chain(std::mem::take(&mut self.changes));
        self.changes = all.filter(|change| change.is_deletion || change.is_by_others()).collect();
    }

    /// Returns the changes by others, and forgets them.
    pub(super) fn take_changes(&mut self) -> Vec<OutsideChange> {
        std::mem::take(&mut self.changes)
    }
}

/// Whether a state is newer than another: resource versions grow. Versions that are not numbers are only equal or not.
fn is_newer<C: Configuration>(state: &C, other: &C) -> bool {
    let versions = [state, other].map(|it| it.meta().resource_version.as_deref().unwrap_or_default());
    match versions.map(str::parse::<u64>) {
        [Ok(state), Ok(other)] => state > other,
        _ => versions[0] != versions[1],
    }
}

/// What tells a state of a configuration from all others.
fn same<C: Configuration>(state: &C) -> String {
    let ObjectMeta { uid, resource_version, .. } = state.meta();
    format!("{} {}", uid.as_deref().unwrap_or_default(), resource_version.as_deref().unwrap_or_default())
}

/// The managers that wrote since. A manager that only lost a field to another one wrote nothing. Times are whole
/// seconds, so only the fields may show a second write.
fn writers<C: Configuration>(before: &C, after: &C) -> Vec<String> {
    let entries =
        |of: &C| -> Vec<ManagedFieldsEntry> { of.meta().managed_fields.clone().unwrap_or_default() };
    let (before, after) = (entries(before), entries(after));
    let is_later = |new: &&ManagedFieldsEntry| {
        let is_same = |old: &ManagedFieldsEntry| {
            (&old.manager, &old.operation, &old.time) == (&new.manager, &new.operation, &new.time)
        };
        !before.iter().any(is_same)
    };
    let mut wrote: Vec<&ManagedFieldsEntry> = after.iter().filter(is_later).collect();
    if wrote.is_empty() {
        wrote = after.iter().filter(|new| !before.contains(new)).collect();
    }
    wrote.iter().filter_map(|it| it.manager.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests;
