mod attempts {
    use super::super::*;

    #[tokio::test(start_paused = true)]
    async fn new_kind_is_tried_soon_despite_backoff_of_unserved_kind() {
        let (mut attempts, mut now) = (LearningAttempts::none(), Instant::now());
        assert_eq!(attempts.at, None);
        attempts.hasten(now);
        let mut asked = 0;
        while let Some(at) = attempts.at.take().filter(|at| at.duration_since(now) < LONGEST_PAUSE) {
            now = at;
            attempts.note(true, now);
            asked += 1;
        }
        assert!(asked < 12, "{asked} attempts");
        attempts.note(true, now);
        assert_eq!(attempts.at, Some(now + LONGEST_PAUSE));
        attempts.hasten(now);
        assert_eq!(attempts.at, Some(now + SETTLING));
        // And one more does not put it off, not even during an attempt.
        attempts.hasten(now + SETTLING / 2);
        attempts.note(true, now + SETTLING / 2);
        assert_eq!(attempts.at.take(), Some(now + SETTLING));
        attempts.note(false, now + SETTLING);
        assert_eq!(attempts.at, None);
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_reruns_at_once_after_new_crd_and_otherwise_rarely() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start);
        for (seconds, is_due) in [(0, false), (10, false), (11, true)] {
            assert_eq!(discovery.is_due(start + Duration::from_secs(seconds)), is_due, "{seconds}");
        }
        discovery.outdated = true;
        assert!(discovery.is_due(start));
        discovery.begin(start);
        assert!(!discovery.is_due(start));
    }

    #[tokio::test(start_paused = true)]
    async fn kind_that_is_not_found_is_looked_for_soon_then_every_minute() {
        let start = Instant::now();
        let mut discovery = Discovery::new(start);
        for pause in [10, 20, 40, 60, 60] {
            assert!(!discovery.is_due_again(start + Duration::from_secs(pause)), "{pause}");
            assert!(discovery.is_due_again(start + Duration::from_secs(pause + 1)), "{pause}");
            discovery.note_found(false);
        }
        discovery.note_found(true);
        assert!(discovery.is_due_again(start + Duration::from_secs(11)));
    }
}
