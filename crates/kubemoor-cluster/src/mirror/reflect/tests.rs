mod reflect {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::super::*;

    struct Names {
        known: BTreeSet<&'static str>,
        warnings: Cell<usize>,
        listings: Listings,
    }

    impl Mirror for Names {
        type Object = &'static str;
        type Key = &'static str;
        const OBJECTS: &'static str = "names";
        const UNWATCHED: &'static str = "names cannot be watched";

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

        fn warn(&self, _: &ClusterError) {
            self.warnings.set(self.warnings.get() + 1);
        }

        fn listings(&self) -> Option<&Listings> {
            Some(&self.listings)
        }
    }

    fn broken() -> ObjectEvent<&'static str> {
        ObjectEvent::Broken(ClusterError::Unserved)
    }

    /// What is known after these events, how many warnings were logged, and how far
    /// the first of two listings is said to be.
    fn check(
        events: Vec<ObjectEvent<&'static str>>,
        known: &[&'static str],
        warnings: usize,
        progress: &Progress,
    ) {
        let shown = format!("{events:?}");
        let mut names =
            Names { known: BTreeSet::new(), warnings: Cell::new(0), listings: Listings::new(&[]) };
        let mut reflector = Reflector::new(futures::stream::pending().boxed());
        events.into_iter().for_each(|event| reflector.take(event, &mut names));
        assert_eq!(names.known.into_iter().collect::<Vec<_>>(), known, "{shown}");
        assert_eq!(names.warnings.get(), warnings, "{shown}");
        assert_eq!(*names.listings.progress().borrow(), *progress, "{shown}");
    }

    fn first() -> Vec<ObjectEvent<&'static str>> {
        vec![
            ObjectEvent::Relisting,
            ObjectEvent::Listed("a"),
            ObjectEvent::Listed("b"),
            ObjectEvent::Synced,
            ObjectEvent::Watching,
        ]
    }

    #[test]
    fn whole_listing_replaces_what_was_known() {
        use ObjectEvent::{Applied, Deleted, Listed, Relisting, Synced};
        let check = |then: Vec<ObjectEvent<&'static str>>, known: &[&'static str]| {
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
        let failing = Progress::Failing(format!("names cannot be listed: {}", ClusterError::Unserved));
        check(vec![ObjectEvent::Relisting, broken(), ObjectEvent::Relisting, broken()], &[], 1, &failing);
        let after =
            |then: Vec<ObjectEvent<&'static str>>| first().into_iter().chain(then).collect::<Vec<_>>();
        check(after(vec![broken(), broken()]), &["a", "b"], 1, &Progress::Listed);
        check(after(vec![broken(), ObjectEvent::Relisting, broken()]), &["a", "b"], 1, &Progress::Listed);
        check(after(vec![broken(), ObjectEvent::Watching, broken()]), &["a", "b"], 2, &Progress::Listed);
    }

    #[test]
    fn listing_is_under_way_until_it_is_whole() {
        let mut names =
            Names { known: BTreeSet::new(), warnings: Cell::new(0), listings: Listings::new(&[]) };
        let mut reflector = Reflector::new(futures::stream::pending().boxed());
        let mut take = |event| {
            reflector.take(event, &mut names);
            reflector.is_listing()
        };
        assert_eq!(
            [
                ObjectEvent::Relisting,
                ObjectEvent::Listed("a"),
                broken(),
                ObjectEvent::Relisting,
                ObjectEvent::Synced,
                ObjectEvent::Watching
            ]
            .map(&mut take),
            [true, true, true, true, false, false]
        );
    }
}

mod queue {
    use super::super::*;

    #[tokio::test]
    async fn waiting_item_is_delivered_once_when_announced_again() {
        let announcer = ChangeAnnouncer::default();
        let changes = announcer.subscribe(["web", "db"]);
        announcer.announce(&"web");
        announcer.announce(&"cache");
        assert_eq!(
            [changes.next().await, changes.next().await, changes.next().await],
            ["web", "db", "cache"]
        );
        assert!(changes.0.items.lock().0.is_empty());
    }

    #[tokio::test]
    async fn item_can_be_queued_again_after_it_was_taken() {
        let changes = ChangeQueue::new();
        changes.add("web");
        assert_eq!(changes.next().await, "web");
        changes.add("web");
        assert_eq!(changes.next().await, "web");
    }

    #[tokio::test]
    async fn drained_queue_gives_back_its_memory() {
        let changes = ChangeQueue::new();
        (0..10_000).for_each(|number| changes.add(number));
        for number in 0..10_000 {
            assert_eq!(changes.next().await, number);
        }
        let items = changes.0.items.lock();
        assert!(items.0.capacity() <= 2 * USUAL && items.1.capacity() <= 2 * USUAL);
    }

    #[tokio::test]
    async fn a_receiver_that_is_gone_is_forgotten() {
        let announcer = ChangeAnnouncer::default();
        drop(announcer.subscribe(["web"]));
        announcer.announce(&"db");
        assert!(announcer.0.lock().is_empty());
    }

    #[tokio::test]
    async fn a_waiting_receiver_wakes() {
        let announcer = Arc::new(ChangeAnnouncer::default());
        let changes = announcer.subscribe([]);
        let waiting = tokio::spawn(async move { changes.next().await });
        tokio::task::yield_now().await;
        announcer.announce(&"web");
        assert_eq!(waiting.await.unwrap(), "web");
    }
}
