//! The life of a shared certificate, step by step, and what is done with content that is not whole.

use jiff::ToSpan;

use super::super::tests::accepts;
use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const NO_TIME: Duration = Duration::ZERO;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn names() -> Vec<String> {
    vec!["a".to_owned()]
}

/// Certificates of 30 days, whose authority lives for 120.
fn pace() -> Pace {
    Pace::of(HOUR * 24 * 30)
}

fn days(days: i64) -> Timestamp {
    now() + (days * 24).hours()
}

fn made() -> SharedCertificate {
    SharedCertificate::make(&names(), now(), &pace()).unwrap()
}

fn bundle(shared: &SharedCertificate) -> String {
    shared.authorities.concat()
}

impl SharedCertificate {
    fn step(&self, due: Due, now: Timestamp) -> Self {
        self.after(due, &names(), now, &pace()).unwrap()
    }

    fn is_due(&self, now: Timestamp, seen: Duration) -> Due {
        self.due(&names(), now, seen, &pace())
    }
}

#[test]
fn shared_certificate_is_served_until_two_thirds_of_its_life() {
    let shared = made();
    assert!(accepts(&bundle(&shared), &shared.certificate, "a", now()));
    assert_eq!(shared.is_due(days(19), HOUR), Due::Nothing);
    assert_eq!(shared.is_due(days(20), NO_TIME), Due::Certificate);
    let renewed = shared.step(Due::Certificate, days(20));
    assert_eq!(bundle(&renewed), bundle(&shared));
    assert!(accepts(&bundle(&shared), &renewed.certificate, "a", days(49)));
    assert_eq!(renewed.is_due(days(20), NO_TIME), Due::Nothing);
}

#[test]
fn every_replica_is_trusted_while_authorities_follow_each_other() {
    let old = made().step(Due::Certificate, days(75));
    let day = days(81);
    assert_eq!(old.is_due(day, NO_TIME), Due::Announcement);
    let announced = old.step(Due::Announcement, day);
    assert_eq!(announced.is_due(day, NO_TIME), Due::Nothing);
    assert_eq!(announced.is_due(day, pace().spread), Due::Turn);
    let turned = announced.step(Due::Turn, day);
    assert_eq!(turned.is_due(day, NO_TIME), Due::Nothing);
    assert_eq!(turned.is_due(day, pace().grace), Due::Removal);
    let alone = turned.step(Due::Removal, day);
    assert_eq!(alone.is_due(day, HOUR), Due::Nothing);
    assert_ne!(bundle(&alone), bundle(&old));

    // A bundle is registered a while before or after a certificate of the neighbouring step is served.
    let steps = [&old, &announced, &turned, &alone];
    for (place, registered) in steps.iter().enumerate() {
        let neighbours = place.saturating_sub(1)..(place + 2).min(steps.len());
        for served in &steps[neighbours] {
            assert!(accepts(&bundle(registered), &served.certificate, "a", day), "{place}");
        }
    }
    assert!(!accepts(&bundle(&old), &turned.certificate, "a", day));
    assert!(!accepts(&bundle(&alone), &announced.certificate, "a", day));
}

#[test]
fn every_step_survives_its_way_through_a_secret() {
    let mut shared = made();
    for due in [Due::Announcement, Due::Turn, Due::Removal, Due::Certificate, Due::Everything] {
        shared = shared.step(due, days(1));
        let again = SharedCertificate::parse(&shared.data()).unwrap();
        assert!(again.is(&shared) && again.facts == shared.facts, "{due:?}");
    }
}

#[test]
fn expired_or_foreign_certificates_are_replaced_at_once() {
    let shared = made();
    assert_eq!(shared.is_due(days(31), NO_TIME), Due::Certificate);
    assert_eq!(shared.is_due(days(121), NO_TIME), Due::Everything);
    let other = ["b".to_owned()];
    assert_eq!(shared.due(&other, now(), NO_TIME, &pace()), Due::Certificate);
    let renewed = shared.after(Due::Certificate, &other, now(), &pace()).unwrap();
    assert!(accepts(&bundle(&shared), &renewed.certificate, "b", now()));
    // After a long pause in the middle of a turn.
    let announced = shared.step(Due::Announcement, days(81));
    assert_eq!(announced.is_due(days(121), NO_TIME), Due::Turn);
    // By a clock that went back.
    assert_eq!(shared.is_due(days(-1), NO_TIME), Due::Certificate);
}

#[test]
fn content_whose_parts_do_not_belong_together_is_not_used() {
    let (shared, other) = (made().data(), made().data());
    assert!(SharedCertificate::parse(&shared).is_some());
    for name in [AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY] {
        for text in [None, Some(""), Some("nothing"), other.get(name).map(String::as_str)] {
            let mut data = shared.clone();
            data.remove(name);
            data.extend(text.map(|text| (name.to_owned(), text.to_owned())));
            assert!(SharedCertificate::parse(&data).is_none(), "{name}: {text:?}");
        }
    }
    let mut three = shared.clone();
    three
        .insert(AUTHORITY.to_owned(), [&*shared[AUTHORITY], &*other[AUTHORITY], &*other[AUTHORITY]].concat());
    assert!(SharedCertificate::parse(&three).is_none());
}

#[test]
fn pace_is_bounded_and_shrinks_with_the_life_of_certificates() {
    let seconds = |pace: Pace| [pace.spread, pace.grace, pace.look].map(|it| it.as_secs_f64());
    assert_eq!(seconds(Pace::of(HOUR * 2160)), [60.0, 300.0, 10.0]);
    assert_eq!(seconds(Pace::of(Duration::from_secs(20))), [2.0, 2.0, 0.5]);
}
