//! What a real API server cannot be brought to do on demand: its answers, made up.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;

/// One request that the server expects, and what it answers.
struct Exchange {
    /// A part of the request's query.
    expects: &'static str,
    status: u16,
    body: String,
}

fn list(expects: &'static str, names: &[&str], version: &str, next: Option<&str>) -> Exchange {
    let items: Vec<Value> =
        names.iter().map(|name| json!({"metadata": {"name": name, "resourceVersion": "1"}})).collect();
    let body = json!({"metadata": {"resourceVersion": version, "continue": next}, "items": items});
    Exchange { expects, status: 200, body: body.to_string() }
}

fn watch(expects: &'static str, events: &[Value]) -> Exchange {
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    Exchange { expects, status: 200, body: lines }
}

fn failure(expects: &'static str, code: u16, reason: &str) -> Exchange {
    Exchange { expects, status: code, body: refusal(code, reason).to_string() }
}

fn refusal(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "made up"})
}

fn change(kind: &str, name: &str, version: &str) -> Value {
    json!({"type": kind, "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": name, "resourceVersion": version}}})
}

/// Has the watch meet the exchanges in turn, and tells the events that come of
/// them until it asks for more.
async fn check(exchanges: Vec<Exchange>, expected: &[&str]) {
    let left = Arc::new(Mutex::new(VecDeque::from(exchanges)));
    let (answers, unexpected) = (left.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = unexpected.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let exchange = answers.lock().pop_front();
        let noted = noted.clone();
        async move {
            let Some(exchange) = exchange else {
                return std::future::pending::<Result<Response<Body>, std::io::Error>>().await;
            };
            if !uri.contains(exchange.expects) {
                noted.lock().push(format!("{uri} instead of {}", exchange.expects));
            }
            let body = Body::from(exchange.body.into_bytes());
            drop(request.into_body().collect());
            Ok(Response::builder().status(exchange.status).body(body).unwrap())
        }
    });
    let client = kube::Client::new(service, "default");
    let resource = ApiResource::new("", "v1", "Secret", "secrets");
    let mut watch = MetadataWatch::new(client, &resource, None, Some("owner=helm"));
    let mut seen = Vec::new();
    // Time stands still while anything can go on: only the last wait runs out.
    while let Ok(event) = timeout(PATIENCE / 2, watch.next()).await {
        seen.push(match event {
            ObjectEvent::Relisting => "relisting".to_owned(),
            ObjectEvent::Listed(meta) => format!("listed {}", meta.name),
            ObjectEvent::Synced => "synced".to_owned(),
            ObjectEvent::Watching => "watching".to_owned(),
            ObjectEvent::Applied(meta) => format!("applied {}", meta.name),
            ObjectEvent::Deleted(meta) => format!("deleted {}", meta.name),
            ObjectEvent::Broken(ClusterError::Refused { code, .. }) => format!("broken {code}"),
            ObjectEvent::Broken(_) => "broken".to_owned(),
        });
    }
    assert_eq!(seen, expected);
    assert_eq!(*unexpected.lock(), Vec::<String>::new());
    assert!(left.lock().is_empty(), "the watch did not ask for everything");
}

#[tokio::test(start_paused = true)]
async fn pages_are_listed_and_changes_followed() {
    check(
        vec![
            list("limit=250", &["a", "b"], "10", Some("more")),
            list("continue=more", &["c"], "10", None),
            watch("resourceVersion=10", &[change("ADDED", "d", "11"), change("DELETED", "a", "12")]),
            watch("resourceVersion=12", &[change("MODIFIED", "b", "13")]),
        ],
        &[
            "relisting",
            "listed a",
            "listed b",
            "listed c",
            "synced",
            "watching",
            "applied d",
            "deleted a",
            "watching",
            "applied b",
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_may_be_null() {
    let empty = json!({"metadata": {"resourceVersion": "10"}, "items": null}).to_string();
    check(vec![Exchange { expects: "limit=250", status: 200, body: empty }], &["relisting", "synced"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_begins_the_listing_anew() {
    check(
        vec![
            list("limit=250", &["a"], "10", Some("more")),
            failure("continue=more", 410, "Expired"),
            list("limit=250", &["b"], "20", None),
        ],
        &["relisting", "listed a", "broken 410", "relisting", "listed b", "synced"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_anew() {
    let expired = json!({"type": "ERROR", "object": refusal(410, "Expired")});
    check(
        vec![
            list("limit=250", &["a"], "10", None),
            watch("resourceVersion=10", &[expired]),
            list("limit=250", &["b"], "20", None),
        ],
        &["relisting", "listed a", "synced", "watching", "relisting", "listed b", "synced"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_refuses_lists_anew() {
    check(
        vec![
            list("limit=250", &["a"], "10", None),
            failure("resourceVersion=10", 400, "BadRequest"),
            list("limit=250", &["a"], "20", None),
        ],
        &["relisting", "listed a", "synced", "broken 400", "relisting", "listed a", "synced"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again_from_the_same_place() {
    check(
        vec![
            list("limit=250", &["a"], "10", None),
            failure("resourceVersion=10", 429, "TooManyRequests"),
            watch("resourceVersion=10", &[change("ADDED", "b", "11")]),
        ],
        &["relisting", "listed a", "synced", "broken 429", "watching", "applied b"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_place_to_go_on_from() {
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "50"}}});
    check(
        vec![
            list("limit=250", &[], "10", None),
            watch("resourceVersion=10", &[bookmark]),
            watch("resourceVersion=50", &[]),
        ],
        &["relisting", "synced", "watching", "watching"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_told_and_tried_again() {
    check(
        vec![failure("limit=250", 403, "Forbidden"), list("limit=250", &["a"], "10", None)],
        &["relisting", "broken 403", "relisting", "listed a", "synced"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_at_once_after_a_long_api_server_outage() {
    let back = Instant::now() + Duration::from_secs(60);
    let service = tower::service_fn(move |request: Request<Body>| async move {
        drop(request.into_body().collect());
        if Instant::now() < back {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        }
        let body = list("", &["a"], "10", None).body;
        Ok(Response::builder().status(200).body(Body::from(body.into_bytes())).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let resource = ApiResource::new("", "v1", "Secret", "secrets");
    let mut watch = MetadataWatch::new(client, &resource, None, None);
    let mut attempts = 0;
    loop {
        match watch.next().await {
            ObjectEvent::Listed(_) => break,
            ObjectEvent::Broken(_) => attempts += 1,
            _ => {}
        }
    }
    // The longest pause, and the part by chance.
    let longest = SOON + Duration::from_secs(1);
    assert!(back.elapsed() <= longest, "{:?} after it was back", back.elapsed());
    assert!(attempts <= 61, "{attempts} attempts in a minute");
}

#[tokio::test(start_paused = true)]
async fn relisting_during_an_outage_keeps_the_pause() {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::ready(Err::<Response<Body>, _>(std::io::Error::from(
            std::io::ErrorKind::ConnectionRefused,
        )))
    });
    let client = kube::Client::new(service, "default");
    let resource = ApiResource::new("", "v1", "Secret", "secrets");
    let mut watch = MetadataWatch::new(client, &resource, None, None);
    let (begun, mut attempts) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(10) {
        match watch.next().await {
            ObjectEvent::Broken(_) => attempts += 1,
            _ => continue,
        }
        watch.relist();
    }
    assert!(attempts <= 11, "{attempts} attempts in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn silent_watch_reopens_from_its_last_resource_version() {
    let mut watch = watch_of_silent_server();
    while !matches!(hasty_next(&mut watch).await, ObjectEvent::Watching) {}
    let since = Instant::now();
    assert!(matches!(hasty_next(&mut watch).await, ObjectEvent::Watching));
    assert_eq!(since.elapsed(), QUIET);
}

/// The watch of a server that has one object, and tells of no change.
fn watch_of_silent_server() -> MetadataWatch {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let uri = request.uri().to_string();
        if uri.contains("watch=true") {
            assert!(uri.contains("resourceVersion=80"), "{uri}");
            let silent = futures::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
            return Ok::<_, std::io::Error>(Response::new(Either::Left(StreamBody::new(silent))));
        }
        let page = list("", &["a"], "80", None).body;
        Ok(Response::new(Either::Right(Full::new(Bytes::from(page)))))
    });
    let client = kube::Client::new(service, "default");
    MetadataWatch::new(client, &ApiResource::new("", "v1", "Secret", "secrets"), None, None)
}

/// After a restore of etcd, for example, no watch tells what it missed.
#[tokio::test(start_paused = true)]
async fn everything_is_listed_again_within_five_minutes() {
    let mut watch = watch_of_silent_server();
    let mut synced: Vec<Instant> = Vec::new();
    while synced.len() < 20 {
        if let ObjectEvent::Synced = watch.next().await {
            synced.push(Instant::now());
        }
    }
    let pauses: Vec<Duration> = synced.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (shortest, longest) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!(*shortest >= Duration::from_secs(240) && *longest <= Duration::from_secs(300), "{pauses:?}");
    assert!(shortest < longest, "guards that start together list at different times");
}

/// The next event for a caller that has something else to do every few milliseconds.
async fn hasty_next(watch: &mut MetadataWatch) -> ObjectEvent<Meta> {
    loop {
        if let Ok(event) = timeout(Duration::from_millis(10), watch.next()).await {
            return event;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn request_is_made_once_for_caller_that_is_called_away_meanwhile() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let answer = match uri.contains("watch=true") {
            true => watch("", &[change("ADDED", "b", "11")]),
            false => list("", &["a"], "10", None),
        };
        noted.lock().push(uri);
        async move {
            sleep(Duration::from_millis(100)).await;
            Ok::<_, std::io::Error>(Response::new(Body::from(answer.body.into_bytes())))
        }
    });
    let client = kube::Client::new(service, "default");
    let mut watch = MetadataWatch::new(client, &ApiResource::new("", "v1", "Secret", "secrets"), None, None);
    let begin = Instant::now();
    while !matches!(hasty_next(&mut watch).await, ObjectEvent::Applied(meta) if meta.name == "b") {}
    assert_eq!(asked.lock().len(), 2, "{:?}", asked.lock());
    assert!(begin.elapsed() < Duration::from_millis(250), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_soon_when_restarted_api_server_first_answers_forbidden() {
    let (back, knows) = (Instant::now() + Duration::from_secs(20), Instant::now() + Duration::from_secs(35));
    let service = tower::service_fn(move |request: Request<Body>| async move {
        drop(request.into_body().collect());
        let now = Instant::now();
        if now < back {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        }
        let answer = if now < knows { failure("", 403, "Forbidden") } else { list("", &["a"], "10", None) };
        Ok(Response::builder().status(answer.status).body(Body::from(answer.body.into_bytes())).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let mut watch = MetadataWatch::new(client, &ApiResource::new("", "v1", "Secret", "secrets"), None, None);
    while !matches!(watch.next().await, ObjectEvent::Listed(_)) {}
    let longest = SOON + Duration::from_secs(1);
    assert!(knows.elapsed() <= longest, "{:?} after it knew", knows.elapsed());
}

/// How long after its return a server that answers with `code` for a minute is asked, and how often it is asked before.
async fn busy_for_a_minute(code: u16, asked: Option<&'static str>) -> (Duration, u32) {
    let back = Instant::now() + Duration::from_secs(60);
    let service = tower::service_fn(move |request: Request<Body>| async move {
        drop(request.into_body().collect());
        let is_back = Instant::now() >= back;
        let answer = if is_back { list("", &["a"], "10", None) } else { failure("", code, "Busy") };
        let mut response = Response::builder().status(answer.status);
        if let Some(asked) = asked.filter(|_| !is_back) {
            response = response.header("retry-after", asked);
        }
        Ok::<_, std::io::Error>(response.body(Body::from(answer.body.into_bytes())).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let mut watch = MetadataWatch::new(client, &ApiResource::new("", "v1", "Secret", "secrets"), None, None);
    let mut attempts = 0;
    loop {
        match watch.next().await {
            ObjectEvent::Listed(_) => return (back.elapsed(), attempts),
            ObjectEvent::Broken(_) => attempts += 1,
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_within_five_seconds_after_a_long_time_of_busy_answers() {
    let soon = Duration::from_secs(5);
    // A server that asks for more than the longest pause gets that, and half of a pause of the guard.
    let longest = ASKED + SOON;
    for (code, asked, within, attempts) in [
        (429, None, soon, 15..=60),
        (500, None, soon, 15..=60),
        (503, None, soon, 15..=60),
        (504, None, soon, 15..=60),
        (429, Some("1"), soon, 15..=48),
        (503, Some("1"), soon, 15..=48),
        (429, Some("10"), Duration::from_secs(12), 5..=6),
        (503, Some("3600"), longest, 2..=2),
        (503, Some("soon"), soon, 15..=60),
    ] {
        let (late, often) = busy_for_a_minute(code, asked).await;
        assert!(late <= within, "{code} {asked:?}: {late:?} after it was back");
        assert!(attempts.contains(&often), "{code} {asked:?}: {often} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_asked_for_again_with_fewer_objects() {
    let large = |expects| Exchange { expects, status: 200, body: "x".repeat(5 << 20) };
    check(
        vec![
            list("limit=250", &["a"], "10", Some("more")),
            large("limit=500&continue=more"),
            list("limit=250&continue=more", &["b"], "10", Some("last")),
            large("limit=500&continue=last"),
            large("limit=250&continue=last"),
            list("limit=125&continue=last", &["c"], "10", None),
        ],
        &["relisting", "listed a", "listed b", "listed c", "synced"],
    )
    .await;
}
