mod definitions {
    use super::super::*;

    #[tokio::test(start_paused = true)]
    async fn definition_that_could_not_be_read_is_read_again() {
        let mut definitions = Definitions::default();
        let meta =
            Meta { name: "a.example.com".to_owned(), resource_version: "1".to_owned(), ..Meta::default() };
        definitions.set(meta);
        let names = HashSet::from(["a.example.com".to_owned()]);
        let mut pauses = Vec::new();
        for attempt in 0..8 {
            assert_eq!(definitions.take_changed(), names);
            assert_eq!(definitions.put_back(names.clone()), attempt == 0);
            let at = definitions.settled_at.expect("it is tried again");
            pauses.push(at.duration_since(Instant::now()).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        definitions.take_changed();
        assert!(!definitions.put_back(HashSet::new()) && definitions.settled_at.is_none());
        assert!(definitions.put_back(names), "the next failure is a new one");
    }
}

mod attempts {
    use super::super::*;

    #[tokio::test(start_paused = true)]
    async fn new_kind_is_tried_soon_despite_backoff_of_unserved_kind() {
        let (mut attempts, mut now) = (LearningAttempts::none(), Instant::now());
        assert_eq!(attempts.at, None);
        attempts.owe(now);
        let mut asked = 0;
        while let Some(at) = attempts.at.filter(|at| at.duration_since(now) < LONGEST_PAUSE) {
            now = at;
            attempts.tried(Left::Owed, now);
            asked += 1;
        }
        assert!(asked < 12, "{asked} attempts");
        assert_eq!(attempts.at, Some(now + LONGEST_PAUSE));
        attempts.owe(now);
        assert_eq!(attempts.at, Some(now + SETTLING));
        // And one more does not put it off.
        attempts.owe(now + SETTLING / 2);
        assert_eq!(attempts.at, Some(now + SETTLING));
        attempts.tried(Left::Nothing, now + SETTLING);
        assert_eq!(attempts.at, None);
    }

    #[tokio::test(start_paused = true)]
    async fn kind_that_is_not_found_is_looked_for_every_minute_then_seldom() {
        let (mut attempts, mut now) = (LearningAttempts::none(), Instant::now());
        attempts.owe(now);
        for tries in 1..30 {
            now = attempts.at.unwrap();
            attempts.tried(Left::Doubts, now);
            let pause = attempts.at.unwrap() - now;
            assert!(pause <= LONGEST_DOUBT || tries >= DOUBTS, "{tries}: {pause:?}");
        }
        assert_eq!(attempts.at, Some(now + LONGEST_PAUSE));
        attempts.owe(now);
        assert_eq!(attempts.at, Some(now + SETTLING));
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_reruns_at_once_after_new_crd_and_otherwise_rarely() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start);
        for (seconds, is_due) in [(0, false), (10, false), (11, true)] {
            assert_eq!(discovery.is_due(start + Duration::from_secs(seconds)), is_due, "{seconds}");
        }
        discovery.outdate();
        assert!(discovery.is_due(start));
        assert!(!Discovery::new(start).is_due(start));
    }
}

mod doubts {
    use super::super::*;
    use crate::client::call::ClusterError;

    #[test]
    fn doubt_of_a_watch_ends_when_the_watch_is_open() {
        let (doubts, mut doubt) = (Doubts::default(), WatchDoubt::default());
        let late = ClusterError::Late { within: std::time::Duration::ZERO };
        for (event, is_not_found, is_doubted) in [
            (ObjectEvent::<()>::Broken(late), false, false),
            (ObjectEvent::Broken(ClusterError::Unserved), true, true),
            (ObjectEvent::Broken(ClusterError::Unserved), true, true),
            (ObjectEvent::Relisting, false, true),
            (ObjectEvent::Watching, false, false),
        ] {
            assert_eq!(doubt.take(&event, || doubts.raise()), is_not_found);
            assert_eq!(doubts.sweep(), is_doubted);
        }
    }

    #[test]
    fn a_doubt_lasts_as_long_as_it_is_kept() {
        let doubts = Doubts::default();
        assert!(!doubts.sweep());
        let (first, second) = (doubts.raise(), doubts.raise());
        drop(first);
        assert!(doubts.sweep());
        drop(second);
        assert!(!doubts.sweep());
    }
}

mod owed {
    use super::super::*;

    fn gvk(number: usize) -> Gvk {
        Gvk { group: "example.org".to_owned(), version: "v1".to_owned(), kind: format!("Kind{number}") }
    }

    #[test]
    fn undeclared_kinds_are_dropped_whenever_their_number_has_doubled() {
        let (mut owed, mut looks) = (Owed::default(), 0);
        let declared: HashSet<Gvk> = (0..10).map(gvk).collect();
        for number in 0..20 * MANY {
            owed.add([gvk(number)]);
            if owed.is_crowded() {
                looks += 1;
                owed.drop_undeclared(|gvk| declared.contains(gvk));
            }
            assert!(owed.kinds.len() <= MANY, "{number}");
        }
        assert!(declared.is_subset(&owed.kinds) && looks <= 21, "{looks}");
        assert!(!owed.add([gvk(0)]) && owed.add([gvk(usize::MAX)]));
        owed.drop_learned(&declared);
        assert!(owed.kinds.is_disjoint(&declared));
    }
}
