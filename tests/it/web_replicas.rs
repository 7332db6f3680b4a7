//! Replicas of the page in a cluster: a session that was ended at one of them is ended.

use std::fs;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};

use crate::support::{ClusterPage, ControlPlane, Member, Shown, folder, free_port};

/// Two replicas with one key, which know each other.
struct Replicas {
    ports: [u16; 2],
    flags: Vec<String>,
}

impl Replicas {
    fn new() -> Self {
        let key = folder("replicas").join("key");
        fs::write(&key, "0123456789abcdef0123456789abcdef0123456789").unwrap();
        let ports = [free_port(), free_port()];
        let others = ports.map(|port| format!("--replica=127.0.0.1:{port}"));
        let flags = [format!("--session-key={}", key.display())].into_iter().chain(others).collect();
        Self { ports, flags }
    }

    async fn start(&self, place: usize) -> ClusterPage {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        ClusterPage::start_at(self.ports[place], ControlPlane::get(), &flags).await
    }
}

/// What each of these pages answers to a session.
async fn answers(pages: &[&ClusterPage], session: &str) -> Vec<u16> {
    let mut statuses = Vec::new();
    for page in pages {
        statuses.push(page.get(session, "").await.status.as_u16());
    }
    statuses
}

async fn log_out(page: &ClusterPage, session: &str) {
    let own = page.form_token(session).await;
    let left = page.post(session, "logout", &[("token", &own)]).await;
    assert_eq!(left.status, StatusCode::SEE_OTHER, "{}", left.text);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn logout_at_one_replica_is_known_to_all() {
    let replicas = Replicas::new();
    let (first, second) = (replicas.start(0).await, replicas.start(1).await);
    let (alice, bob) = (Member::new(ControlPlane::get()).await, Member::new(ControlPlane::get()).await);
    let (ended, other) = (first.session(&alice.token()).await, second.session(&bob.token()).await);
    assert_eq!(answers(&[&first, &second], &ended).await, [200, 200]);
    assert_eq!(answers(&[&first, &second], &other).await, [200, 200]);
    log_out(&second, &ended).await;
    assert_eq!(answers(&[&first, &second], &ended).await, [401, 401], "a copy of the cookie");
    assert_eq!(answers(&[&first, &second], &other).await, [200, 200], "another's session");

    // A replica that starts learns of it, and whose sessions go on.
    drop(first);
    let first = replicas.start(0).await;
    assert_eq!(answers(&[&first, &second], &ended).await, [401, 401], "after a restart");
    assert_eq!(answers(&[&first, &second], &other).await, [200, 200], "after a restart");
    // Where nobody is left who knows which sessions were ended, all are.
    drop((first, second));
    let first = replicas.start(0).await;
    assert_eq!(answers(&[&first], &ended).await, [401]);
    assert_eq!(answers(&[&first], &other).await, [401]);
    let again = first.session(&bob.token()).await;
    assert_eq!(answers(&[&first], &again).await, [200]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn nobody_without_the_session_key_is_told_of_logouts() {
    let replicas = Replicas::new();
    let first = replicas.start(0).await;
    let alice = Member::new(ControlPlane::get()).await;
    let session = first.session(&alice.token()).await;
    for body in [Vec::new(), b"{}".to_vec(), vec![0; 100], vec![1; 600_000]] {
        let request = first.request(Method::POST, "replica").header(CONTENT_TYPE, "application/octet-stream");
        let shown = Shown::of(request.body(body)).await;
        let is_refused = matches!(shown.status, StatusCode::NOT_FOUND | StatusCode::PAYLOAD_TOO_LARGE);
        assert!(is_refused && !shown.text.contains("logout"), "{}: {}", shown.status, shown.text);
    }
    // One that has another key is no replica.
    let key = folder("stranger").join("key");
    fs::write(&key, "another 0123456789abcdef0123456789abcdef").unwrap();
    let flags =
        [format!("--session-key={}", key.display()), format!("--replica=127.0.0.1:{}", replicas.ports[0])];
    let stranger = ClusterPage::start(ControlPlane::get(), &flags.each_ref().map(String::as_str)).await;
    assert_eq!(answers(&[&first, &stranger], &session).await, [200, 401]);
}
