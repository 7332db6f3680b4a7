use super::*;

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
