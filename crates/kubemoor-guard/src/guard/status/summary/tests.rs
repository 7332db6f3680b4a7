use std::sync::LazyLock;

use super::*;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::agreement::ObservedObject;
use kubemoor_policy::flaw::{Flaw, FlawReason};
use kubemoor_reconcile::report::DriftKind;
use kubemoor_verdict::edit::FieldFinding;
use kubemoor_verdict::health::{GuardLeaseState, RecordHealth, RecordState, ReportedHealth, Unwatched};

fn object(index: usize) -> ObjectId {
    ObjectId {
        group: "".into(),
        kind: "ConfigMap".into(),
        namespace: Some("shop".into()),
        name: format!("c{index}").into(),
    }
}

/// A release of twenty objects, of which so many are missing.
fn report(drifted: usize) -> LoopReport {
    LoopReport {
        release: ReleaseId { namespace: "shop".into(), name: "web".into() },
        record: Some("u3".to_owned()),
        digest: [7; 32],
        declared: 20.max(drifted),
        seen_alive: (0..20)
            .map(|index| ObservedObject { object: object(index).into(), agreement: None, settled: None })
            .collect(),
        confirmed: 20,
        unconfirmed: Vec::new(),
        drifted: (0..drifted)
            .map(|index| ObjectDrift {
                unrepaired_reason: Some("x".repeat(1000).into()),
                ..ObjectDrift::new(object(index), DriftKind::Missing, Timestamp::UNIX_EPOCH)
            })
            .collect(),
        flaws: Vec::new(),
        foreign: Vec::new(),
        unwatched: Vec::new(),
        excused: Vec::new(),
        records: RecordHealth { revision: 3, deployed: None, state: RecordState::Deployed },
        control: RepairControl::by_mode(DriftMode::Repair),
        manager: None,
        leads: true,
        answer: None,
    }
}

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::new([7; 32]));

fn context(spec: &GuardedReleaseSpec, seconds: i64) -> StatusContext<'_> {
    StatusContext {
        spec,
        generation: Some(2),
        edits: EditsMode::Deny,
        drift: DriftMode::Repair,
        open: false,
        reconciled: None,
        order: None,
        lease: None,
        key: &KEY,
        now: Timestamp::from_second(seconds).unwrap(),
    }
}

#[test]
fn conditions_counts_and_drifts_are_those_of_the_release() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(3);
    (report.drifted[0].kind, report.drifted[1].needs_dry_run) = (DriftKind::Terminating, true);
    let status = summary(&report, None, context(&spec, 0));
    let [ready, stalled] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    let health = report.health();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "Drifted"));
    assert_eq!((stalled.status.as_str(), &ready.message), ("False", &health.message));
    assert_eq!(ready.observed_generation, Some(2));
    assert_eq!((status.drifted, status.counts), (1, health.counts.kept()));
    let types: Vec<_> = status.drifts.iter().map(|drift| drift.r#type.as_str()).collect();
    assert_eq!(types, ["missing", "terminating", "in-doubt"]);
}

#[test]
fn release_with_only_a_terminating_object_is_in_sync() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(1);
    report.drifted[0].kind = DriftKind::Terminating;
    let status = summary(&report, None, context(&spec, 0));
    assert_eq!((status.conditions[0].reason.as_str(), status.drifted), ("InSync", 0));
    assert!(status.conditions[0].message.starts_with("19 of 20 objects match"), "{status:?}");
}

#[test]
fn release_with_an_object_that_a_finalizer_holds_is_not_ready() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(1);
    report.drifted[0].kind = DriftKind::Terminating;
    let path = "/metadata/finalizers".parse().unwrap();
    let names = serde_json::json!(["example.org/hold"]);
    report.drifted[0].findings = vec![FieldFinding::new(&object(0), &path, [None, None, Some(&names)])];
    let status = summary(&report, None, context(&spec, 0));
    let ready = &status.conditions[0];
    assert_eq!((ready.status.as_str(), ready.reason.as_str(), status.drifted), ("False", "Drifted", 1));
    assert!(ready.message.contains("blocked by the finalizers [\"example.org/hold\"]"), "{}", ready.message);
}

#[test]
fn a_doubt_that_stays_is_named_with_the_missing_right() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(1);
    (report.drifted[0].needs_dry_run, report.drifted[0].unrepaired_reason) =
        (true, Some("roles is forbidden: cannot patch".into()));
    let status = summary(&report, None, context(&spec, 0));
    let wanted = format!(
        "19 of 20 objects match revision 3; 1 may not match, and only a dry run could tell: {}: roles is forbidden: cannot patch",
        object(0)
    );
    assert_eq!(
        (status.conditions[0].reason.as_str(), status.conditions[0].message.as_str()),
        ("Unsettled", wanted.as_str())
    );
}

#[test]
fn unwatched_condition_names_unreadable_kinds_and_the_reason() {
    let spec = GuardedReleaseSpec::default();
    let unwatched =
        Unwatched { kind: "Widget".to_owned(), objects: 2, why: "the API server refused".to_owned() };
    let mut report = report(0);
    report.unwatched = vec![unwatched];
    let status = summary(&report, None, context(&spec, 0));
    let not_checked = "2 of 20 objects are not checked: 2 of kind Widget: the API server refused";
    let [ready, _, unwatched] = status.conditions.as_slice() else { panic!("{:?}", status.conditions) };
    assert_eq!(ready.message, format!("18 of 20 objects match revision 3; {not_checked}"));
    assert_eq!(
        (unwatched.r#type.as_str(), unwatched.status.as_str(), unwatched.message.as_str()),
        ("Unwatched", "True", not_checked)
    );
}

#[test]
fn invalid_chart_annotations_and_foreign_objects_appear_as_conditions() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(0);
    let flaw = Flaw {
        field: "kubemoor.dev/allow[0]".to_owned(),
        reason: FlawReason::InvalidPath,
        message: "it is no pointer".repeat(100),
    };
    report.flaws = (0..7).map(|index| (object(index), flaw.clone())).collect();
    let other = ReleaseId { namespace: "bank".into(), name: "pay".into() };
    report.foreign = vec![(object(0), other)];
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
fn transition_time_changes_only_when_a_condition_changes() {
    let spec = GuardedReleaseSpec::default();
    let first = summary(&report(0), None, context(&spec, 10));
    assert_eq!(summary(&report(0), Some(&first), context(&spec, 20)), first);
    let turned = summary(&report(1), Some(&first), context(&spec, 30));
    let times: Vec<_> = turned.conditions.iter().map(|it| it.last_transition_time.as_second()).collect();
    assert_eq!(times, [30, 10], "Ready turned and Stalled did not");
}

#[test]
fn status_follows_the_emergency_switch_and_modes_without_another_report() {
    let spec = GuardedReleaseSpec::default();
    let open =
        StatusContext { edits: EditsMode::Allow, drift: DriftMode::Report, open: true, ..context(&spec, 0) };
    let status = summary(&report(1), None, open);
    assert_eq!((status.edits.as_str(), status.drift.as_str()), ("Allow", "Report"));
    assert!(status.conditions[0].message.starts_with("the emergency is open"), "{status:?}");
}

#[test]
fn a_suspended_release_says_so_whatever_the_loop_says() {
    let check = |until: Option<&str>, now: i64, reason: &str, words: &str| {
        let spec = GuardedReleaseSpec {
            suspend: true,
            suspend_until: until.map(str::to_owned),
            suspend_reason: until.map(|_| "migration".to_owned()),
            reconcile_at: None,
        };
        let ready = summary(&report(1), None, context(&spec, now)).conditions[0].clone();
        assert_eq!(ready.reason, reason, "{until:?} at {now}");
        assert!(ready.message.starts_with(words), "{ready:?}");
    };
    check(None, 0, "Suspended", "suspended, so nothing is repaired until `kubemoor resume");
    let end = Some("1970-01-01T00:01:00Z");
    check(
        end,
        59,
        "Suspended",
        "suspended until 1970-01-01T00:01:00Z (migration), so nothing is repaired until then or `kubemoor resume",
    );
    check(end, 60, "Drifted", "1 of ");
}

#[test]
fn a_status_stays_small_whatever_drifts() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(500);
    report
        .drifted
        .iter_mut()
        .for_each(|drifted| (drifted.contested, drifted.by) = (true, Some("other".to_owned())));
    let status = summary(&report, None, context(&spec, 0));
    assert_eq!((status.drifted, status.drifts.len(), status.seen.len()), (500, DRIFTS, 20));
    assert!(status.drifts.iter().all(|drift| drift.message.as_ref().unwrap().chars().count() <= TEXT));
    assert!(status.conditions[0].message.contains("other keeps changing it back"));
}

#[test]
fn oldest_drift_is_shown_whatever_the_names_of_objects() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(DRIFTS + 2);
    for (index, drifted) in report.drifted.iter_mut().enumerate() {
        drifted.since = Timestamp::from_second(100).unwrap();
        drifted.needs_dry_run = index == 0;
    }
    let oldest = Timestamp::from_second(7).unwrap();
    report.drifted.last_mut().unwrap().since = oldest;
    // It is older, but perhaps no drift.
    report.drifted[0].since = Timestamp::UNIX_EPOCH;
    let status = summary(&report, None, context(&spec, 200));
    assert_eq!((status.drifts.len(), status.drifts[0].since), (DRIFTS, oldest));
    let told = ReportedHealth::new(status.clone(), &GuardLeaseState::Unknown, context(&spec, 200).now);
    assert_eq!(told.oldest_drift, Some(oldest));
    // A restarted guard finds all of it again at one time.
    report.drifted.iter_mut().for_each(|drifted| drifted.since = Timestamp::from_second(300).unwrap());
    assert_eq!(summary(&report, Some(&status), context(&spec, 300)).drifts, status.drifts);
}

#[test]
fn unconfirmed_objects_are_named_with_what_confirms_them() {
    let spec = GuardedReleaseSpec::default();
    let mut report = report(2);
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

#[test]
fn guard_started_anew_over_the_same_drifts_changes_no_status() {
    let spec = GuardedReleaseSpec::default();
    let before = summary(&report(3), None, context(&spec, 0));
    let mut anew = report(3);
    anew.drifted.iter_mut().for_each(|it| it.since = Timestamp::from_second(9).unwrap());
    assert_eq!(summary(&anew, Some(&before), context(&spec, 9)), before);
    // A drift of another type begins anew, and is the newest.
    anew.drifted[0].kind = DriftKind::Changed;
    let since: Vec<i64> = summary(&anew, Some(&before), context(&spec, 9))
        .drifts
        .iter()
        .map(|drift| drift.since.as_second())
        .collect();
    assert_eq!(since, [0, 0, 9]);
}
