//! `kubemoor notify test`: what a receiver gets, and what a person is told of its answer.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::{ROUTING_KEY, Ran, SECRET, Service, ServiceFault, ServiceKind, folder, run, serve_hook};

/// A file with one receiver, `a`.
fn file(folder: &Path, receiver: &str) -> String {
    let path = folder.join("notifiers.yaml");
    fs::write(&path, format!("notifiers:\n- {{name: a, timeout: 1s, {receiver}}}\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

fn try_receiver(receiver: &str, more: &[&str]) -> Ran {
    let folder = folder("notify");
    let file = file(&folder, receiver);
    let ran = run(&[&["notify", "test", "a", "--notifiers", &file], more].concat(), "");
    for secret in [SECRET, ROUTING_KEY] {
        assert!(!ran.out.contains(secret) && !ran.error.contains(secret), "{ran:?}");
    }
    ran
}

/// The fields of a receiver at this service.
fn receiver(kind: ServiceKind, service: &Service) -> String {
    let folder = folder("key");
    let key = folder.join("key");
    fs::write(&key, format!("{ROUTING_KEY}\n")).unwrap();
    let form = match kind {
        ServiceKind::Slack => "format: slack".to_owned(),
        ServiceKind::Teams => "format: teams".to_owned(),
        ServiceKind::PagerDuty => format!("format: pagerduty, routingKeyFile: {}", key.display()),
        ServiceKind::Json => "format: template, template: '{\"said\": {{ text }}}'".to_owned(),
    };
    format!("url: '{}', {form}", service.url)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_format_passes_what_its_service_documents() {
    for kind in [ServiceKind::Slack, ServiceKind::Teams, ServiceKind::PagerDuty, ServiceKind::Json] {
        let service = Service::open(kind, &[]).await;
        let ran = try_receiver(&receiver(kind, &service), &[]);
        service.assert_pleased();
        assert!(ran.code == 0 && ran.out.contains("accepts the message"), "{kind:?}: {ran:?}");
        assert!(ran.out.contains("http://127.0.0.1:"), "{ran:?}");
        let taken = service.taken();
        assert!(taken.len() == 1 && taken[0].to_string().contains("test message"), "{taken:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_over_tls_gets_messages_only_if_the_machine_trusts_its_authority() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let take = move |text: String| async move {
        assert!(text.contains("dev.kubemoor.test"), "{text}");
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let (_server, address) = serve_hook(Router::new().route("/", post(take))).await;
    let folder = folder("tls");
    let own = folder.join("own.crt");
    fs::write(&own, STANDARD.decode(address["caBundle"].as_str().unwrap()).unwrap()).unwrap();
    let other = folder.join("other.crt");
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(&other, signed.cert.pem()).unwrap();
    let file = file(&folder, &format!("url: {}", address["url"]));
    let send = |authorities: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
        command.args(["notify", "test", "a", "--notifiers", &file]).env("SSL_CERT_FILE", authorities);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let (code, said) = send(&own);
    assert!(code == 0 && said.contains("accepts the message"), "{code}: {said}");
    let (code, said) = send(&other);
    assert!(
        code == 2 && said.contains("cannot be reached") && said.contains("certificate"),
        "{code}: {said}"
    );
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusing_receiver_is_shown_with_its_answer_and_exit_1() {
    for (fault, code) in
        [(ServiceFault::Code(404), 404), (ServiceFault::Code(500), 500), (ServiceFault::Busy(30), 429)]
    {
        let service = Service::open(ServiceKind::Slack, &[fault]).await;
        let ran = try_receiver(&receiver(ServiceKind::Slack, &service), &["-o", "json"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        let answer = ran.json();
        assert_eq!((&answer["delivered"], &answer["code"]), (&json!(false), &json!(code)), "{answer}");
        assert_eq!(service.requests(), 1, "it is tried once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_receiver_is_reported_in_one_sentence_with_exit_2() {
    let service = Service::open(ServiceKind::Slack, &[ServiceFault::Silent]).await;
    let silent = try_receiver(&receiver(ServiceKind::Slack, &service), &[]);
    silent.assert_failed(&["cannot be reached", "no answer in time"]);
    let nowhere = format!("url: 'http://127.0.0.1:1/{SECRET}'");
    try_receiver(&nowhere, &[]).assert_failed(&["http://127.0.0.1:1", "cannot be reached"]);
    let key = format!("format: pagerduty, routingKeyFile: /nowhere/{}", "key");
    try_receiver(&key, &[]).assert_failed(&["routingKeyFile", "/nowhere/key"]);
    try_receiver(&format!("url: '{SECRET}'"), &[]).assert_failed(&["its url is not a URL"]);
    let folder = folder("notify");
    let file = file(&folder, "url: 'http://127.0.0.1:1/'");
    run(&["notify", "test", "b", "--notifiers", &file], "")
        .assert_failed(&["has no receiver \"b\"", "only: a"]);
}
