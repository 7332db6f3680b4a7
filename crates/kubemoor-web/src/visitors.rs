//! The visitors of a page that runs in a cluster.
//!
//! Entry point: [`Visitors::of`]. Invariant: nobody is let in whom the API server has not named of late;
//! what was read for one token is shown to no other; so many visitors are remembered, and only those who were
//! named; a session that was ended stays so, also at other replicas and after a restart; a token that was refused is
//! known by its keyed digest alone, and for seconds.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{self, HeaderValue};
use jiff::Timestamp;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use super::cluster::{Cluster, Settings};
use super::replicas::Replicas;
use super::session::{SealError, Sealer, Session};
use super::visitor::{Entry, Visitor};
use kubemoor_cluster::client::connection::Access;
use kubemoor_inspect::failure::Failure;
use kubemoor_policy::signing::SigningKey;

/// The cookie of a session. By its prefix a browser takes it from this host alone, encrypted, for all paths: no other
/// host of the domain can plant one.
pub(super) const COOKIE: &str = "__Host-kubemoor";

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

/// Purposes of marks.
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
    /// Which sessions were ended, here and at other replicas.
    replicas: Arc<Replicas>,
    asking: Semaphore,
}

/// Why somebody is not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// They show nothing by which they are known, or nothing that the API server accepts.
    #[error("The cluster does not know you, or your session has ended.")]
    Unknown,
    /// What they show is no bearer token.
    #[error("The Authorization header of this request holds no bearer token.")]
    Malformed,
    /// It cannot be told who they are.
    #[error("{0}")]
    Away(Failure),
}

impl Visitors {
    /// The visitors of a cluster; the token in `settings` is each visitor's own. Replicas with one key know each
    /// other's sessions.
    pub(super) fn new(
        settings: Settings,
        key: SigningKey,
        replicas: Arc<Replicas>,
    ) -> Result<Self, SealError> {
        let sealer = Sealer::new(&key)?;
        let (known, asking) = (memory(MOST), Semaphore::new(ASKING));
        let refused = Cache::builder().max_capacity(MOST_REFUSED).time_to_live(REFUSED).build();
        Ok(Self { settings, key, sealer, known, refused, replicas, asking })
    }

    /// Who sends a request, and in which session.
    pub(super) async fn of(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<(Arc<Visitor>, Option<Session>), Refused> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match (given.next(), given.next()) {
            // What a proxy says counts, whatever the browser remembers.
            (Some(one), None) => {
                let token = bearer(one).ok_or(Refused::Malformed)?;
                Ok((self.visitor(token, Entry::Proxy).await?, None))
            }
            (Some(_), Some(_)) => Err(Refused::Malformed),
            (None, _) => {
                let session = self.session(headers, now).ok_or(Refused::Unknown)?;
                let visitor = self.visitor(session.token.clone(), Entry::Login).await?;
                Ok((visitor, Some(session)))
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

    /// The cookie's value for a new session.
    pub(super) fn seal(&self, session: &Session) -> Result<String, SealError> {
        self.sealer.seal(session)
    }

    /// Ends a session, in whichever browser its cookie is, and forgets what was read for its token. Every replica
    /// that answers knows of it afterwards.
    pub(super) async fn end(&self, session: &Session) {
        self.forget(&self.place(&session.token, Entry::Login));
        self.replicas.end(session).await;
    }

    /// A mark of the page's own.
    pub(super) fn mark(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.key.mark(purpose, parts)
    }

    /// Forgets visitors who have not looked for long, and ends their watches.
    pub(super) fn tidy(&self, now: Timestamp) {
        self.known.run_pending_tasks();
        self.replicas.tidy(now);
    }

    /// Forgets a visitor whose session has ended, and tells their open pages.
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

    fn session(&self, headers: &HeaderMap, now: Timestamp) -> Option<Session> {
        let mut own = cookies(headers).filter(|(name, _)| *name == COOKIE);
        let session = self.sealer.open(own.next()?.1, now)?;
        self.replicas.permit(&session).then_some(session)
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
mod tests;
