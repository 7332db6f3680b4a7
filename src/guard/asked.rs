//! Repairs that people have asked for and that are not done yet.
//!
//! Entry point: [`Asked`]. Invariant: one wish repairs each object at most once,
//! however long others of its release keep it waiting. Pure state.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::model::{ObjectId, ReleaseId};
use crate::policy::order::Ticket;

/// What is to be repaired because a person said so.
#[derive(Debug, Default)]
pub(super) struct Asked(HashMap<ReleaseId, Wish>);

/// What a person wants of one release.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// What of it could not be done at once; all of it if it was not tried.
    rest: Option<HashSet<ObjectId>>,
    /// What they may write themself.
    pub(super) ticket: Option<Arc<Ticket>>,
}

impl Asked {
    /// A person asks for all of a release.
    pub(super) fn all_of(&mut self, release: ReleaseId, ticket: Option<Arc<Ticket>>) {
        self.0.insert(release, Wish { rest: None, ticket });
    }

    /// Takes what was asked for of a release.
    pub(super) fn take(&mut self, release: &ReleaseId) -> Option<Wish> {
        self.0.remove(release)
    }

    /// These objects of a wish are still to be done, unless more was asked for
    /// since.
    pub(super) fn leave(&mut self, release: &ReleaseId, wish: Wish, rest: HashSet<ObjectId>) {
        if !rest.is_empty() {
            self.0.entry(release.clone()).or_insert(Wish { rest: Some(rest), ..wish });
        }
    }
}

impl Wish {
    /// Whether an object is meant.
    pub(super) fn means(&self, object: &ObjectId) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.contains(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_lasts_for_what_has_to_wait_and_a_new_one_is_for_all() {
        let object = |name: &str| ObjectId {
            group: String::new(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
        };
        let release = ReleaseId { namespace: "n".to_owned(), name: "shop".to_owned() };
        let mut asked = Asked::default();
        assert!(asked.take(&release).is_none());
        asked.all_of(release.clone(), None);
        let wish = asked.take(&release).unwrap();
        assert!(wish.means(&object("a")));
        asked.leave(&release, wish, HashSet::from([object("b")]));
        let rest = asked.take(&release).unwrap();
        assert!(rest.means(&object("b")) && !rest.means(&object("a")));
        asked.leave(&release, rest.clone(), HashSet::new());
        assert!(asked.take(&release).is_none());
        // Asked for while the first was under way.
        asked.all_of(release.clone(), None);
        asked.leave(&release, rest, HashSet::from([object("b")]));
        assert!(asked.take(&release).is_some_and(|wish| wish.means(&object("a"))));
    }
}
