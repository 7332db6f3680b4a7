//! The open watches, and which of them have been listed. An object that is absent from an incomplete list is not known
//! to be missing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;
use kubemoor_verdict::health::Unwatched;

/// A kind in an API version, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchScope {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub namespace: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Scopes {
    open: BTreeMap<WatchScope, Watched>,
    /// Whether it is known which watches to open.
    are_known: bool,
}

#[derive(Debug, Default)]
struct Watched {
    whole: bool,
    /// It broke before its first listing was complete, and the guard tries again.
    broken: bool,
    /// The message of the API server, if the guard has no permission for it.
    forbidden: Option<String>,
    listing: Option<HashSet<ObjectId>>,
    /// Policies have changed since the last listing began.
    outdated: bool,
    /// Whether all objects of the running list are compared again.
    judges_all: bool,
}

impl WatchScope {
    pub(crate) fn holds(&self, object: &ObjectId) -> bool {
        object.kind == self.kind
            && object.group == self.group
            && (self.namespace.is_none() || self.namespace.as_deref() == object.namespace.as_deref())
    }
}

impl Scopes {
    /// Sets the scopes to watch. Returns the watches to open and to close.
    pub(crate) fn want(&mut self, wanted: &BTreeSet<WatchScope>) -> (Vec<WatchScope>, Vec<WatchScope>) {
        let closed: Vec<_> = self.open.keys().filter(|it| !wanted.contains(*it)).cloned().collect();
        let opened: Vec<_> = wanted.iter().filter(|it| !self.open.contains_key(*it)).cloned().collect();
        for scope in &closed {
            self.open.remove(scope);
        }
        self.open.extend(opened.iter().map(|scope| (scope.clone(), Watched::default())));
        self.are_known = true;
        (opened, closed)
    }

    /// Whether each wanted watch has been listed, or cannot be.
    pub(crate) fn are_listed(&self) -> bool {
        self.are_known && self.open.values().all(|watched| watched.whole || watched.broken)
    }

    pub(crate) fn has(&self, scope: &WatchScope) -> bool {
        self.open.contains_key(scope)
    }

    /// Whether a watch shows all changes of an object: its listing is complete.
    pub(crate) fn shows(&self, object: &ObjectId) -> bool {
        self.holding(object).any(|(_, watched)| watched.whole)
    }

    /// Whether a watch is open that may show an object.
    pub(crate) fn is_watched(&self, object: &ObjectId) -> bool {
        self.holding(object).next().is_some()
    }

    /// Whether the first listing of a watch that may show an object is under way.
    pub(crate) fn is_awaited(&self, object: &ObjectId) -> bool {
        !self.shows(object) && self.holding(object).any(|(_, watched)| !watched.broken)
    }

    pub(crate) fn begin_listing(&mut self, scope: &WatchScope) {
        if let Some(watched) = self.open.get_mut(scope) {
            watched.listing = Some(HashSet::new());
            watched.judges_all |= std::mem::take(&mut watched.outdated);
        }
    }

    /// Adds an object to the running listing. Returns whether it is compared even if it is unchanged.
    pub(crate) fn list(&mut self, scope: &WatchScope, object: &ObjectId) -> bool {
        let Some(watched) = self.open.get_mut(scope) else { return true };
        if let Some(listing) = &mut watched.listing {
            listing.insert(object.clone());
        }
        watched.judges_all || !watched.whole
    }

    /// Makes the next list of each watch compare all objects again.
    pub(crate) fn judge_again(&mut self) {
        self.open.values_mut().for_each(|watched| watched.outdated = true);
    }

    /// Ends a listing and returns its objects, and whether all were compared. `None` if it began before this watch was
    /// opened.
    pub(crate) fn end_listing(&mut self, scope: &WatchScope) -> Option<(HashSet<ObjectId>, bool)> {
        let watched = self.open.get_mut(scope)?;
        let listed = watched.listing.take()?;
        let are_judged = watched.judges_all || !watched.whole;
        (watched.whole, watched.broken, watched.judges_all) = (true, false, false);
        Some((listed, are_judged))
    }

    pub(crate) fn mark_broken(&mut self, scope: &WatchScope) {
        if let Some(watched) = self.open.get_mut(scope) {
            watched.broken = !watched.whole;
        }
    }

    /// Records that a watch is established; returns whether it was forbidden before.
    pub(crate) fn permit(&mut self, scope: &WatchScope) -> bool {
        self.open.get_mut(scope).is_some_and(|watched| watched.forbidden.take().is_some())
    }

    /// Records that the guard has no permission for a watch; returns whether that is new.
    pub(crate) fn forbid(&mut self, scope: &WatchScope, why: String) -> bool {
        self.open.get_mut(scope).is_some_and(|watched| watched.forbidden.replace(why).is_none())
    }

    pub(crate) fn is_forbidden(&self, object: &ObjectId) -> bool {
        self.holding(object).any(|(_, watched)| watched.forbidden.is_some())
    }

    /// The declared objects that the guard has no permission to watch, counted by kind and sorted; without those that
    /// are `known` otherwise.
    pub(crate) fn unwatched(&self, release: &Release, known: &HashSet<&ObjectId>) -> Vec<Unwatched> {
        let mut counts: BTreeMap<&WatchScope, (usize, &String)> = BTreeMap::new();
        let declared = release.objects.iter().filter(|(_, it)| it.latest.is_some());
        for object in declared.map(|(object, _)| &**object).filter(|object| !known.contains(object)) {
            for (scope, watched) in self.holding(object) {
                if let Some(why) = &watched.forbidden {
                    counts.entry(scope).or_insert((0, why)).0 += 1;
                }
            }
        }
        let of_scope = |(scope, (objects, why)): (&WatchScope, (usize, &String))| Unwatched {
            kind: scope.kind.clone(),
            objects,
            why: why.clone(),
        };
        let mut unwatched: Vec<_> = counts.into_iter().map(of_scope).collect();
        unwatched.sort_by(|a, b| (&a.kind, &a.why).cmp(&(&b.kind, &b.why)));
        unwatched
    }

    /// The scopes that hold an object. Only those of its group are searched: there may be thousands.
    fn holding<'s>(&'s self, object: &'s ObjectId) -> impl Iterator<Item = (&'s WatchScope, &'s Watched)> {
        let (version, kind) = (String::new(), String::new());
        let first = WatchScope { group: object.group.to_string(), version, kind, namespace: None };
        let of_group = self.open.range(first..).take_while(|(scope, _)| *object.group == *scope.group);
        of_group.filter(|(scope, _)| scope.holds(object))
    }
}
