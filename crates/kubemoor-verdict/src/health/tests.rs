use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::health::{GuardLeaseState, ReportedHealth, *};
use kubemoor_policy::guarded::{GuardedReleaseStatus, LeaseReference};
use kubemoor_policy::resource::StatusCondition;

const STATES: [ObjectState; 12] = [
    ObjectState::Missing,
    ObjectState::Changed,
    ObjectState::Ownership,
    ObjectState::Unreadable,
    ObjectState::InDoubt,
    ObjectState::Deleting,
    ObjectState::Allowed,
    ObjectState::NotCreated,
    ObjectState::OptedOut,
    ObjectState::Foreign,
    ObjectState::Outside,
    ObjectState::Unread,
];

const RECORDS: [RecordState; 6] = [
    RecordState::Deployed,
    RecordState::Underway,
    RecordState::Locked,
    RecordState::Failed,
    RecordState::Invalid,
    RecordState::Gone,
];

fn object(index: usize, state: ObjectState) -> ObjectFacts {
    let object = ObjectId {
        group: "".into(),
        kind: "ConfigMap".into(),
        namespace: Some("shop".into()),
        name: format!("c{index}").into(),
    };
    ObjectFacts::new(object, state)
}

/// A release of ten objects, of which these stand like this.
fn facts(record: RecordState, states: &[ObjectState]) -> HealthFacts {
    HealthFacts {
        release: ReleaseId { namespace: "shop".into(), name: "web".into() },
        record: RecordHealth { revision: 3, deployed: Some(2), state: record },
        control: RepairControl::by_mode(DriftMode::Repair),
        declared: 10,
        objects: states.iter().enumerate().map(|(index, state)| object(index, *state)).collect(),
        unwatched: Vec::new(),
    }
}

fn any_facts() -> impl Strategy<Value = HealthFacts> {
    let control = (0_usize..3, any::<bool>(), any::<bool>(), any::<bool>());
    let objects = vec((0_usize..STATES.len(), option::of("[a-z]{0,3}"), any::<bool>()), 0..8);
    let record = (0_usize..RECORDS.len(), option::of(1_u64..9));
    (record, control, 0_usize..5, objects, 0_usize..3).prop_map(
        |((record, deployed), (drift, open, suspended, braked), more, objects, forbidden)| {
            let drift = [DriftMode::Ignore, DriftMode::Report, DriftMode::Repair][drift];
            let unwatched = Unwatched {
                kind: "Widget".to_owned(),
                objects: forbidden,
                why: "the API server refused".to_owned(),
            };
            let base = facts(RECORDS[record], &[]);
            HealthFacts {
                record: RecordHealth { deployed, ..base.record },
                control: RepairControl {
                    drift,
                    enforcement_disabled: open,
                    suspended: suspended.then(Suspension::default),
                    braked,
                },
                declared: objects.len() + forbidden + more,
                unwatched: (forbidden > 0).then_some(unwatched).into_iter().collect(),
                objects: objects
                    .into_iter()
                    .enumerate()
                    .map(|(index, (state, contested_by, unconfirmed))| ObjectFacts {
                        contested_by,
                        unconfirmed,
                        ..object(index, STATES[state])
                    })
                    .collect(),
                ..base
            }
        },
    )
}

/// The status that a guard would write of it.
fn status(health: &ReleaseHealth, facts: &HealthFacts) -> GuardedReleaseStatus {
    let condition = StatusCondition {
        r#type: "Ready".to_owned(),
        status: health.ready.as_str().to_owned(),
        reason: health.reason.as_str().to_owned(),
        message: health.message.clone(),
        last_transition_time: Timestamp::UNIX_EPOCH,
        observed_generation: None,
    };
    GuardedReleaseStatus {
        conditions: vec![condition],
        revision: facts.record.revision,
        declared: u64::try_from(health.counts.declared).unwrap(),
        drifted: u64::try_from(health.counts.drifted).unwrap(),
        counts: health.counts.kept(),
        lease: Some(LeaseReference { namespace: "kubemoor-system".to_owned(), name: "kubemoor".to_owned() }),
        ..GuardedReleaseStatus::default()
    }
}

proptest! {
    #[test]
    fn state_counts_and_sentences_agree(facts in any_facts()) {
        let health = ReleaseHealth::new(&facts);
        let ReleaseHealth { ready, stalled, reason, counts, message } = &health;
        let is = |reasons: &[HealthReason]| reasons.contains(reason);
        // The counts are those of the objects, and add up.
        let drifted = facts.objects.iter().filter(|it| it.state.is_drift()).count();
        prop_assert_eq!(counts.drifted, drifted);
        let parts = [counts.matching, counts.drifted, counts.in_doubt, counts.deleting, counts.allowed,
            counts.not_created, counts.unjudged, counts.unwatched];
        prop_assert_eq!(parts.iter().sum::<usize>(), facts.declared);
        prop_assert_eq!(counts.declared, facts.declared);
        prop_assert!(counts.ownership <= counts.drifted);
        // Ready says the same as the reason, and as the counts.
        prop_assert_eq!(*ready == Ready::True, is(&[HealthReason::InSync]));
        if *ready == Ready::True {
            prop_assert_eq!((counts.drifted, counts.in_doubt, counts.unwatched), (0, 0, 0));
            prop_assert_eq!(facts.record.state, RecordState::Deployed);
        }
        if is(&[HealthReason::Drifted, HealthReason::Contested, HealthReason::Unconfirmed, HealthReason::Braked]) {
            prop_assert!(counts.drifted > 0);
            prop_assert_eq!(*ready, Ready::False);
        }
        prop_assert!(!stalled || *ready == Ready::False);
        // "All" is said of all, and drift in every sentence that counts objects.
        let says_all = message.split(' ').any(|word| word == "all");
        prop_assert!(!says_all || counts.matching == counts.declared, "{}", message);
        if counts.drifted > 0 && !is(&[HealthReason::OperationUnderway, HealthReason::DriftIgnored, HealthReason::PendingLocked,
            HealthReason::RecordInvalid, HealthReason::ReleaseMissing]) {
            prop_assert!(message.contains("not match") || message.contains("other owners"), "{}", message);
        }
        prop_assert_eq!(message.contains("emergency"), facts.control.enforcement_disabled);
        // `diff` says the same in few words.
        let headline = counts.headline();
        prop_assert_eq!(headline.contains("no drift"), counts.drifted == 0 && counts.in_doubt == 0);
        prop_assert_eq!(headline.contains(" drifted"), counts.drifted > 0);
        // So do `get releases` and `explain`, while the guard's Lease is renewed.
        let now = Timestamp::UNIX_EPOCH;
        let told = ReportedHealth::new(status(&health, &facts), &GuardLeaseState::Renewed(now), now);
        prop_assert_eq!(&told.ready, ready.as_str());
        prop_assert_eq!(told.reason.as_deref(), Some(reason.as_str()));
        prop_assert_eq!(usize::try_from(told.drifted).unwrap(), counts.drifted);
        prop_assert_eq!(&told.counts, &counts.kept());
        prop_assert_eq!(&told.message, message);
        // And else that nobody knows.
        let later = now + STALE_AFTER + jiff::SignedDuration::from_secs(1);
        let told = ReportedHealth::new(status(&health, &facts), &GuardLeaseState::Renewed(now), later);
        prop_assert!(told.is_stale() && told.ready == "Unknown" && told.message.contains("stale since 1970-"));
        prop_assert!(told.message.ends_with(message.as_str()));
    }
}

#[test]
fn reason_follows_record_and_objects() {
    use ObjectState::{Allowed, Changed, Deleting, InDoubt, Missing, OptedOut, Ownership, Unread};
    let check = |record, states: &[ObjectState], ready: Ready, reason: HealthReason| {
        let health = ReleaseHealth::new(&facts(record, states));
        assert_eq!((health.ready, health.reason), (ready, reason), "{states:?}: {}", health.message);
    };
    let deployed = RecordState::Deployed;
    check(deployed, &[], Ready::True, HealthReason::InSync);
    check(deployed, &[Allowed, Deleting, OptedOut], Ready::True, HealthReason::InSync);
    check(deployed, &[Ownership], Ready::False, HealthReason::Drifted);
    check(deployed, &[Deleting, Changed], Ready::False, HealthReason::Drifted);
    check(deployed, &[InDoubt], Ready::Unknown, HealthReason::Unsettled);
    check(deployed, &[InDoubt, Missing], Ready::False, HealthReason::Drifted);
    check(deployed, &[Unread], Ready::Unknown, HealthReason::Unwatched);
    check(RecordState::Failed, &[], Ready::False, HealthReason::ReleaseFailed);
    check(RecordState::Locked, &[], Ready::False, HealthReason::PendingLocked);
    check(RecordState::Underway, &[Changed], Ready::Unknown, HealthReason::OperationUnderway);
    check(RecordState::Invalid, &[], Ready::False, HealthReason::RecordInvalid);
    check(RecordState::Gone, &[], Ready::False, HealthReason::ReleaseMissing);
}

#[test]
fn exceptions_are_counted_in_a_release_that_is_in_sync() {
    let message =
        ReleaseHealth::new(&facts(RecordState::Deployed, &[ObjectState::Allowed, ObjectState::Allowed]))
            .message;
    assert_eq!(
        message,
        "8 of 10 objects match revision 3; 2 are allowed to differ: ConfigMap/c0 in namespace shop; ConfigMap/c1 in namespace shop"
    );
}

#[test]
fn failed_release_names_the_ways_out() {
    let message = ReleaseHealth::new(&facts(RecordState::Failed, &[ObjectState::Changed])).message;
    for part in [
        "1 of 10 objects does not match revision 3 or 2",
        "`kubemoor reconcile web -n shop`",
        "`helm upgrade web CHART -n shop`",
        "`helm rollback web 2 -n shop`",
        "`--force-conflicts`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let mut first = facts(RecordState::Failed, &[ObjectState::NotCreated]);
    first.record.deployed = None;
    let message = ReleaseHealth::new(&first).message;
    for part in [
        "the installation failed at revision 3",
        "1 was not created: ConfigMap/c0",
        "`helm uninstall web -n shop`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("rollback"), "{message}");
}

#[test]
fn status_whose_lease_is_gone_is_stale() {
    let facts = facts(RecordState::Deployed, &[]);
    let kept = status(&ReleaseHealth::new(&facts), &facts);
    let now = Timestamp::UNIX_EPOCH;
    let told = ReportedHealth::new(kept.clone(), &GuardLeaseState::Gone, now);
    assert!(told.is_stale() && told.message.contains("no guard runs"), "{told:?}");
    assert!(!ReportedHealth::new(kept.clone(), &GuardLeaseState::Unknown, now).is_stale());
    let unleased = GuardedReleaseStatus { lease: None, ..kept };
    assert!(!ReportedHealth::new(unleased, &GuardLeaseState::Gone, now).is_stale());
}
