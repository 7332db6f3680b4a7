use std::sync::Arc;

use http::Response;
use kube::client::Body;

use super::*;

fn notice(note: &str) -> Notice {
    let regarding = Regarding {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: Some("shop".to_owned()),
        name: "settings".to_owned(),
        uid: None,
    };
    Notice {
        regarding,
        related: None,
        warning: true,
        reason: "Drifted",
        action: "Judge",
        note: note.to_owned(),
    }
}

/// A client of a server that takes everything, and what it was asked.
fn server() -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        log.lock().push(request.method().to_string());
        std::future::ready(Response::builder().status(200).body(Body::from(b"{}".to_vec())))
    });
    (kube::Client::new(service, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn equal_notices_within_ten_minutes_are_one_event() {
    let (client, asked) = server();
    let events = Events::new(client, Leadership::alone(), "me".to_owned());
    let said = notice("a");
    assert_eq!(events.publish(&said).await, Ok(EventFate::Written));
    assert_eq!(events.publish(&said).await, Ok(EventFate::Counted));
    assert_eq!(events.publish(&notice("b")).await, Ok(EventFate::Written));
    tokio::time::advance(QUIET).await;
    assert_eq!(events.publish(&said).await, Ok(EventFate::Written));
    assert_eq!(*asked.lock(), ["POST", "POST", "POST"]);
}

#[tokio::test]
async fn too_much_is_dropped_and_a_follower_says_nothing() {
    let (client, asked) = server();
    let events = Events::new(client.clone(), Leadership::alone(), "me".to_owned());
    let mut dropped = 0;
    for number in 0..200 {
        if events.publish(&notice(&number.to_string())).await == Ok(EventFate::Dropped) {
            dropped += 1;
        }
    }
    assert!(dropped > 100, "{dropped}");
    let before = asked.lock().len();
    let follower = Events::new(client, Leadership::never(), "me".to_owned());
    assert_eq!(follower.publish(&notice("a")).await, Ok(EventFate::Dropped));
    assert_eq!(asked.lock().len(), before);
}

#[test]
fn an_event_is_named_after_any_object() {
    let time = Timestamp::UNIX_EPOCH;
    assert_eq!(event_name("web", 1, time), "web.10");
    assert_eq!(event_name("system:Foo_bar", 1, time), "system--oo-bar.10");
    assert_eq!(event_name(":::", 1, time), "object.10");
    assert!(event_name(&"x".repeat(253), u64::MAX, Timestamp::MAX).len() <= 253);
    assert_eq!(micros(time), "1970-01-01T00:00:00.000000Z");
}

#[test]
fn a_note_fits_and_stays_text() {
    let note = "ü".repeat(1000);
    assert_eq!(cut(&note).len(), NOTE);
    assert_eq!(cut("short"), "short");
}
