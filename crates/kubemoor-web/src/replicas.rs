//! Replicas of the page in a cluster tell each other which sessions were ended.
//!
//! Entry points: [`Replicas::exchange`] asks them all, [`answer`] is asked, [`Replicas::permit`] tells whether a session
//! may go on. Invariant: nothing is told to, or believed
//! from, anybody who does not hold the key of the sessions; an answer counts for its question alone. The certificates
//! of replicas are their own, so the key and not TLS tells who answers. No account and no right is needed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use http::{StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tracing::warn;

use super::logouts::Logouts;
use super::session::{Seal, SealError, Session};
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::callers;

/// The page that answers other replicas.
pub(super) const PATH: &str = "/replica";

/// How often they are asked. A page that is told to stop serves for longer.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The oldest question that is answered, and how far clocks may differ.
const OLD: SignedDuration = SignedDuration::from_secs(60);

/// Purposes of keys.
const QUESTION: &str = "question of a replica";
const ANSWER: &str = "answer of a replica";

/// The largest question and answer: a full list of logouts, encrypted.
pub(super) const LARGEST: usize = 512 << 10;

/// How many exchanges in a row fail before that is logged: replicas come and go.
const FAILURES: u32 = 3;

/// What a question is known by in its answer.
const NUMBER: usize = 16;
type Number = [u8; NUMBER];

/// Who the other replicas are, and how they are asked.
pub(super) struct Replicas {
    /// Each with its port; all addresses of a name are replicas.
    names: Vec<String>,
    /// The name by which this page is called, and so the others.
    host: String,
    question: Seal,
    answer: Seal,
    client: reqwest::Client,
    /// The logouts that are known here.
    logouts: Mutex<Logouts>,
    /// How many exchanges in a row have failed.
    failures: AtomicU32,
}

impl Replicas {
    /// The replicas at these addresses, `HOST:PORT`, which hold the same key.
    pub(super) fn new(
        names: Vec<String>,
        host: String,
        key: &SigningKey,
        now: Timestamp,
    ) -> Result<Self, SealError> {
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .connect_timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tls_danger_accept_invalid_certs(true)
            .build()
            .map_err(|_| SealError)?;
        let (question, answer) = (Seal::new(key, QUESTION)?, Seal::new(key, ANSWER)?);
        let (logouts, failures) = (Mutex::new(Logouts::none(now)), AtomicU32::default());
        Ok(Self { names, host, question, answer, client, logouts, failures })
    }

    /// Whether a session may go on.
    pub(super) fn permit(&self, session: &Session) -> bool {
        self.logouts.lock().permit(session)
    }

    /// Ends a session. Every replica that answers knows of it afterwards.
    pub(super) async fn end(&self, session: &Session) {
        self.logouts.lock().end(session);
        self.exchange().await;
    }

    /// Forgets logouts of sessions that would be over by now.
    pub(super) fn tidy(&self, now: Timestamp) {
        self.logouts.lock().tidy(now);
    }

    /// Tells all replicas of the logouts that are known here, and learns theirs.
    pub(super) async fn exchange(&self) {
        let found = join_all(self.names.iter().map(|name| async move {
            match timeout(PATIENCE, lookup_host(name)).await {
                Ok(Ok(found)) => Ok(found.collect::<Vec<_>>()),
                Ok(Err(error)) => Err(format!("{name}: {error}")),
                Err(_) => Err(format!("{name}: its addresses are not known in time")),
            }
        }));
        let mut failures = Vec::new();
        let mut addresses = BTreeSet::new();
        for found in found.await {
            match found {
                Ok(found) => addresses.extend(found),
                Err(error) => failures.push(error),
            }
        }
        let asked = addresses
            .into_iter()
            .map(|address| async move { self.ask(address).await.map_err(|why| format!("{address}: {why}")) });
        failures.extend(join_all(asked).await.into_iter().filter_map(Result::err));
        if failures.is_empty() {
            self.failures.store(0, Ordering::Relaxed);
        } else if self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1) == FAILURES {
            warn!(
                reason = failures.join("; "),
                "a replica of the page does not answer, and does not learn of logouts"
            );
        }
    }

    async fn ask(&self, address: SocketAddr) -> Result<(), String> {
        let key = callers::random_key().map_err(|error| error.to_string())?;
        let mut number = Number::default();
        number.iter_mut().zip(key.as_bytes()).for_each(|(to, from)| *to = *from);
        let mut question = number.to_vec();
        question.extend(Timestamp::now().as_second().to_be_bytes());
        question.extend(self.logouts.lock().bytes());
        let sealed = self.question.seal(question).map_err(|error| error.to_string())?;
        let request = self.client.post(format!("https://{address}{PATH}")).header(header::HOST, &self.host);
        let said = |error: reqwest::Error| error.without_url().to_string();
        let mut response = request.body(sealed).send().await.map_err(said)?;
        if response.status() != StatusCode::OK {
            return Err(format!(
                "it answers {}: do all replicas have the same key, hosts and time?",
                response.status()
            ));
        }
        let unreadable = || "its answer cannot be read".to_owned();
        let mut sealed = Vec::new();
        while let Some(part) = response.chunk().await.map_err(said)? {
            sealed.extend(part);
            if sealed.len() > LARGEST {
                return Err(unreadable());
            }
        }
        let (to, rest) =
            self.answer.open(&mut sealed).and_then(<[u8]>::split_first_chunk).ok_or_else(unreadable)?;
        let told = Logouts::read(rest).filter(|_| *to == number).ok_or_else(unreadable)?;
        self.logouts.lock().merge(told, true);
        Ok(())
    }

    /// The answer to a question, from whoever holds the key.
    fn answer(&self, question: Bytes, now: Timestamp) -> Option<Vec<u8>> {
        let mut sealed = question.to_vec();
        let (number, rest): (&Number, _) = self.question.open(&mut sealed)?.split_first_chunk()?;
        let (time, rest) = rest.split_first_chunk()?;
        let time = Timestamp::from_second(i64::from_be_bytes(*time)).ok()?;
        let told = Logouts::read(rest).filter(|_| now.duration_since(time).abs() <= OLD)?;
        let known = {
            let mut logouts = self.logouts.lock();
            logouts.merge(told, false);
            logouts.bytes()
        };
        self.answer.seal([number.as_slice(), &known].concat()).ok()
    }
}

/// Answers another replica. To everybody else there is no such page.
pub(super) async fn answer(State(replicas): State<Arc<Replicas>>, question: Bytes) -> Response {
    match replicas.answer(question, Timestamp::now()) {
        Some(answer) => ([(header::CONTENT_TYPE, "application/octet-stream")], answer).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(key: u8, now: Timestamp) -> Replicas {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Replicas::new(Vec::new(), "ui.example".to_owned(), &SigningKey::new([key; 32]), now).unwrap()
    }

    fn question(from: &Replicas, time: Timestamp) -> Vec<u8> {
        let told = from.logouts.lock().bytes();
        let time = time.as_second().to_be_bytes();
        from.question.seal([&[7; NUMBER], time.as_slice(), &told].concat()).unwrap()
    }

    #[test]
    fn fresh_question_of_key_holder_alone_is_answered() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let (one, other, stranger) = (replica(1, now), replica(1, now), replica(2, now));
        let session = Session::begin("a".to_owned().into(), now).unwrap();
        other.logouts.lock().end(&session);
        let asked = question(&other, now);
        let ask = |question: &[u8], now| one.answer(Bytes::copy_from_slice(question), now);
        let mut changed = asked.clone();
        changed[20] ^= 1;
        let of_stranger = question(&stranger, now);
        let refused: [&[u8]; 5] = [b"", b"{}", &asked[1..], &changed, &of_stranger];
        for wrong in refused {
            assert_eq!(ask(wrong, now), None);
        }
        for far in [SignedDuration::from_secs(61), SignedDuration::from_secs(-61)] {
            assert_eq!(ask(&asked, now + far), None, "{far}");
        }
        assert!(one.permit(&session), "nothing was believed");
        let mut answer = ask(&asked, now).unwrap();
        assert!(!one.permit(&session));
        assert_eq!(one.question.open(&mut answer.clone()), None, "an answer is no question");
        assert_eq!(other.answer.open(&mut answer).unwrap()[..NUMBER], [7; NUMBER]);
    }
}
