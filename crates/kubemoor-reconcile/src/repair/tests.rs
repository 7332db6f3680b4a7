use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use kubemoor_policy::signing::{OrderGrant, hex};

#[test]
fn notes_count_for_one_record_of_one_object() {
    let [a, b] = ["a", "b"].map(|name| ObjectId::namespaced("", "ConfigMap", "shop", name));
    let mut notes = RecordNotes::default();
    notes.note(&a, "u1", ["x".to_owned()]);
    notes.note(&a, "u1", ["y".to_owned()]);
    assert!(notes.has(&a, "u1", "x") && notes.has(&a, "u1", "y"));
    assert!(!notes.has(&a, "u2", "x") && !notes.has(&b, "u1", "x") && !notes.has(&a, "u1", "z"));
    notes.note(&a, "u2", ["z".to_owned()]);
    assert!(!notes.has(&a, "u2", "x") && notes.has(&a, "u2", "z"));
    notes.forget(&a);
    assert!(!notes.has(&a, "u2", "z"));
}

#[test]
fn ticket_of_a_waiting_order_expires_like_that_of_a_new_one() {
    let release = assembled(SampleRecord::default(), None);
    let object = ObjectId::namespaced("", "ConfigMap", "shop", "web");
    let issued: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
    let ticket = Ticket {
        user: "alice".to_owned(),
        issued,
        revision: release.state.revision,
        manifest: hex(&release.state.digest),
        objects: vec![OrderGrant::new(Verb::Update, &object, &release.id)],
    };
    let ticket = Some(Arc::new(ticket));
    let task = Task { id: release.id.clone(), object, asked: true, ticket, towards: None };
    for (seconds, user) in [(0, Some("alice")), (300, Some("alice")), (301, None)] {
        let now = issued + SignedDuration::from_secs(seconds);
        assert_eq!(ordered_by(&task, &release, DriftKind::Changed, now).as_deref(), user, "{seconds}");
    }
}
