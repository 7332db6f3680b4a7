use jiff::SignedDuration;

use super::*;

fn object(name: &str) -> ObjectId {
    ObjectId { group: String::new(), kind: "ConfigMap".to_owned(), namespace: None, name: name.to_owned() }
}

#[tokio::test]
async fn an_object_is_due_at_its_last_time_alone() {
    let alarms = Alarms::default();
    let web = ReleaseId { namespace: "shop".to_owned(), name: "web".to_owned() };
    let (past, future) = (Timestamp::now() - SignedDuration::from_secs(1), Timestamp::MAX);
    for (name, at) in [("a", Some(past)), ("b", Some(future)), ("c", Some(past))] {
        alarms.set(&web, &object(name), at);
    }
    alarms.set(&web, &object("c"), None);
    assert_eq!(alarms.due().await, [(web.clone(), object("a"))]);
    let wait = alarms.due();
    alarms.set(&web, &object("b"), Some(past));
    assert_eq!(wait.await, [(web, object("b"))]);
}
