use super::*;

fn at() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn object(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shop", name)
}

/// The waits after each of `count` attempts, each made as soon as it may be.
fn waits(name: &str, count: u32) -> Vec<Duration> {
    let (mut backoff, object, mut now) = (Backoff::default(), object(name), at());
    (1..=count)
        .map(|attempt| {
            assert_eq!(backoff.attempt(&object, now), attempt);
            let wait = backoff.until(&object, now).unwrap_or_default();
            now += wait;
            assert_eq!(backoff.until(&object, now), None);
            wait
        })
        .collect()
}

#[test]
fn the_first_few_repairs_of_each_object_cost_no_wait() {
    assert_eq!(waits("a", 2), [Duration::ZERO; 2]);
    let (mut backoff, now) = (Backoff::default(), at());
    (0..9).for_each(|_| {
        backoff.attempt(&object("a"), now);
    });
    assert!(backoff.until(&object("a"), now).is_some());
    assert_eq!(backoff.until(&object("b"), now), None);
    // Nor do all objects come at once.
    let all: std::collections::HashSet<_> =
        (0..20).filter_map(|n| waits(&format!("web-{n}"), 12).last().copied()).collect();
    assert!(all.len() > 10, "{all:?}");
}

#[test]
fn repair_backoff_doubles_up_to_five_minutes_without_giving_up() {
    let waits = waits("web", 60);
    let later = &waits[2..];
    for (exponent, wait) in later.iter().enumerate() {
        // Up to a quarter less, so that nobody can keep step.
        let full = FIRST.saturating_mul(1 << exponent.min(20)).min(LONGEST);
        assert!(*wait <= full && *wait >= full.mul_f64(0.75), "{later:?}");
    }
    let ratios: std::collections::HashSet<_> = later.iter().skip(10).collect();
    assert!(ratios.len() > 10, "{later:?}");
}

#[test]
fn previously_contested_object_backs_off_from_the_first_repair() {
    let (mut backoff, object, now) = (Backoff::default(), object("a"), at());
    backoff.contest(&object, now);
    assert!(backoff.is_contested(&object, now) && backoff.until(&object, now).is_some());
    assert_eq!(backoff.attempt(&object, now), AT_ONCE + 1);
    // It forgets nothing that this process has learned.
    backoff.contest(&object, now);
    assert_eq!(backoff.attempt(&object, now), AT_ONCE + 2);
}

#[test]
fn attempts_without_an_answer_count_until_the_next_answer() {
    let (mut backoff, object, now) = (Backoff::default(), object("a"), at());
    backoff.attempt(&object, now);
    for _ in 0..9 {
        backoff.attempt_unanswered(&object, now);
    }
    assert!(backoff.until(&object, now).is_some_and(|wait| wait > Duration::from_secs(60)));
    assert!(!backoff.is_contested(&object, now), "nobody has undone a repair");
    assert_eq!(backoff.attempt(&object, now), 2);
    assert_eq!(backoff.until(&object, now), None);
}

#[test]
fn peace_starts_the_count_anew_and_forgets() {
    let (mut backoff, now) = (Backoff::default(), at());
    for _ in 0..9 {
        backoff.attempt(&object("a"), now);
    }
    assert_eq!(backoff.attempt(&object("a"), now + PEACE - Duration::from_secs(1)), 10);
    let later = now + PEACE * 2;
    assert_eq!(backoff.attempt(&object("a"), later), 1);
    for (prefix, at) in [("before", now), ("after", later)] {
        for number in 0..1000 {
            backoff.attempt(&object(&format!("{prefix}{number}")), at);
        }
    }
    // Those that were left in peace have made room.
    assert!(backoff.attempts.len() <= 1001, "{}", backoff.attempts.len());
}

#[test]
fn object_is_contested_while_it_needs_repeated_repairs() {
    let (mut backoff, a, now) = (Backoff::default(), object("a"), at());
    for attempts in 0..AT_ONCE {
        assert!(!backoff.is_contested(&a, now), "{attempts}");
        backoff.attempt(&a, now);
    }
    assert!(backoff.is_contested(&a, now) && !backoff.is_contested(&a, now + PEACE));
    backoff.forget(&a);
    assert!(!backoff.is_contested(&a, now) && backoff.until(&a, now).is_none());
}

#[test]
fn elapsed_time_is_maximal_when_the_clock_is_set_back() {
    let then: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
    for (millis, expected) in [
        (0, Duration::ZERO),
        (1500, Duration::from_millis(1500)),
        (-1000, Duration::ZERO),
        (-1001, Duration::MAX),
        (-86_400_000, Duration::MAX),
    ] {
        assert_eq!(elapsed(then, then + SignedDuration::from_millis(millis)), expected, "{millis}");
    }
}

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "n".into(), name: name.into() }
}

fn at_second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn all_releases_are_due_at_once_after_clock_moves_back() {
    let mut agenda = Timetable::default();
    for (name, second) in [("a", 9000), ("b", 3), ("c", 9999)] {
        agenda.schedule_by(&release(name), at_second(second));
    }
    agenda.bring_all_forward(at_second(5));
    assert_eq!(agenda.take_due(at_second(4)), [release("b")]);
    assert_eq!(agenda.take_due(at_second(5)), [release("a"), release("c")]);
    assert_eq!(agenda.next(), None);
}

#[test]
fn release_is_due_once_at_its_earliest_scheduled_time() {
    let mut agenda = Timetable::default();
    for (name, second) in [("a", 5), ("b", 3), ("a", 2), ("a", 9)] {
        agenda.schedule_by(&release(name), at_second(second));
    }
    assert_eq!(agenda.next(), Some(at_second(2)));
    assert_eq!(agenda.take_due(at_second(1)), []);
    assert_eq!(agenda.take_due(at_second(9)), [release("a"), release("b")]);
    assert_eq!((agenda.next(), agenda.take_due(at_second(99))), (None, Vec::new()));
}

#[test]
fn suspension_that_was_prolonged_or_ended_early_has_one_end() {
    let release = |name: &str| ReleaseId { namespace: "n".into(), name: name.into() };
    let at = |second| Timestamp::from_second(second).unwrap();
    let until = |end: Option<i64>| Suspension { until: end.map(at), ..Suspension::default() };
    let mut suspensions = Suspensions(SuspendedReleases::from([(release("a"), until(Some(5)))]));
    for (name, suspension) in
        [("a", Some(until(Some(9)))), ("b", Some(until(Some(3)))), ("b", None), ("c", Some(until(None)))]
    {
        suspensions.set(release(name), suspension);
    }
    assert_eq!(suspensions.next_end(), Some(at(9)));
    assert_eq!(suspensions.take_ended(at(8)), []);
    assert!(suspensions.get(&release("a"), at(8)).is_some());
    assert!(suspensions.get(&release("a"), at(9)).is_none(), "before it is taken");
    assert_eq!(suspensions.take_ended(at(9)), [release("a")]);
    assert_eq!(suspensions.next_end(), None);
    assert!(suspensions.get(&release("c"), at(i64::from(u32::MAX))).is_some());
}
