use serde_json::{Value, json};

use super::*;

/// A record's metadata: the revision names it, `uid` tells it from another with the same name.
fn meta(revision: u64, uid: &str, version: u64) -> Meta {
    labelled(revision, uid, version, json!({"owner": "helm", "name": "web"}))
}

fn labelled(revision: u64, uid: &str, version: u64, labels: Value) -> Meta {
    serde_json::from_value(json!({
        "name": format!("sh.helm.release.v1.web.v{revision}"), "namespace": "shop", "uid": uid,
        "resourceVersion": version.to_string(), "labels": labels,
    }))
    .unwrap()
}

fn newest(revision: u64, uid: &str, version: u64) -> Newest {
    let meta = meta(revision, uid, version);
    Newest { namespace: "shop".to_owned(), record: meta.name, uid: meta.uid, version }
}

/// The last changes of a watch that is open after these events.
fn after(events: impl IntoIterator<Item = Event<Meta>>) -> LastChanges {
    let mut changes = LastChanges::default();
    events.into_iter().chain([Event::Watching]).for_each(|event| changes.take(&event));
    changes
}

fn broken() -> Event<Meta> {
    Event::Broken(crate::client::call::CallError::Unserved)
}

/// Compares everything that is due with an API server that has these records. Whether etcd went back.
fn compared(changes: &mut LastChanges, server: &[Meta]) -> bool {
    let due = changes.due(|| None);
    due.iter().any(|change| changes.judge(change, server.iter().find(|meta| meta.name == change.record)))
}

#[test]
fn state_of_a_record_tells_whether_etcd_went_back() {
    use Comparison::{Earlier, Gone, Later, Same};
    let (written, deleted) = (false, true);
    let at = |uid, version| Some(meta(1, uid, version));
    for (is_deletion, now, expected) in [
        (written, at("a", 50), Same),
        (written, at("a", 49), Earlier),
        (written, at("a", 51), Later),
        (written, None, Gone),
        // An earlier or a later object of the same name.
        (written, at("b", 49), Earlier),
        (written, at("b", 51), Later),
        // Another history, which has come as far.
        (written, at("b", 50), Earlier),
        // The label is gone, and the record with it.
        (written, Some(labelled(1, "a", 51, json!({"name": "web"}))), Gone),
        (deleted, Some(labelled(1, "a", 50, json!({"owner": "me"}))), Same),
        (deleted, Some(labelled(1, "a", 60, json!(null))), Same),
        (deleted, None, Same),
        // It is back as it was before it was deleted.
        (deleted, at("a", 49), Earlier),
        (deleted, at("b", 30), Earlier),
        // Helm made it again.
        (deleted, at("b", 51), Later),
    ] {
        let change = LastChange::of(&meta(1, "a", 50), is_deletion).unwrap();
        assert_eq!(change.compare(now.as_ref()), expected, "deleted: {is_deletion}, now {now:?}");
    }
}

#[test]
fn object_without_a_comparable_version_proves_nothing() {
    let odd = || Meta { resource_version: "odd".to_owned(), ..meta(1, "a", 0) };
    assert_eq!(LastChange::of(&odd(), false), None);
    assert_eq!(LastChange::of(&meta(1, "a", 5), false).unwrap().compare(Some(&odd())), Comparison::Same);
}

#[test]
fn nothing_is_compared_before_the_watch_is_open() {
    let applied = || Event::Applied(meta(1, "a", 50));
    for events in [
        vec![],
        vec![Event::Relisting, Event::Listed(meta(1, "a", 50)), Event::Synced],
        vec![Event::Watching, applied(), broken()],
        vec![Event::Watching, applied(), Event::Relisting],
    ] {
        let mut changes = LastChanges::default();
        events.iter().for_each(|event| changes.take(event));
        assert_eq!(changes.due(|| Some(newest(1, "a", 50))), [], "{events:?}");
    }
    assert_eq!(after([]).due(|| None), [], "no record is known");
}

#[test]
fn newest_known_record_is_searched_once_after_a_listing_and_after_its_deletion() {
    let mut changes = after([Event::Relisting, Event::Synced]);
    let due = changes.due(|| Some(newest(7, "a", 50)));
    assert_eq!(due, [LastChange::of(&meta(7, "a", 50), false).unwrap()]);
    assert!(!changes.judge(&due[0], Some(&meta(7, "a", 50))));
    assert_eq!(changes.due(|| panic!("it is known")), due);
    changes.take(&Event::Deleted(meta(7, "a", 60)));
    let due = changes.due(|| Some(newest(6, "b", 40)));
    let expected = [(meta(6, "b", 40), false), (meta(7, "a", 60), true)];
    assert_eq!(due, expected.map(|(meta, is_deletion)| LastChange::of(&meta, is_deletion).unwrap()));
    let mut empty = after([Event::Relisting, Event::Synced]);
    assert_eq!(empty.due(|| None), []);
    assert_eq!(empty.due(|| panic!("there is none")), []);
}

#[test]
fn deletion_from_before_the_last_write_is_not_asked_for() {
    let deleted = Event::Deleted(meta(1, "a", 60));
    let mut changes = after([deleted, Event::Applied(meta(2, "b", 61))]);
    assert_eq!(changes.due(|| None), [LastChange::of(&meta(2, "b", 61), false).unwrap()]);
    // The next one is.
    changes.take(&Event::Deleted(meta(3, "c", 62)));
    let due = [LastChange::of(&meta(2, "b", 61), false), LastChange::of(&meta(3, "c", 62), true)];
    assert_eq!(changes.due(|| None), due.map(Option::unwrap));
}

#[test]
fn missing_record_counts_when_the_open_watch_does_not_tell_of_a_deletion() {
    let known = || Event::Applied(meta(2, "b", 50));
    let twice = |changes: &mut LastChanges| [compared(changes, &[]), compared(changes, &[])];
    let mut changes = after([known()]);
    assert_eq!(twice(&mut changes), [false, true]);
    // The watch is late and then tells.
    let mut changes = after([known()]);
    assert!(!compared(&mut changes, &[]));
    changes.take(&Event::Deleted(meta(2, "b", 60)));
    assert_eq!(twice(&mut changes), [false, false]);
    // A watch that was opened anew gets its chance.
    let mut changes = after([known()]);
    assert!(!compared(&mut changes, &[]));
    [broken(), Event::Watching].iter().for_each(|event| changes.take(event));
    assert_eq!(twice(&mut changes), [false, true]);
}

#[test]
fn newer_state_never_counts_however_late_the_watch_is() {
    let later = [meta(2, "b", 70)];
    let mut changes = after([Event::Applied(meta(2, "b", 50))]);
    assert_eq!([(); 3].map(|()| compared(&mut changes, &later)), [false; 3]);
    changes.take(&Event::Applied(meta(2, "b", 70)));
    assert_eq!([(); 3].map(|()| compared(&mut changes, &later)), [false; 3]);
    assert!(compared(&mut changes, &[meta(2, "b", 60)]));
}

#[test]
fn earlier_state_counts_at_once_also_after_later_changes() {
    let events = || [Event::Applied(meta(2, "b", 50)), broken(), Event::Watching];
    let mut changes = after(events());
    assert!(compared(&mut changes, &[meta(2, "b", 30)]));
    // The watch goes on with what others write after the restore.
    let mut changes = after(events());
    changes.take(&Event::Applied(meta(3, "c", 90)));
    assert!(compared(&mut changes, &[meta(2, "b", 30), meta(3, "c", 90)]));
    // An uninstalled release is back.
    let mut changes = after([Event::Applied(meta(1, "a", 20)), Event::Deleted(meta(2, "b", 50))]);
    assert!(compared(&mut changes, &[meta(1, "a", 20), meta(2, "b", 30)]));
}

#[test]
fn answer_that_comes_after_a_new_listing_began_does_not_count() {
    let mut changes = after([Event::Applied(meta(2, "b", 50))]);
    let due = changes.due(|| None);
    changes.take(&Event::Relisting);
    assert!(!changes.judge(&due[0], Some(&meta(2, "b", 30))));
    let mut changes = after([Event::Applied(meta(2, "b", 50))]);
    let due = changes.due(|| None);
    changes.suspend();
    assert!(!changes.judge(&due[0], Some(&meta(2, "b", 30))));
}
