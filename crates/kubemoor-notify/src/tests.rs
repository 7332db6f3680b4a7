//! Against real HTTP receivers on loopback.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::format::FormatName;
use super::*;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// What a receiver got, and how it answers the next requests; beyond them it
/// takes everything.
#[derive(Clone, Default)]
struct Inbox {
    got: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    answers: Arc<Mutex<Vec<ReceiverAnswer>>>,
}

#[derive(Clone, Copy)]
enum ReceiverAnswer {
    Code(u16),
    /// Too many requests; the next is welcome in a second.
    Busy,
    Silence,
}

async fn receive(State(inbox): State<Inbox>, headers: HeaderMap, body: String) -> Response {
    inbox.got.lock().push((headers, serde_json::from_str(&body).unwrap()));
    let answer = inbox.answers.lock().pop();
    match answer {
        None => StatusCode::NO_CONTENT.into_response(),
        Some(ReceiverAnswer::Code(code)) => StatusCode::from_u16(code).unwrap().into_response(),
        Some(ReceiverAnswer::Busy) => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
        Some(ReceiverAnswer::Silence) => std::future::pending().await,
    }
}

impl Inbox {
    async fn open(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?token=hunter2", listener.local_addr().unwrap());
        let router = Router::new().route("/hook", axum::routing::post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    async fn holds(&self, messages: usize) -> Vec<(HeaderMap, Value)> {
        for _ in 0..1000 {
            let got = self.got.lock().clone();
            if got.len() >= messages {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("only {} of {messages} messages came", self.got.lock().len());
    }
}

fn notifier(name: &str, url: &str) -> Notifier {
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer t".parse().unwrap())]);
    Notifier {
        name: name.to_owned(),
        url: url.parse().unwrap(),
        headers,
        timeout: Duration::from_millis(300),
        format: Format::shipped(FormatName::CloudEvents, None).unwrap(),
    }
}

fn message(name: &str, subject: NotificationSubject) -> Notification {
    Notification {
        release: Some(ReleaseId { namespace: "shop".into(), name: "web".into() }),
        revision: Some(3),
        object: Some(ObjectId::namespaced("apps", "Deployment", "shop", name)),
        drift: Some("changed"),
        by: Some("kubectl-edit".to_owned()),
        ..Notification::new(subject, Timestamp::UNIX_EPOCH)
    }
}

struct Setup {
    notifiers: Notifiers,
    metrics: NoticeMetrics,
    registry: prometheus_client::registry::Registry,
    delivered: JoinHandle<Result<(), JoinError>>,
    stop: CancellationToken,
}

fn start(notifiers: Vec<Notifier>) -> Setup {
    // Whoever is first installs it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut registry = kubemoor_runtime::metrics::registry();
    let metrics = NoticeMetrics::register(&mut registry);
    let stop = CancellationToken::new();
    let (notifiers, worker) = Notifiers::new(notifiers, &metrics);
    let delivered = tokio::spawn(worker.start("urn:kubemoor:c", || true, stop.clone()).unwrap());
    Setup { notifiers, metrics, registry, delivered, stop }
}

impl Setup {
    fn count(&self, outcome: &str) -> usize {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let start = format!("kubemoor_notifications_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |count| count.parse().unwrap())
    }

    async fn counts(&self, outcome: &str, expected: usize) {
        for _ in 0..1000 {
            if self.count(outcome) == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{outcome}: {} and not {expected}", self.count(outcome));
    }
}

#[tokio::test]
async fn message_is_delivered_as_cloudevent_only_to_its_receivers() {
    let (oncall, log) = (Inbox::default(), Inbox::default());
    let setup = start(vec![notifier("oncall", &oncall.open().await), notifier("log", &log.open().await)]);
    setup.notifiers.send(&["oncall".to_owned()], message("a", NotificationSubject::Drifted));
    setup.notifiers.send(&[], message("b", NotificationSubject::Repaired));
    let got = oncall.holds(2).await;
    let (headers, event) = &got[0];
    assert_eq!(headers["content-type"], "application/cloudevents+json; charset=utf-8");
    assert_eq!(headers["authorization"], "Bearer t");
    for (field, value) in [
        ("/specversion", "1.0"),
        ("/type", "dev.kubemoor.drift.detected"),
        ("/source", "urn:kubemoor:c"),
        ("/subject", "Deployment/shop/a"),
        ("/datacontenttype", "application/json"),
        ("/data/release/name", "web"),
        ("/data/by", "kubectl-edit"),
        ("/data/drift", "changed"),
    ] {
        assert_eq!(event.pointer(field).and_then(Value::as_str), Some(value), "{field} of {event}");
    }
    assert_eq!(event["id"].as_str().unwrap().len(), 32);
    assert_eq!(log.holds(1).await[0].1["subject"], "Deployment/shop/b");
    assert_eq!(log.got.lock().len(), 1);
}

#[tokio::test]
async fn the_same_is_told_once_and_a_repair_besides() {
    let inbox = Inbox::default();
    let setup = start(vec![notifier("log", &inbox.open().await)]);
    for _ in 0..3 {
        setup.notifiers.send(&[], message("a", NotificationSubject::Drifted));
    }
    setup.notifiers.send(&[], message("a", NotificationSubject::Repaired));
    let got = inbox.holds(2).await;
    setup.counts("delivered", 2).await;
    assert_eq!((inbox.got.lock().len(), setup.count("repeated")), (2, 2));
    assert_ne!(got[0].1["id"], got[1].1["id"]);
}

#[tokio::test]
async fn delivery_is_retried_with_same_id_after_timeout_or_5xx() {
    let inbox = Inbox::default();
    *inbox.answers.lock() =
        vec![ReceiverAnswer::Silence, ReceiverAnswer::Code(503), ReceiverAnswer::Code(429)];
    let setup = start(vec![notifier("log", &inbox.open().await)]);
    setup.notifiers.send(&[], message("a", NotificationSubject::Drifted));
    let got = inbox.holds(4).await;
    assert!(got.iter().all(|(_, event)| event["id"] == got[0].1["id"]));
    setup.counts("delivered", 1).await;
}

#[tokio::test]
async fn permanent_delivery_failure_is_dropped_without_blocking_the_next_message() {
    let inbox = Inbox::default();
    *inbox.answers.lock() = vec![ReceiverAnswer::Code(404)];
    let setup = start(vec![notifier("log", &inbox.open().await)]);
    setup.notifiers.send(&[], message("a", NotificationSubject::Drifted));
    setup.notifiers.send(&[], message("b", NotificationSubject::Drifted));
    inbox.holds(2).await;
    setup.counts("delivered", 1).await;
    assert_eq!(setup.count("failed"), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (first, second) = (Inbox::default(), Inbox::default());
    let elsewhere = second.open().await;
    *first.answers.lock() = vec![ReceiverAnswer::Code(307)];
    let setup = start(vec![notifier("log", &first.open().await)]);
    setup.notifiers.send(&[], message("a", NotificationSubject::Drifted));
    setup.counts("failed", 1).await;
    assert!(second.got.lock().is_empty(), "{elsewhere} was told");
}

#[tokio::test]
async fn unreachable_receiver_blocks_no_other_and_has_a_bounded_queue() {
    let log = Inbox::default();
    let mut setup = start(vec![notifier("down", "http://127.0.0.1:9/"), notifier("log", &log.open().await)]);
    for number in 0..WAITING * 2 {
        setup
            .notifiers
            .send(&["down".to_owned()], message(&number.to_string(), NotificationSubject::Drifted));
    }
    setup.notifiers.send(&["log".to_owned()], message("b", NotificationSubject::Drifted));
    log.holds(1).await;
    // What waits is given up some seconds after the end.
    setup.stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), &mut setup.delivered).await.unwrap().unwrap().unwrap();
    assert!(setup.count("dropped") >= WAITING - 2, "{}", setup.count("dropped"));
    assert_eq!(setup.count("failed") + setup.count("dropped"), WAITING * 2);
    drop(setup.metrics);
}

#[tokio::test]
async fn template_that_fails_at_a_message_costs_no_other_message() {
    let (broken, whole) = (Inbox::default(), Inbox::default());
    let source = "{% if by == 'bomb' %}{{ by.a }}{% else %}{{ by }}{% endif %}";
    let format = Format::template(source.to_owned()).unwrap();
    let setup = start(vec![
        Notifier { format, ..notifier("broken", &broken.open().await) },
        notifier("whole", &whole.open().await),
    ]);
    let told =
        |by: &str| Notification { by: Some(by.to_owned()), ..message(by, NotificationSubject::Drifted) };
    setup.notifiers.send(&[], told("bomb"));
    setup.notifiers.send(&[], told("alice"));
    assert_eq!(whole.holds(2).await.len(), 2);
    assert_eq!(broken.holds(1).await[0].1, "alice");
    setup.counts("failed", 1).await;
    setup.counts("delivered", 3).await;
}

fn denial(user: &str, object: &str) -> Notification {
    let by = Some(user.to_owned());
    Notification {
        at: Timestamp::now(),
        since: Timestamp::now(),
        by,
        key: user.to_owned(),
        ..message(object, NotificationSubject::Denied)
    }
}

#[tokio::test]
async fn flood_of_denials_yields_one_message_per_user_and_release() {
    let inbox = Inbox::default();
    let setup = start(vec![notifier("log", &inbox.open().await)]);
    for number in 0..10_000 {
        setup.notifiers.send(&[], denial("alice", &number.to_string()));
    }
    setup.notifiers.send(&[], denial("bob", "a"));
    let elsewhere = Some(ReleaseId { namespace: "shop".into(), name: "api".into() });
    setup.notifiers.send(&[], Notification { release: elsewhere, ..denial("alice", "a") });
    setup.counts("delivered", 3).await;
    assert_eq!((setup.count("repeated"), setup.count("dropped")), (9999, 0));
    let told: Vec<_> = inbox.got.lock().iter().map(|(_, event)| event["data"]["by"].clone()).collect();
    assert_eq!(told, ["alice", "bob", "alice"]);
}

#[tokio::test]
async fn sender_never_waits_and_excess_is_counted_as_dropped() {
    let mut registry = kubemoor_runtime::metrics::registry();
    let metrics = NoticeMetrics::register(&mut registry);
    // Nobody takes anything out.
    let (notifiers, _worker) = Notifiers::new(vec![notifier("log", "http://127.0.0.1:9/")], &metrics);
    for number in 0..WAITING + 100 {
        notifiers.send(&[], denial(&number.to_string(), "a"));
    }
    // What was dropped may be tried again.
    notifiers.send(&[], denial(&(WAITING + 99).to_string(), "a"));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("kubemoor_notifications_total{outcome=\"dropped\"} 101\n"), "{text}");
    assert!(!text.contains("repeated"), "{text}");
}

#[tokio::test]
async fn only_the_leader_tells_of_what_all_replicas_see() {
    let inbox = Inbox::default();
    let (notifiers, worker) =
        Notifiers::new(vec![notifier("log", &inbox.open().await)], &NoticeMetrics::default());
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let stop = CancellationToken::new();
    let delivered = tokio::spawn(worker.start("urn:kubemoor:c", || false, stop.clone()).unwrap());
    notifiers.send(&[], message("a", NotificationSubject::Drifted));
    notifiers.send(&[], denial("alice", "a"));
    stop.cancel();
    delivered.await.unwrap().unwrap();
    let told: Vec<_> = inbox.got.lock().iter().map(|(_, event)| event["type"].clone()).collect();
    assert_eq!(told, ["dev.kubemoor.changes.denied"]);
}

#[tokio::test]
async fn delivery_that_breaks_down_ends_the_whole_before_the_stop() {
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let stopped = stop.clone();
    tasks.spawn(async move { stopped.cancelled().await });
    tasks.spawn(async { panic!("broken") });
    let delivering = tokio::time::timeout(Duration::from_secs(20), supervise(tasks, stop.clone()));
    assert!(delivering.await.unwrap().unwrap_err().is_panic());

    // Without receivers there is nothing to end.
    let mut setup = start(Vec::new());
    tokio::select! {
        biased;
        ended = &mut setup.delivered => panic!("ended before the stop: {ended:?}"),
        () = tokio::task::yield_now() => {}
    }
    setup.stop.cancel();
    tokio::time::timeout(Duration::from_secs(20), &mut setup.delivered).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn messages_that_wait_are_delivered_when_the_process_ends() {
    let inbox = Inbox::default();
    let mut setup = start(vec![notifier("log", &inbox.open().await)]);
    for name in ["a", "b", "c"] {
        setup.notifiers.send(&[], message(name, NotificationSubject::Drifted));
    }
    setup.stop.cancel();
    inbox.holds(3).await;
    tokio::time::timeout(Duration::from_secs(20), &mut setup.delivered).await.unwrap().unwrap().unwrap();
    setup.notifiers.send(&[], message("d", NotificationSubject::Drifted));
    assert_eq!((setup.count("delivered"), setup.count("dropped")), (3, 1));
}

#[tokio::test]
async fn an_answer_that_asks_for_a_pause_gets_it() {
    let inbox = Inbox::default();
    *inbox.answers.lock() = vec![ReceiverAnswer::Busy];
    let setup = start(vec![notifier("log", &inbox.open().await)]);
    let begin = std::time::Instant::now();
    setup.notifiers.send(&[], message("a", NotificationSubject::Drifted));
    setup.counts("delivered", 1).await;
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
}
