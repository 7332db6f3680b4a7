//! What a mirror is told, event by event.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::super::progress::Progress;
use super::*;

struct Names {
    known: BTreeSet<&'static str>,
    warnings: Cell<usize>,
    listings: Listings,
}

impl Mirror for Names {
    type Object = &'static str;
    type Key = &'static str;
    const OBJECTS: &'static str = "names";

    fn set(&mut self, name: &'static str) -> Option<&'static str> {
        self.known.insert(name);
        (!name.is_empty()).then_some(name)
    }

    fn remove(&mut self, name: &'static str) {
        self.known.remove(name);
    }

    fn retain(&mut self, listed: &HashSet<&'static str>) {
        self.known.retain(|name| listed.contains(name));
    }

    fn warn(&self, _: &CallError) {
        self.warnings.set(self.warnings.get() + 1);
    }

    fn listings(&self) -> Option<&Listings> {
        Some(&self.listings)
    }
}

fn broken() -> Event<&'static str> {
    Event::Broken(CallError::Unserved)
}

/// What is known after these events, how many warnings were logged, and how far
/// the first of two listings is said to be.
fn check(events: Vec<Event<&'static str>>, known: &[&'static str], warnings: usize, progress: &Progress) {
    let shown = format!("{events:?}");
    let mut names = Names { known: BTreeSet::new(), warnings: Cell::new(0), listings: Listings::of(&[]) };
    let mut reflector = Reflector::new(futures::stream::pending().boxed());
    events.into_iter().for_each(|event| reflector.take(event, &mut names));
    assert_eq!(names.known.into_iter().collect::<Vec<_>>(), known, "{shown}");
    assert_eq!(names.warnings.get(), warnings, "{shown}");
    assert_eq!(*names.listings.progress().borrow(), *progress, "{shown}");
}

fn first() -> Vec<Event<&'static str>> {
    vec![Event::Relisting, Event::Listed("a"), Event::Listed("b"), Event::Synced, Event::Watching]
}

#[test]
fn whole_listing_replaces_what_was_known() {
    use Event::{Applied, Deleted, Listed, Relisting, Synced};
    let check = |then: Vec<Event<&'static str>>, known: &[&'static str]| {
        check(first().into_iter().chain(then).collect(), known, 0, &Progress::Listed);
    };
    check(vec![], &["a", "b"]);
    check(vec![Applied("c"), Deleted("a")], &["b", "c"]);
    check(vec![Relisting, Listed("b")], &["a", "b"]);
    check(vec![Relisting, Listed("b"), Synced], &["b"]);
    // A listing that was cut off leaves nothing to the next.
    check(vec![Relisting, Listed("a"), Relisting, Listed("b"), Synced], &["b"]);
    check(vec![Relisting, Synced], &[]);
}

#[test]
fn failure_takes_nothing_away_and_is_logged_once() {
    let failing = Progress::Failing(format!("names cannot be listed: {}", CallError::Unserved));
    check(vec![Event::Relisting, broken(), Event::Relisting, broken()], &[], 1, &failing);
    let after = |then: Vec<Event<&'static str>>| first().into_iter().chain(then).collect::<Vec<_>>();
    check(after(vec![broken(), broken()]), &["a", "b"], 1, &Progress::Listed);
    check(after(vec![broken(), Event::Relisting, broken()]), &["a", "b"], 1, &Progress::Listed);
    check(after(vec![broken(), Event::Watching, broken()]), &["a", "b"], 2, &Progress::Listed);
}

#[test]
fn listing_is_under_way_until_it_is_whole() {
    let mut names = Names { known: BTreeSet::new(), warnings: Cell::new(0), listings: Listings::of(&[]) };
    let mut reflector = Reflector::new(futures::stream::pending().boxed());
    let mut take = |event| {
        reflector.take(event, &mut names);
        reflector.is_listing()
    };
    assert_eq!(
        [Event::Relisting, Event::Listed("a"), broken(), Event::Relisting, Event::Synced, Event::Watching]
            .map(&mut take),
        [true, true, true, true, false, false]
    );
}
