//! Tables of what the loop says, and what is told of it.

use super::*;
use kubemoor_declare::model::DriftMode;
use kubemoor_reconcile::report::DriftKind;
use kubemoor_verdict::health::{RecordHealth, RepairControl};

fn now() -> Timestamp {
    "2026-11-23T10:00:00Z".parse().unwrap()
}

fn web() -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: "web".into() }
}

fn drifted(name: &str, repaired: Option<Result<(), String>>) -> ObjectDrift {
    let object = ObjectId::namespaced("", "ConfigMap", "shop", name);
    let by = Some("kubectl-edit".to_owned());
    ObjectDrift { by, repaired, ..ObjectDrift::new(object, DriftKind::Changed, Timestamp::UNIX_EPOCH) }
}

fn incident(name: &str, repaired: Option<Result<(), String>>) -> LoopAnnouncement {
    LoopAnnouncement::Object(Box::new(Incident {
        release: web(),
        revision: 3,
        drifted: drifted(name, repaired),
    }))
}

fn report(drifted: Vec<ObjectDrift>, state: RecordState) -> Box<LoopReport> {
    Box::new(LoopReport {
        release: web(),
        record: None,
        digest: [0; 32],
        declared: 3,
        seen_alive: Vec::new(),
        confirmed: 0,
        unconfirmed: Vec::new(),
        drifted,
        flaws: Vec::new(),
        foreign: Vec::new(),
        unwatched: Vec::new(),
        excused: Vec::new(),
        records: RecordHealth { revision: 3, deployed: None, state },
        control: RepairControl::by_mode(DriftMode::Repair),
        manager: None,
        leads: true,
        answer: None,
    })
}

/// What the loop says next.
enum LoopOutput {
    Happened(LoopAnnouncement),
    Reported(Option<Box<LoopReport>>),
}

fn subjects(standing: &mut OpenConditions, said: LoopOutput) -> Vec<String> {
    let messages = match said {
        LoopOutput::Happened(happening) => standing.happened(&happening, now()),
        LoopOutput::Reported(report) => standing.reported(&web(), report.as_deref(), now()),
    };
    let name = |message: &Notification| message.object.as_ref().map_or("-", |it| it.name.as_str()).to_owned();
    messages.iter().map(|message| format!("{} of {}", message.subject.as_str(), name(message))).collect()
}

#[test]
fn end_is_notified_once_for_each_notified_start() {
    use LoopOutput::{Happened, Reported};
    let deployed = |drifted| Reported(Some(report(drifted, RecordState::Deployed)));
    let allowed = || ObjectDrift { allowed: true, ..drifted("c", None) };
    let contested = || ObjectDrift { contested: true, by: Some("operator".to_owned()), ..drifted("a", None) };
    let course: Vec<(LoopOutput, &[&str])> = vec![
        // Nobody was told of it: a repair is under way.
        (deployed(vec![drifted("a", None)]), &[]),
        (Happened(incident("a", Some(Ok(())))), &["drift.repaired of a"]),
        (deployed(vec![]), &[]),
        // It ends by itself.
        (Happened(incident("a", None)), &["drift.detected of a"]),
        (Happened(incident("b", Some(Err("no".to_owned())))), &["drift.not-repaired of b"]),
        (deployed(vec![drifted("a", None), drifted("b", None)]), &[]),
        (deployed(vec![drifted("b", None)]), &["drift.ended of a"]),
        (deployed(vec![drifted("b", None)]), &[]),
        // It is repaired after all.
        (Happened(incident("b", Some(Ok(())))), &["drift.repaired of b"]),
        (deployed(vec![]), &[]),
        // An exception ends it.
        (Happened(incident("c", None)), &["drift.detected of c"]),
        (deployed(vec![allowed()]), &["drift.ended of c"]),
        (deployed(vec![contested()]), &["contest.detected of a"]),
        (deployed(vec![contested()]), &[]),
        (deployed(vec![drifted("a", None)]), &["contest.ended of a"]),
        (Reported(Some(report(vec![], RecordState::Locked))), &["operation.stuck of -"]),
        (Reported(Some(report(vec![], RecordState::Locked))), &[]),
        (deployed(vec![]), &["operation.ended of -"]),
        // The release goes, and with it what lasted.
        (Happened(incident("a", None)), &["drift.detected of a"]),
        (
            Reported(Some(report(vec![contested()], RecordState::Locked))),
            &["contest.detected of a", "operation.stuck of -"],
        ),
        (Reported(None), &["contest.ended of a", "drift.ended of a", "operation.ended of -"]),
        (Reported(None), &[]),
    ];
    let mut standing = OpenConditions::default();
    for (step, (said, expected)) in course.into_iter().enumerate() {
        assert_eq!(subjects(&mut standing, said), expected, "step {step}");
    }
    assert!(standing.of_releases.is_empty());
}

#[test]
fn a_brake_is_told_by_its_reach() {
    let mut standing = OpenConditions::default();
    for namespace in [None, Some("shop".to_owned())] {
        let braked = LoopAnnouncement::Braked { namespace: namespace.clone(), drifting: 20, declared: 100 };
        let messages = standing.happened(&braked, now());
        assert_eq!((messages[0].subject, &messages[0].namespace), (NotificationSubject::Braked, &namespace));
        assert_eq!(messages[0].detail.as_deref(), Some("20 of 100 declared objects drift"));
        let messages = standing.happened(&LoopAnnouncement::Eased { namespace: namespace.clone() }, now());
        assert_eq!(
            (messages[0].subject, &messages[0].namespace),
            (NotificationSubject::BrakeReleased, &namespace)
        );
    }
}

#[test]
fn end_says_how_many_drifts_and_contests_of_the_release_last() {
    let mut standing = OpenConditions::default();
    let remaining = |messages: Vec<Notification>| messages.iter().map(|it| it.remaining).collect::<Vec<_>>();
    for name in ["a", "b", "c", "d"] {
        standing.happened(&incident(name, None), now());
    }
    let repaired = standing.happened(&incident("a", Some(Ok(()))), now());
    assert_eq!(remaining(repaired), [3]);
    let left = report(vec![drifted("d", None)], RecordState::Deployed);
    assert_eq!(remaining(standing.reported(&web(), Some(&left), now())), [2, 1]);
    assert_eq!(remaining(standing.reported(&web(), None, now())), [0]);
}
