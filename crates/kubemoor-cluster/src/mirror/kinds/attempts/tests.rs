use super::*;

#[tokio::test(start_paused = true)]
async fn new_kind_is_tried_soon_despite_backoff_of_unserved_kind() {
    let (mut attempts, mut now) = (Attempts::none(), Instant::now());
    assert_eq!(attempts.due(), None);
    attempts.owe(now);
    let mut asked = 0;
    while let Some(at) = attempts.due().filter(|at| at.duration_since(now) < LONGEST_PAUSE) {
        now = at;
        attempts.tried(Left::Owed, now);
        asked += 1;
    }
    assert!(asked < 12, "{asked} attempts");
    assert_eq!(attempts.due(), Some(now + LONGEST_PAUSE));
    attempts.owe(now);
    assert_eq!(attempts.due(), Some(now + SETTLING));
    // And one more does not put it off.
    attempts.owe(now + SETTLING / 2);
    assert_eq!(attempts.due(), Some(now + SETTLING));
    attempts.tried(Left::Nothing, now + SETTLING);
    assert_eq!(attempts.due(), None);
}

#[tokio::test(start_paused = true)]
async fn kind_that_is_not_found_is_looked_for_every_minute_then_seldom() {
    let (mut attempts, mut now) = (Attempts::none(), Instant::now());
    attempts.owe(now);
    for tries in 1..30 {
        now = attempts.due().unwrap();
        attempts.tried(Left::Doubts, now);
        let pause = attempts.due().unwrap() - now;
        assert!(pause <= LONGEST_DOUBT || tries >= DOUBTS, "{tries}: {pause:?}");
    }
    assert_eq!(attempts.due(), Some(now + LONGEST_PAUSE));
    attempts.owe(now);
    assert_eq!(attempts.due(), Some(now + SETTLING));
}

#[tokio::test(start_paused = true)]
async fn discovery_reruns_at_once_after_new_crd_and_otherwise_rarely() {
    let start = Instant::now();
    let mut discovery = Discovery::made(start);
    for (seconds, is_due) in [(0, false), (10, false), (11, true)] {
        assert_eq!(discovery.is_due(start + Duration::from_secs(seconds)), is_due, "{seconds}");
    }
    discovery.outdate();
    assert!(discovery.is_due(start));
    assert!(!Discovery::made(start).is_due(start));
}
