//! The life of a shared certificate, and what is done with content that is not whole.

use jiff::ToSpan;

use super::super::contains_authorities;
use super::super::tests::accepts;
use super::*;

const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

fn names() -> Vec<String> {
    vec!["a".to_owned()]
}

fn days(days: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + (days * 24).hours()
}

/// One of 30 days, whose authority lives for 120.
fn new_certificate() -> SharedCertificate {
    SharedCertificate::make(&names(), days(0), LIFE).unwrap()
}

fn renewed(shared: &SharedCertificate, day: i64) -> SharedCertificate {
    shared.renewed(&names(), days(day), LIFE).unwrap()
}

#[test]
fn shared_certificate_is_renewed_after_two_thirds_of_its_life_by_same_authority() {
    let shared = new_certificate();
    assert!(accepts(&shared.authority, &shared.certificate, "a", days(0)));
    assert!(!shared.is_due(&names(), days(19)) && shared.is_due(&names(), days(20)));
    assert!(shared.is_served(&names(), days(29)) && !shared.is_served(&names(), days(30)));
    let next = renewed(&shared, 20);
    assert_eq!(next.authority, shared.authority);
    assert!(accepts(&shared.authority, &next.certificate, "a", days(49)));
    assert!(!next.is_due(&names(), days(20)));
}

#[test]
fn every_replica_is_trusted_while_authorities_follow_each_other() {
    let old = renewed(&new_certificate(), 75);
    assert!(!old.is_due(&names(), days(79)) && old.is_due(&names(), days(80)));
    let new = renewed(&old, 80);
    assert_ne!(new.authority, old.authority);
    assert!(new.has_authority_of(&old) && !new.is_due(&names(), days(81)));
    // Replicas and API servers take over the new content at any time and in any order.
    for registered in [&old, &new] {
        for served in [&old, &new] {
            assert!(accepts(&registered.authority, &served.certificate, "a", days(81)));
        }
    }
    assert!(!accepts(&new_certificate().authority, &new.certificate, "a", days(81)));
}

#[test]
fn content_survives_its_way_through_a_secret() {
    for shared in [new_certificate(), renewed(&new_certificate(), 80)] {
        assert!(SharedCertificate::parse(&shared.data()).unwrap() == shared);
    }
}

#[test]
fn expired_or_foreign_certificates_are_replaced_at_once() {
    let shared = new_certificate();
    for day in [31, 121] {
        assert!(!shared.is_served(&names(), days(day)), "{day}");
        let next = renewed(&shared, day);
        assert!(accepts(&next.authority, &next.certificate, "a", days(day)), "{day}");
    }
    let other = ["b".to_owned()];
    assert!(!shared.is_served(&other, days(0)));
    let next = shared.renewed(&other, days(0), LIFE).unwrap();
    assert!(accepts(&shared.authority, &next.certificate, "b", days(0)));
    // By a clock that went back.
    assert!(!shared.is_served(&names(), days(-1)) && shared.is_due(&names(), days(-1)));
}

#[test]
fn content_of_former_versions_with_two_authorities_is_served_and_renewed() {
    let (old, new) = (new_certificate(), new_certificate());
    // The new authority has not signed yet, or has.
    for signed in [&old, &new] {
        let mut data = new.data();
        data.insert(AUTHORITY.to_owned(), format!("{}{}", old.authority, new.authority));
        data.extend([CERTIFICATE, KEY].map(|name| (name.to_owned(), signed.data()[name].clone())));
        let shared = SharedCertificate::parse(&data).unwrap();
        assert!(shared.is_served(&names(), days(1)));
        let next = renewed(&shared, 20);
        assert!(accepts(&new.authority, &next.certificate, "a", days(20)));
        assert!(contains_authorities(&next.authority, &old.authority));
        assert_eq!(renewed(&next, 80).authority.matches("BEGIN").count(), 1);
    }
}

#[test]
fn content_whose_parts_do_not_belong_together_is_not_used() {
    let (shared, other) = (new_certificate().data(), new_certificate().data());
    assert!(SharedCertificate::parse(&shared).is_some());
    for name in [AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY] {
        for text in [None, Some(""), Some("nothing"), other.get(name).map(String::as_str)] {
            let mut data = shared.clone();
            data.remove(name);
            data.extend(text.map(|text| (name.to_owned(), text.to_owned())));
            assert!(SharedCertificate::parse(&data).is_none(), "{name}: {text:?}");
        }
    }
}
