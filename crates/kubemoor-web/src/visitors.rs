//! The visitors of a page that runs in a cluster.
//!
//! A request shows its visitor's token in the header of a proxy, or in the encrypted cookie of a login, which every replica
//! with the key can open. Logins are kept nowhere else. What was read for a token is remembered for a while, under the
//! token's keyed digest, so that pages are quick and follow the cluster; it is shown for no other token, and only while the
//! API server still knows whose the token is.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{self, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use super::cluster::{Cluster, Settings};
use super::visitor::{Entry, Visitor};
use kubemoor_cluster::client::connection::Access;
use kubemoor_inspect::failure::Failure;
use kubemoor_policy::signing::SigningKey;

/// The cookie of a login. By its prefix a browser takes it from this host alone, encrypted, for all paths: no other
/// host of the domain can plant one.
pub(super) const COOKIE: &str = "__Host-kubemoor";

/// How long a login lasts at most. The token may end sooner.
const LOGIN: SignedDuration = SignedDuration::from_hours(8);

/// The longest token that fits into a cookie of 4096 bytes, which is what browsers keep.
pub(super) const LONGEST_TOKEN: usize = 2900;

/// The most visitors whose clusters are followed, and for how long after they have looked last, and at all.
const MOST: u64 = 64;
const IDLE: Duration = Duration::from_secs(10 * 60);
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// For how long it is believed who a visitor is.
const CONFIRMED: Duration = Duration::from_secs(15);

/// For how long a token that the API server has refused is refused again, and of how many that is known: whoever sends one
/// again and again asks little of the API server, and a token that becomes valid works soon.
const REFUSED: Duration = Duration::from_secs(3);
const MOST_REFUSED: u64 = 1024;

/// How many tokens the API server is asked about at one time.
const ASKING: usize = 16;

/// The longest token of a proxy.
const TOKEN: usize = 16 << 10;

/// Purposes of marks and keys.
const SEALING: &str = "cookie of a login";
const KNOWN: &str = "place of a visitor";
const FORMS: &str = "forms of a visitor";

/// All visitors of the page.
pub(super) struct Visitors {
    settings: Settings,
    key: SigningKey,
    sealer: Sealer,
    known: Cache<[u8; 32], Arc<Visitor>>,
    /// The places of tokens that were refused a moment ago.
    refused: Cache<[u8; 32], ()>,
    asking: Semaphore,
}

/// What encrypts the tokens in cookies.
struct Sealer(RandomizedNonceKey);

/// A token cannot be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cookie of the login cannot be encrypted")]
pub struct SealError;

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// They show nothing by which they are known, or nothing that the API server accepts.
    #[error("The cluster does not know you, or your login has ended.")]
    Unknown,
    /// What they show is no bearer token.
    #[error("The Authorization header of this request holds no bearer token.")]
    Malformed,
    /// It cannot be told who they are.
    #[error("{0}")]
    Away(Failure),
}

impl Visitors {
    /// The visitors of a cluster; the token in `settings` is each visitor's own. Replicas with one key open each
    /// other's cookies.
    pub(super) fn new(settings: Settings, key: SigningKey) -> Result<Self, SealError> {
        let sealer = Sealer::new(&key)?;
        let (known, asking) = (memory(MOST), Semaphore::new(ASKING));
        let refused = Cache::builder().max_capacity(MOST_REFUSED).time_to_live(REFUSED).build();
        Ok(Self { settings, key, sealer, known, refused, asking })
    }

    /// Who sends a request with these headers.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Arc<Visitor>, Refused> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            // What a proxy says counts, whatever the browser remembers.
            (Some(one), None) => {
                let token = bearer(one).ok_or(Refused::Malformed)?;
                self.visitor(token, Entry::Proxy).await
            }
            (Some(_), Some(_)) => Err(Refused::Malformed),
            (None, _) => {
                let token = self.cookie_token(headers, now).ok_or(Refused::Unknown)?;
                self.visitor(token, Entry::Login).await
            }
        }
    }

    /// Whose token that is, as the API server says.
    pub(super) async fn visitor(&self, token: SecretString, entry: Entry) -> Result<Arc<Visitor>, Refused> {
        let place = self.place(&token, entry);
        let known = self.known.get(&place);
        if let Some(visitor) = known.as_ref().filter(|it| it.is_confirmed_within(CONFIRMED)) {
            return Ok(Arc::clone(visitor));
        }
        if self.refused.contains_key(&place) {
            return Err(Refused::Unknown);
        }
        let _turn = self.asking.acquire().await.map_err(|_| Refused::Unknown)?;
        // Somebody else may have asked about it in the meantime.
        if self.refused.contains_key(&place) {
            return Err(Refused::Unknown);
        }
        let cluster = Cluster::new(Settings {
            access: Access { token: Some(token), ..self.settings.access.clone() },
            ..self.settings.clone()
        });
        let user = match cluster.ask_user().await {
            Ok(user) => user,
            Err(error) if error.is_unauthorized() => {
                self.forget(&place);
                self.refused.insert(place, ());
                return Err(Refused::Unknown);
            }
            Err(error) => return Err(Refused::Away(error)),
        };
        let visitor = self.known.get_with(place, || {
            // Tokens are renewed while a form is open; who sends it stays the same.
            let whose = user.as_ref().map_or(place.as_slice(), |user| user.as_bytes());
            let forms = SigningKey::new(self.key.mark(FORMS, &[whose]));
            Arc::new(Visitor::new(vec![cluster], entry, user, forms))
        });
        visitor.confirm();
        Ok(visitor)
    }

    /// The cookie's value for a login that begins now.
    pub(super) fn seal(&self, token: &SecretString, now: Timestamp) -> Result<String, SealError> {
        self.sealer.seal(token, now.checked_add(LOGIN).map_err(|_| SealError)?)
    }

    /// Forgets what was read for the token in the cookie, and tells open pages of the visitor to ask again.
    pub(super) fn log_out(&self, headers: &HeaderMap, now: Timestamp) {
        if let Some(token) = self.cookie_token(headers, now) {
            self.forget(&self.place(&token, Entry::Login));
        }
    }

    /// A mark of the page's own.
    pub(super) fn mark(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.key.mark(purpose, parts)
    }

    /// Forgets visitors who have not looked for long, and ends their watches.
    pub(super) fn tidy(&self) {
        self.known.run_pending_tasks();
    }

    /// Forgets a visitor whose login or token has ended, and tells their open pages.
    fn forget(&self, place: &[u8; 32]) {
        if let Some(visitor) = self.known.remove(place) {
            visitor.end();
        }
    }

    /// Under what a visitor is remembered.
    fn place(&self, token: &SecretString, entry: Entry) -> [u8; 32] {
        let way = [u8::from(entry == Entry::Login)];
        self.key.mark(KNOWN, &[&way, token.expose_secret().as_bytes()])
    }

    fn cookie_token(&self, headers: &HeaderMap, now: Timestamp) -> Option<SecretString> {
        let (_, value) = cookies(headers).find(|(name, _)| *name == COOKIE)?;
        self.sealer.open(value, now)
    }
}

impl Sealer {
    fn new(key: &SigningKey) -> Result<Self, SealError> {
        RandomizedNonceKey::new(&AES_256_GCM, &key.mark(SEALING, &[])).map(Self).map_err(|_| SealError)
    }

    /// A token as text that only this key opens, and only until then.
    fn seal(&self, token: &SecretString, until: Timestamp) -> Result<String, SealError> {
        let mut sealed = until.as_millisecond().to_be_bytes().to_vec();
        sealed.extend(token.expose_secret().as_bytes());
        let nonce = self.0.seal_in_place_append_tag(Aad::empty(), &mut sealed).map_err(|_| SealError)?;
        Ok(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), sealed.as_slice()].concat()))
    }

    /// The token that was sealed, if the text is unchanged and its time is not over.
    fn open(&self, text: &str, now: Timestamp) -> Option<SecretString> {
        let mut sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.0.open_in_place(nonce, Aad::empty(), sealed).ok()?;
        let (until, token) = opened.split_first_chunk()?;
        let until = Timestamp::from_millisecond(i64::from_be_bytes(*until)).ok()?;
        let token = std::str::from_utf8(token).ok()?;
        (now < until).then(|| token.to_owned().into())
    }
}

/// The cookies of a request.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let all = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// A token as people paste it.
pub(super) fn token(text: &str, longest: usize) -> Option<SecretString> {
    let is_token = |letter: u8| letter.is_ascii_graphic();
    let text = text.trim();
    (!text.is_empty() && text.len() <= longest && text.bytes().all(is_token)).then(|| text.to_owned().into())
}

/// What remembers so many visitors. One more takes the place of the one who has not looked for longest.
fn memory(most: u64) -> Cache<[u8; 32], Arc<Visitor>> {
    // The default policy would not remember newcomers while others come often.
    let lru = EvictionPolicy::lru();
    Cache::builder().max_capacity(most).eviction_policy(lru).time_to_idle(IDLE).time_to_live(LONGEST).build()
}

fn bearer(header: &HeaderValue) -> Option<SecretString> {
    let (scheme, text) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token(text, TOKEN)).flatten()
}

#[cfg(test)]
mod tests {
    use std::future::IntoFuture as _;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use axum::Json;
    use axum::response::IntoResponse as _;
    use futures::future::join_all;
    use http::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::GuardAddress;
    use kubemoor_runtime::config::RecordDriver;

    #[test]
    fn cookie_opens_only_with_its_key_unchanged_and_within_its_time() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let until = now + LOGIN;
        let sealer = |byte| Sealer::new(&SigningKey::new([byte; 32])).unwrap();
        let token = SecretString::from("a.b.c");
        let text = sealer(1).seal(&token, until).unwrap();
        let open = |byte, text: &str, now| {
            sealer(byte).open(text, now).map(|token| token.expose_secret().to_owned())
        };
        let whole = Some("a.b.c".to_owned());
        assert_eq!(open(1, &text, now), whole);
        assert_eq!(open(1, &text, until - SignedDuration::from_secs(1)), whole);
        assert_eq!(open(1, &text, until), None, "too old");
        assert_eq!(open(2, &text, now), None, "another key");
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(1, &changed, now), None, "byte {place} is another");
            assert_eq!(open(1, text.get(..place).unwrap(), now), None, "cut at {place}");
        }
        assert!(!text.contains("a.b.c"));
        assert_ne!(sealer(1).seal(&token, until).unwrap(), text, "no two look the same");
    }

    #[test]
    fn longest_token_fits_into_a_cookie() {
        let token = "x".repeat(LONGEST_TOKEN).into();
        let text = Sealer::new(&SigningKey::new([1; 32])).unwrap().seal(&token, Timestamp::now()).unwrap();
        assert!(text.len() + COOKIE.len() < 4096, "{}", text.len());
    }

    #[test]
    fn newcomer_takes_the_place_of_the_longest_absent_visitor() {
        let known = memory(4);
        let visitor = || {
            let forms = SigningKey::new([1; 32]);
            Arc::new(Visitor::new(Vec::new(), Entry::Proxy, None, forms))
        };
        let come = |place: u8| {
            let _ = known.get_with([place; 32], visitor);
            known.run_pending_tasks();
        };
        (0..4).for_each(come);
        // All come often, the third one not of late.
        for _ in 0..20 {
            [2, 0, 1, 3].into_iter().for_each(come);
        }
        come(4);
        let remembered: Vec<_> = (0..5).filter(|place| known.contains_key(&[*place; 32])).collect();
        assert_eq!(remembered, [0, 1, 3, 4]);
    }

    #[test]
    fn bearer_tokens_alone_are_read() {
        let read = |text: &str| bearer(&HeaderValue::from_str(text).unwrap());
        for text in ["Bearer a.b-c", "bearer a.b-c", "BEARER  a.b-c "] {
            assert_eq!(read(text).unwrap().expose_secret(), "a.b-c", "{text}");
        }
        for text in ["", "Bearer", "Bearer ", "Basic YTpi", "a.b-c", "Bearer a b", "Bearer a\tb"] {
            assert!(read(text).is_none(), "{text}");
        }
        assert!(read(&format!("Bearer {}", "a".repeat(TOKEN + 1))).is_none());
    }

    /// An API server that counts who asks who they are, and knows everybody once it is told to.
    struct ApiServer {
        asked: AtomicU32,
        knows: AtomicBool,
    }

    /// Visitors of the cluster behind that server.
    async fn visitors(server: &Arc<ApiServer>, folder: &std::path::Path) -> Visitors {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let answering = Arc::clone(server);
        let answer = move || async move {
            answering.asked.fetch_add(1, Ordering::Relaxed);
            if answering.knows.load(Ordering::Relaxed) {
                return Json(json!({"status": {"userInfo": {"username": "alice"}}})).into_response();
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized"});
            (StatusCode::UNAUTHORIZED, Json(status)).into_response()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, axum::Router::new().fallback(answer)).into_future());
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "one", "users": [{"name": "one", "user": {}}],
            "clusters": [{"name": "one", "cluster": {"server": url}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        });
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let settings = Settings {
            name: "one".to_owned(),
            access: Access { kubeconfig: Some(kubeconfig), ..Access::default() },
            driver: RecordDriver::Secret,
            labels: kubemoor_policy::resolver::Labels::default(),
            guard: GuardAddress::Given {
                server: http::Uri::from_static("https://127.0.0.1:1"),
                authority: None,
            },
        };
        Visitors::new(settings, SigningKey::new([1; 32])).unwrap()
    }

    #[tokio::test]
    async fn token_that_was_refused_is_not_asked_about_for_seconds_and_works_once_valid() {
        let (server, folder) = (
            Arc::new(ApiServer { asked: AtomicU32::new(0), knows: AtomicBool::new(false) }),
            tempfile::tempdir().unwrap(),
        );
        let visitors = visitors(&server, folder.path()).await;
        let come = async |token: &str| visitors.visitor(token.to_owned().into(), Entry::Proxy).await;
        let asked = || server.asked.swap(0, Ordering::Relaxed);
        assert!(matches!(come("a.b.c").await, Err(Refused::Unknown)));
        assert_eq!(asked(), 1);
        let again = join_all((0..100).map(|_| come("a.b.c"))).await;
        assert!(again.iter().all(|answer| matches!(answer, Err(Refused::Unknown))));
        assert_eq!(asked(), 0, "it was refused a moment ago");
        assert!(matches!(come("a.b.d").await, Err(Refused::Unknown)));
        assert_eq!(asked(), 1, "another token");

        // It is known by its digest alone, for seconds, among few.
        let kept = visitors.refused.policy();
        assert_eq!((kept.time_to_live(), kept.max_capacity()), (Some(REFUSED), Some(MOST_REFUSED)));
        assert!(REFUSED <= Duration::from_secs(5));
        server.knows.store(true, Ordering::Relaxed);
        visitors.refused.invalidate_all();
        assert_eq!(come("a.b.c").await.ok().unwrap().user.as_deref(), Some("alice"));
        assert_eq!(asked(), 1);
        for number in 0..3 * MOST_REFUSED {
            visitors.refused.insert(visitors.place(&format!("token-{number}").into(), Entry::Proxy), ());
        }
        visitors.refused.run_pending_tasks();
        assert!(visitors.refused.entry_count() <= MOST_REFUSED);
    }
}
