use tokio::sync::watch;

use super::*;

fn pem(name: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
}

fn own(name: &str, is_shared: bool) -> OwnAuthority {
    OwnAuthority { bundle: watch::channel(Some(Arc::from(pem(name)))).1, is_shared }
}

/// The moments of a test: seconds after its start.
struct Clock(Instant, Timestamp);

impl Clock {
    fn new() -> Self {
        Self(Instant::now(), "2026-11-24T12:00:00Z".parse().unwrap())
    }

    fn after(&self, seconds: u64) -> (Instant, Timestamp) {
        let later = Duration::from_secs(seconds);
        (self.0 + later, self.1 + later)
    }
}

fn key() -> SigningKey {
    SigningKey::new([7; 32])
}

#[test]
fn announced_authority_is_trusted_until_nobody_repeats_it() {
    let (clock, mut lease) = (Clock::new(), ObjectMeta::default());
    let (leader, replica) = (own("old", true), own("new", false));
    let (mut at_leader, mut at_replica) = (Announced::default(), Announced::default());
    assert_eq!(at_leader.bundle(&leader, clock.0).as_deref(), Some(pem("old").as_str()));
    at_leader.annotate(&mut lease, &leader, &key(), clock.after(0));
    at_replica.see(&lease, &key(), clock.after(1));
    assert_eq!(at_replica.due(&replica, clock.after(1).0), Some(clock.after(1).0), "it is not there yet");
    at_replica.annotate(&mut lease, &replica, &key(), clock.after(1));
    assert!(at_replica.due(&replica, clock.after(1).0) <= Some(clock.after(1).0), "the write may fail");
    at_replica.see(&lease, &key(), clock.after(1));
    at_leader.see(&lease, &key(), clock.after(2));
    let both = pem("old") + &pem("new");
    assert_eq!(at_leader.bundle(&leader, clock.after(2).0).as_deref(), Some(both.as_str()));
    assert_eq!(at_replica.due(&replica, clock.after(2).0), Some(clock.after(1).0 + REPEAT));
    // The replica leads, and the old authority stays trusted for a while.
    let both = pem("new") + &pem("old");
    assert_eq!(at_replica.bundle(&replica, clock.after(120).0).as_deref(), Some(both.as_str()));
    assert_eq!(at_replica.bundle(&replica, clock.after(121).0).as_deref(), Some(pem("new").as_str()));
    at_replica.annotate(&mut lease, &replica, &key(), clock.after(121));
    let text = &lease.annotations.unwrap()[ANNOTATION];
    assert!(text.contains("new") && !text.contains("old"), "{text}");
}

#[test]
fn authority_without_the_replicas_mark_is_not_trusted() {
    let (clock, mut lease) = (Clock::new(), ObjectMeta::default());
    let leader = own("leader", true);
    let trusts = |lease: &ObjectMeta, moment| {
        let mut announced = Announced::default();
        announced.see(lease, &key(), moment);
        announced.bundle(&leader, moment.0).unwrap().contains("forged")
    };
    Announced::default().annotate(&mut lease, &own("forged", false), &key(), clock.after(0));
    assert!(trusts(&lease, clock.after(3000)), "the mark is right");
    assert!(!trusts(&lease, clock.after(4000)), "a copy of an old announcement");
    let text = lease.annotations.as_ref().unwrap()[ANNOTATION].clone();
    let entries: BTreeMap<String, Entry> = serde_json::from_str(&text).unwrap();
    let (name, entry) = entries.into_iter().next().unwrap();
    let later = Entry { at: clock.after(60).1, ..entry.clone() };
    for (name, entry) in [
        (name.clone(), Entry { pem: pem("forged twice"), ..entry.clone() }),
        (name.clone(), Entry { mark: String::new(), ..entry.clone() }),
        (name, later),
        ("another".to_owned(), entry),
    ] {
        let text = serde_json::to_string(&BTreeMap::from([(name, entry)])).unwrap();
        lease.annotations = Some([(ANNOTATION.to_owned(), text)].into());
        assert!(!trusts(&lease, clock.after(1)), "{lease:?}");
    }
    lease.annotations = None;
    Announced::default().annotate(
        &mut lease,
        &own("forged", false),
        &SigningKey::new([8; 32]),
        clock.after(0),
    );
    assert!(!trusts(&lease, clock.after(1)), "the key of another guard");
    for text in ["", "{}", "[]", "{\"a\":1}"] {
        lease.annotations = Some([(ANNOTATION.to_owned(), text.to_owned())].into());
        assert!(!trusts(&lease, clock.after(1)));
    }
}

#[test]
fn repeated_copy_of_an_announcement_does_not_prolong_it() {
    let (clock, mut lease) = (Clock::new(), ObjectMeta::default());
    let leader = own("leader", false);
    Announced::default().annotate(&mut lease, &own("old", false), &key(), clock.after(0));
    let mut announced = Announced::default();
    for second in 0..KEPT.as_secs() {
        announced.see(&lease, &key(), clock.after(second));
        assert!(announced.bundle(&leader, clock.after(second).0).unwrap().contains("old"), "{second}");
    }
    for second in [KEPT.as_secs(), 3000, 4000, 9000] {
        announced.see(&lease, &key(), clock.after(second));
        assert!(!announced.bundle(&leader, clock.after(second).0).unwrap().contains("old"), "{second}");
    }
}

#[test]
fn replicas_that_share_an_authority_announce_it_once() {
    let (clock, mut lease) = (Clock::new(), ObjectMeta::default());
    let (before, after) = (own("one", true), own("two", true));
    let leader = Announced::default();
    leader.annotate(&mut lease, &before, &key(), clock.after(0));
    let mut replica = Announced::default();
    replica.see(&lease, &key(), clock.after(0));
    assert_eq!(replica.due(&after, clock.after(5).0), Some(clock.0 + REPEAT));
    // Its renewal has steps of its own in which both are trusted.
    assert_eq!(leader.bundle(&after, clock.after(5).0).as_deref(), Some(pem("two").as_str()));
    leader.annotate(&mut lease, &after, &key(), clock.after(5));
    let text = &lease.annotations.unwrap()[ANNOTATION];
    assert!(text.contains("two") && !text.contains("one"), "{text}");
    // Without an authority somebody else sets the bundle.
    let none = OwnAuthority { bundle: watch::channel(None).1, is_shared: false };
    assert_eq!((replica.due(&none, clock.0), replica.bundle(&none, clock.0)), (None, None));
}

#[test]
fn announcement_counts_after_the_clock_was_set_back() {
    let (clock, own) = (Clock::new(), own("own", false));
    let (mut lease, mut replica, mut leader) =
        (ObjectMeta::default(), Announced::default(), Announced::default());
    for (second, set_back) in [(0, 0), (20, 40), (40, 0), (60, 7200), (80, 7200)] {
        let (now, at) = clock.after(second);
        let moment = (now, at - SignedDuration::from_secs(set_back));
        replica.annotate(&mut lease, &own, &key(), moment);
        replica.see(&lease, &key(), moment);
        assert_eq!(replica.due(&own, now), Some(now + REPEAT), "{second}");
        leader.see(&lease, &key(), (now, at));
        let is_far_off = set_back > OLDEST.as_secs();
        assert_eq!(leader.due(&own, now) == Some(now + REPEAT), !is_far_off, "{second}");
    }
}

#[test]
fn authority_that_is_too_large_is_not_announced() {
    let (clock, mut lease) = (Clock::new(), ObjectMeta::default());
    let own = own(&"x".repeat(CAP), false);
    let announced = Announced::default();
    announced.annotate(&mut lease, &own, &key(), clock.after(0));
    assert_eq!((lease.annotations, announced.due(&own, clock.0)), (Some(BTreeMap::new()), None));
    assert_eq!(announced.bundle(&own, clock.0), own.pem(), "the leader's own is trusted all the same");
}

#[test]
fn names_that_nobody_announced_hide_no_authority() {
    let (clock, mut lease) = (Clock::new(), ObjectMeta::default());
    let own = own("own", false);
    Announced::default().annotate(&mut lease, &own, &key(), clock.after(0));
    let text = lease.annotations.as_ref().unwrap()[ANNOTATION].clone();
    let mut entries: BTreeMap<String, Entry> = serde_json::from_str(&text).unwrap();
    let false_entry = entries.values().next().unwrap().clone();
    entries.extend((0..20).map(|number| (format!("!{number}"), false_entry.clone())));
    lease.annotations = Some([(ANNOTATION.to_owned(), serde_json::to_string(&entries).unwrap())].into());
    let mut announced = Announced::default();
    announced.see(&lease, &key(), clock.after(1));
    assert_eq!(announced.known.len(), 1);
}
