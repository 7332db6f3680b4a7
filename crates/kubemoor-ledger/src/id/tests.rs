use super::*;

#[test]
fn ids_order_rows_by_time_and_give_the_time_back() {
    let mut ids = Ids::new().unwrap();
    let now: Timestamp = "2026-11-21T05:00:00.123456Z".parse().unwrap();
    let (a, b) = (ids.next(now), ids.next(now));
    assert!(a < b && time(a) == now, "{a} {b}");
    assert!(time(b) > now);
    // Rows hardly out of order stay apart; a clock that is set back is believed.
    assert!(ids.next(now - SignedDuration::from_micros(5)) > b);
    let before = now - SignedDuration::from_secs(60);
    assert_eq!(time(ids.next(before)), before);
    assert!(first(now) <= a && first(now + SignedDuration::from_micros(1)) > a);
}

#[test]
fn shared_row_has_the_same_id_in_every_guard() {
    let now: Timestamp = "2026-11-21T05:00:00Z".parse().unwrap();
    let id = shared(now, "uid/7");
    assert_eq!(id, shared(now, "uid/7"));
    assert_ne!(id, shared(now, "uid/8"));
    assert_eq!(time(id).as_second(), now.as_second());
    // Databases hold it already.
    assert_eq!(number_of_same("abc").to_be_bytes(), [0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea]);
}

#[test]
fn month_begins_on_its_first_day_in_utc() {
    for (time, months, begin) in [
        ("2026-11-30T23:59:59.999999Z", 0, "2026-11-01T00:00:00Z"),
        ("2026-11-01T00:00:00Z", 0, "2026-11-01T00:00:00Z"),
        ("2026-11-30T12:00:00Z", 2, "2027-01-01T00:00:00Z"),
        ("2027-12-31T12:00:00Z", 2, "2028-02-01T00:00:00Z"),
    ] {
        assert_eq!(month(time.parse().unwrap(), months), first(begin.parse().unwrap()), "{time}");
    }
    assert_eq!(month(Timestamp::MAX, 2), first(Timestamp::MAX));
}

#[test]
fn times_out_of_range_bend_to_the_ends() {
    assert_eq!(first(Timestamp::MIN), 0);
    assert!(first(Timestamp::MAX) > 0);
    assert_eq!(cutoff("2026-11-21T05:00:00Z".parse().unwrap(), std::time::Duration::MAX), 0);
}
