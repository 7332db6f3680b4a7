use serde_json::json;

use super::*;

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: name.into() }
}

fn object(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shop", name)
}

#[test]
fn release_takes_its_own_once_and_for_ten_seconds() {
    let (mut recent, now) = (RecentObjects::default(), "2026-05-01T12:00:00Z".parse::<Timestamp>().unwrap());
    for (of, name, seconds) in [("web", "a", 0), ("api", "b", 1), ("web", "a", 5), ("web", "c", 6)] {
        let at = now + Duration::from_secs(seconds);
        recent.keep((&release(of), &object(name)), "v1", &json!(seconds), at);
    }
    let names = |taken: Vec<(ObjectId, String, Value)>| {
        taken.into_iter().map(|(object, _, value)| format!("{}{value}", object.name)).collect::<Vec<_>>()
    };
    assert_eq!(names(recent.take(&release("web"), now + Duration::from_secs(11))), ["a5", "c6"]);
    assert!(recent.take(&release("web"), now).is_empty());
    assert_eq!(names(recent.take(&release("api"), now + Duration::from_secs(11))), ["b1"]);
    assert_eq!(recent.bytes, 0);
}

#[test]
fn oversized_objects_are_not_kept_and_oldest_are_evicted_first() {
    let (mut recent, now) = (RecentObjects::default(), "2026-05-01T12:00:00Z".parse::<Timestamp>().unwrap());
    let text = |bytes: usize| json!("x".repeat(bytes));
    recent.keep((&release("web"), &object("huge")), "v1", &text(OBJECT), now);
    assert_eq!(recent.bytes, 0);
    for index in 0..20 {
        recent.keep((&release("web"), &object(&index.to_string())), "v1", &text(OBJECT - 2), now);
    }
    assert_eq!(recent.bytes, BYTES);
    let taken = recent.take(&release("web"), now);
    assert_eq!((taken.len(), taken[0].0.name.as_str()), (BYTES / OBJECT, "12"));
}
