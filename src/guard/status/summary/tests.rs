use super::*;
use crate::guard::state::{DriftKind, Unwatched};
use crate::model::{ObjectId, ReleaseId};
use crate::policy::agreement::SeenAlive;
use crate::policy::flaw::{Flaw, FlawReason};

fn report(reason: Reason, drifted: usize) -> ReleaseReport {
    let object = |index: usize| ObjectId {
        group: String::new(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("shop".to_owned()),
        name: format!("c{index}"),
    };
    ReleaseReport {
        release: ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() },
        revision: 3,
        record: Some("u3".to_owned()),
        digest: [7; 32],
        declared: 20,
        seen_alive: (0..20).map(|index| SeenAlive { object: object(index), agreement: None }).collect(),
        confirmed: 20,
        unconfirmed: Vec::new(),
        drifted: (0..drifted)
            .map(|index| Drifted {
                object: object(index),
                kind: DriftKind::Missing,
                findings: Vec::new(),
                by: None,
                since: Timestamp::UNIX_EPOCH,
                repaired: None,
                kept: Some("x".repeat(1000)),
                contested_by: Some("other".to_owned()),
                unconfirmed: false,
            })
            .collect(),
        flaws: Vec::new(),
        foreign: Vec::new(),
        unwatched: Vec::new(),
        reason,
    }
}

fn context(spec: &GuardedReleaseSpec, seconds: i64) -> Context<'_> {
    Context {
        spec,
        generation: Some(2),
        edits: EditsMode::Deny,
        drift: DriftMode::Repair,
        reconciled: None,
        now: Timestamp::from_second(seconds).unwrap(),
    }
}

#[test]
fn each_reason_has_its_conditions() {
    let spec = GuardedReleaseSpec::default();
    let check = |reason, ready: &str, stalled: &str| {
        let status = summary(&report(reason, 1), None, context(&spec, 0));
        let [is_ready, is_stalled] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
        assert_eq!((is_ready.r#type.as_str(), is_ready.status.as_str()), ("Ready", ready), "{reason:?}");
        assert_eq!(
            (is_stalled.r#type.as_str(), is_stalled.status.as_str()),
            ("Stalled", stalled),
            "{reason:?}"
        );
        assert_eq!(is_ready.reason, reason.as_str());
        assert!(!is_ready.message.is_empty());
        assert_eq!(is_ready.observed_generation, Some(2));
    };
    check(Reason::InSync, "True", "False");
    check(Reason::Drifted, "False", "False");
    check(Reason::Contested, "False", "False");
    check(Reason::Braked, "False", "True");
    check(Reason::ReleaseFailed, "False", "True");
    check(Reason::PendingLocked, "False", "True");
    check(Reason::RecordInvalid, "False", "True");
    check(Reason::ReleaseMissing, "False", "False");
    check(Reason::Suspended, "Unknown", "False");
    check(Reason::Unsettled, "Unknown", "False");
    check(Reason::Unwatched, "Unknown", "False");
}

#[test]
fn a_doubt_that_stays_is_named_with_the_missing_right() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(Reason::Unsettled, 1);
    report.drifted[0].kept = Some("roles is forbidden: cannot patch".to_owned());
    let status = summary(&report, None, context(&spec, 0));
    let object = &report.drifted[0].object;
    let wanted = format!(
        "1 of 20 objects may not be as declared, and only a dry run could tell: {object}: roles is forbidden: cannot patch"
    );
    assert_eq!(status.conditions[0].message, wanted);
}

#[test]
fn what_the_guard_may_not_look_at_is_named_with_the_reason() {
    let spec = GuardedReleaseSpec::default();
    let unwatched =
        Unwatched { kind: "Widget".to_owned(), objects: 2, why: "the API server refused".to_owned() };
    let mut report = report(Reason::Unwatched, 0);
    report.unwatched = vec![unwatched];
    let status = summary(&report, None, context(&spec, 0));
    let not_looked_at = "2 of 20 objects are not looked at: 2 of kind Widget: the API server refused";
    let [ready, _, unwatched] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    assert_eq!(ready.message, format!("what may be looked at is as revision 3 declares it; {not_looked_at}"));
    assert_eq!(
        (unwatched.r#type.as_str(), unwatched.status.as_str(), unwatched.message.as_str()),
        ("Unwatched", "True", not_looked_at)
    );
}

#[test]
fn what_a_chart_allows_in_vain_and_what_others_own_is_said_while_it_is_so() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(Reason::InSync, 0);
    let objects: Vec<ObjectId> = report.seen_alive.iter().take(7).map(|seen| seen.object.clone()).collect();
    let flaw = Flaw {
        field: "kubemoor.dev/allow[0]".to_owned(),
        reason: FlawReason::InvalidPath,
        message: "it is no pointer".repeat(100),
    };
    report.flaws = objects.iter().map(|object| (object.clone(), flaw.clone())).collect();
    let other = ReleaseId { namespace: "bank".to_owned(), name: "pay".to_owned() };
    report.foreign = objects.iter().take(1).map(|object| (object.clone(), other.clone())).collect();
    let status = summary(&report, None, context(&spec, 10));
    let [ready, _, flawed, foreign] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    assert_eq!((ready.reason.as_str(), ready.status.as_str()), ("InSync", "True"));
    assert_eq!(
        (flawed.r#type.as_str(), flawed.status.as_str(), flawed.reason.as_str()),
        ("AnnotationsAccepted", "False", "InvalidPath")
    );
    assert!(flawed.message.contains("ConfigMap/c0") && flawed.message.ends_with("and 2 more"), "{flawed:?}");
    assert!(flawed.message.len() < 2000, "{}", flawed.message.len());
    assert_eq!((foreign.r#type.as_str(), foreign.status.as_str()), ("ForeignOwned", "True"));
    assert!(foreign.message.contains("ConfigMap/c0 in namespace shop of release bank/pay"), "{foreign:?}");
    assert_eq!(summary(&report, Some(&status), context(&spec, 20)), status);
    (report.flaws, report.foreign) = (Vec::new(), Vec::new());
    assert_eq!(summary(&report, Some(&status), context(&spec, 20)).conditions.len(), 2);
}

#[test]
fn the_same_report_gives_the_same_status_and_a_turn_a_new_time() {
    let spec = GuardedReleaseSpec::default();
    let first = summary(&report(Reason::InSync, 0), None, context(&spec, 10));
    assert_eq!(summary(&report(Reason::InSync, 0), Some(&first), context(&spec, 20)), first);
    let turned = summary(&report(Reason::Drifted, 1), Some(&first), context(&spec, 30));
    let times: Vec<_> = turned.conditions.iter().map(|it| it.last_transition_time.as_second()).collect();
    assert_eq!(times, [30, 10], "Ready turned and Stalled did not");
}

#[test]
fn a_suspended_release_says_so_whatever_the_loop_says() {
    let spec = GuardedReleaseSpec { suspend: true, reconcile_at: None };
    let status = summary(&report(Reason::Drifted, 1), None, context(&spec, 0));
    assert_eq!(status.conditions[0].reason, "Suspended");
}

#[test]
fn a_status_stays_small_whatever_drifts() {
    let spec = GuardedReleaseSpec::default();
    let status = summary(&report(Reason::Contested, 500), None, context(&spec, 0));
    assert_eq!((status.drifted, status.drifts.len(), status.seen.len()), (500, DRIFTS, 20));
    assert!(status.drifts.iter().all(|drift| drift.message.as_ref().unwrap().len() <= TEXT));
    assert!(status.conditions[0].message.contains("other keeps changing it back"));
}

#[test]
fn unconfirmed_objects_are_named_with_what_confirms_them() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(Reason::Unconfirmed, 2);
    report.drifted[1].unconfirmed = true;
    let status = summary(&report, None, context(&spec, 10));
    let [ready, stalled] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Unconfirmed"));
    assert_eq!(stalled.status, "True");
    for part in ["ConfigMap/c1 in namespace shop", "revision 3", "`kubemoor reconcile web -n shop`"] {
        assert!(ready.message.contains(part), "{part}: {}", ready.message);
    }
    assert!(!ready.message.contains("c0"), "{}", ready.message);
}
