use super::*;

fn compile(cron: &str, duration: &str, zone: &str) -> Result<Schedule, Vec<super::super::flaw::Flaw>> {
    let spec = ScheduleSpec {
        cron: cron.to_owned(),
        duration: duration.to_owned(),
        time_zone: (!zone.is_empty()).then(|| zone.to_owned()),
    };
    let mut flaws = Flaws::default();
    let schedule = Schedule::compile(&spec, "at", &mut flaws);
    flaws.or(schedule).map(Option::unwrap)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Checks that a window is open just from `start` to before `end`.
fn check(schedule: (&str, &str, &str), start: &str, end: &str) {
    let compiled = compile(schedule.0, schedule.1, schedule.2).unwrap();
    let (start, end) = (at(start), at(end));
    let instant = SignedDuration::from_nanos(1);
    assert!(!compiled.open(start - instant), "{schedule:?} is open before {start}");
    assert!(compiled.open(start), "{schedule:?} is not open at {start}");
    assert!(compiled.open(end - instant), "{schedule:?} is not open before {end}");
    assert!(!compiled.open(end), "{schedule:?} is open at {end}");
    assert_eq!(compiled.next_change(start - instant), Some(start), "{schedule:?} before {start}");
    assert_eq!(compiled.next_change(start), Some(end), "{schedule:?} from {start}");
    assert_eq!(compiled.next_change(end - instant), Some(end), "{schedule:?} before {end}");
    assert!(compiled.next_change(end).unwrap() > end, "{schedule:?} after {end}");
}

#[test]
fn window_includes_its_start_and_excludes_its_end() {
    let weekend = ("30 7 * * SAT,SUN", "10h", "America/New_York");
    check(weekend, "2026-11-21T12:30:00Z", "2026-11-21T22:30:00Z");
    check(weekend, "2026-07-04T11:30:00Z", "2026-07-04T21:30:00Z");
    check(("0 0 * * *", "1h30m", ""), "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z");
    check(("0 12 29 2 *", "10s", "UTC"), "2028-02-29T12:00:00Z", "2028-02-29T12:00:10Z");
    check(("*/30 9-10 * * MON-FRI", "10m", "UTC"), "2026-11-23T09:30:00Z", "2026-11-23T09:40:00Z");
}

#[test]
fn window_start_skipped_by_daylight_saving_moves_after_the_jump() {
    // New York jumps from 02:00 to 03:00 at 07:00Z.
    check(("30 2 * * *", "1h", "America/New_York"), "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z");
    check(("30 2,14 * * *", "1h", "America/New_York"), "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z");
    check(("0 2 * * *", "30m", "America/New_York"), "2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z");
    // Lord Howe jumps by half an hour, at 15:30Z.
    check(("15 2 * * *", "1h", "Australia/Lord_Howe"), "2026-10-03T15:30:00Z", "2026-10-03T16:30:00Z");
}

#[test]
fn a_start_that_the_clocks_repeat_comes_once() {
    // New York falls back from 02:00 to 01:00 at 06:00Z.
    let nightly = ("30 1 * * *", "20m", "America/New_York");
    check(nightly, "2026-11-01T05:30:00Z", "2026-11-01T05:50:00Z");
    assert!(!compile(nightly.0, nightly.1, nightly.2).unwrap().open(at("2026-11-01T06:35:00Z")));
}

#[test]
fn a_length_is_elapsed_time() {
    // Over the night in which Berlin falls back at 01:00Z.
    check(("0 20 * * SAT", "12h", "Europe/Berlin"), "2026-10-24T18:00:00Z", "2026-10-25T06:00:00Z");
    // And over the one in which it jumps.
    check(("0 20 * * SAT", "12h", "Europe/Berlin"), "2026-03-28T19:00:00Z", "2026-03-29T07:00:00Z");
}

#[test]
fn a_frequent_window_opens_in_the_repeated_hour_as_well() {
    let often = compile("*/15 * * * *", "5m", "America/New_York").unwrap();
    for minute in ["05:15", "05:45", "06:15", "06:45"] {
        assert!(often.open(at(&format!("2026-11-01T{minute}:00Z"))), "{minute}");
    }
    assert!(!often.open(at("2026-11-01T06:20:00Z")));
}

#[test]
fn windows_that_meet_are_one() {
    let all_day = compile("0 0,12 * * *", "12h", "").unwrap();
    assert!(all_day.open(at("2026-11-21T12:00:00Z")) && all_day.open(at("2026-11-21T11:59:59Z")));
    let change = all_day.next_change(at("2026-11-21T12:00:00Z")).unwrap();
    assert!(change > at("2027-11-21T00:00:00Z"), "{change}");
    let working_days = compile("0 0 * * MON-FRI", "24h", "").unwrap();
    assert_eq!(working_days.next_change(at("2026-11-18T10:00:00Z")), Some(at("2026-11-21T00:00:00Z")));
    assert_eq!(working_days.next_change(at("2026-11-21T10:00:00Z")), Some(at("2026-11-23T00:00:00Z")));
}

#[test]
fn a_schedule_that_cannot_be_is_named() {
    let check = |schedule: (&str, &str, &str), field: &str, reason: FlawReason| {
        let flaws = compile(schedule.0, schedule.1, schedule.2).unwrap_err();
        assert_eq!((flaws[0].field.as_str(), flaws[0].reason), (field, reason), "{schedule:?}: {flaws:?}");
    };
    use FlawReason::{InvalidSchedule, NeverFires, UnknownTimeZone};
    check(("30 7 * *", "1h", ""), "at.cron", InvalidSchedule);
    check(("0 30 7 * * *", "1h", ""), "at.cron", InvalidSchedule);
    check(("61 7 * * *", "1h", ""), "at.cron", InvalidSchedule);
    check(("", "1h", ""), "at.cron", InvalidSchedule);
    check(("@daily", "1h", ""), "at.cron", InvalidSchedule);
    check(("x 7 * * *", "1h", ""), "at.cron", InvalidSchedule);
    check(("0 0 30 2 *", "1h", ""), "at.cron", NeverFires);
    check(("0 0 31 4,6 *", "1h", ""), "at.cron", NeverFires);
    check(("0 0 * * *", "", ""), "at.duration", InvalidSchedule);
    check(("0 0 * * *", "0s", ""), "at.duration", InvalidSchedule);
    check(("0 0 * * *", "-1h", ""), "at.duration", InvalidSchedule);
    check(("0 0 * * *", "745h", ""), "at.duration", InvalidSchedule);
    check(("0 0 * * *", "ten hours", ""), "at.duration", InvalidSchedule);
    check(("0 0 * * *", "1h", "Mars/Olympus"), "at.timeZone", UnknownTimeZone);
    check(("0 0 * * *", "1h", "../etc/passwd"), "at.timeZone", UnknownTimeZone);
}

#[test]
fn any_time_gives_an_answer() {
    let schedule = compile("0 0 29 2 *", "1h", "Pacific/Apia").unwrap();
    for now in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH, at("2011-12-30T12:00:00Z")] {
        let _ = (schedule.open(now), schedule.next_change(now));
    }
}

#[test]
fn the_machine_has_no_say_in_time_zones() {
    for zone in ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "UTC", "Etc/UTC"]
    {
        assert!(compile("0 0 * * *", "1h", zone).is_ok(), "{zone}");
    }
}
