//! Releases that have to be assembled again although their records are the same.
//!
//! Entry point: [`Outdated::take`]. Invariant: a release stays one until it was assembled again. Must not assemble it.

use std::collections::HashSet;

use parking_lot::Mutex;

use kubemoor_declare::model::ReleaseId;

/// One of them, which is being assembled. It stays outdated if that fails, or if nobody waits for it any more.
pub(super) struct Outdated<'r> {
    all: &'r Mutex<HashSet<ReleaseId>>,
    id: Option<ReleaseId>,
}

impl<'r> Outdated<'r> {
    pub(super) fn take(all: &'r Mutex<HashSet<ReleaseId>>, id: &ReleaseId) -> Option<Self> {
        let id = all.lock().take(id)?;
        Some(Self { all, id: Some(id) })
    }

    /// It was assembled again.
    pub(super) fn end(mut self) {
        self.id = None;
    }
}

impl Drop for Outdated<'_> {
    fn drop(&mut self) {
        self.all.lock().extend(self.id.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_stays_outdated_until_it_is_assembled_again() {
        let id = ReleaseId { namespace: "shop".into(), name: "web".into() };
        let all = Mutex::new(HashSet::from([id.clone()]));
        drop(Outdated::take(&all, &id));
        assert!(all.lock().contains(&id), "nobody waited for it");
        let outdated = Outdated::take(&all, &id);
        assert!(Outdated::take(&all, &id).is_none());
        // Outdated again meanwhile.
        all.lock().insert(id.clone());
        outdated.into_iter().for_each(Outdated::end);
        assert!(all.lock().contains(&id));
        Outdated::take(&all, &id).into_iter().for_each(Outdated::end);
        assert!(all.lock().is_empty());
    }
}
