//! The guard's key, and the marks (HMACs) that it makes: of data that the guard stores where others can write, of
//! statements about one declaration of one object, and of tickets, which list the objects that the user who orders a
//! repair may write themselves. A mark is valid for one purpose only. The key appears in no output.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretBox};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::guarded::ObjectReference;
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The secret key that all replicas of a guard share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SigningKey(Arc<SecretBox<[u8; 32]>>);

impl SigningKey {
    /// The bytes must be random.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Arc::new(SecretBox::new(Box::new(bytes))))
    }

    /// The secret bytes, only for storing the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.expose_secret()
    }

    /// The mark (an HMAC) of these parts for a purpose.
    pub fn mark(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.over(purpose, parts).map(|mac| mac.finalize().into_bytes().into()).unwrap_or_default()
    }

    /// Whether `mark` is the mark of these parts, checked in constant time.
    pub fn is_mark(&self, mark: &[u8], purpose: &str, parts: &[&[u8]]) -> bool {
        self.over(purpose, parts).is_some_and(|mac| mac.verify_slice(mark).is_ok())
    }

    /// Encrypts `value` with the key; a second call decrypts it. Hide only one value for each purpose and parts: two
    /// would reveal their difference.
    pub fn hide(&self, purpose: &str, parts: &[&[u8]], value: [u8; 32]) -> [u8; 32] {
        let mut hidden = self.mark(purpose, parts);
        hidden.iter_mut().zip(value).for_each(|(byte, own)| *byte ^= own);
        hidden
    }

    /// Includes the length of each part, so that no two lists of parts give the same input. HMAC accepts keys of any
    /// length.
    fn over(&self, purpose: &str, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.as_bytes()).ok()?;
        for part in [&[purpose.as_bytes()], parts].concat() {
            mac.update(&part.len().to_le_bytes());
            mac.update(part);
        }
        Some(mac)
    }
}

/// One declaration of one object of one release.
#[derive(Clone, Copy, Debug)]
pub struct Declaration<'a> {
    pub release: &'a ReleaseId,
    pub object: &'a ObjectId,
    /// The digest of the declared values.
    pub digest: &'a Digest,
    /// The text of the seal under which the object has no additions; `None` if the statement does not cover additions.
    pub seal: Option<&'a str>,
}

impl Declaration<'_> {
    /// The guard's mark on a statement about this declaration.
    pub(crate) fn mark(&self, key: &SigningKey, purpose: &str, said: &[&[u8]]) -> [u8; 16] {
        let Declaration { release, object: ObjectId { group, kind, namespace, name }, digest, seal } = self;
        let scope: &[u8] = if namespace.is_some() { b"namespaced" } else { b"cluster" };
        let namespace = namespace.as_deref().unwrap_or_default();
        let texts = [&release.namespace, &release.name, group, kind, namespace, name];
        let mut parts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        parts.extend([scope, digest.as_bytes()]);
        // No other part starts with `sealed `.
        let seal = seal.map(|seal| format!("sealed {seal}"));
        parts.extend(seal.iter().map(|seal| seal.as_bytes()));
        parts.extend(said);
        let mut mark = [0; 16];
        mark.iter_mut().zip(key.mark(purpose, &parts)).for_each(|(byte, marked)| *byte = marked);
        mark
    }
}

/// The annotation of a GuardedRelease that holds the ticket of its last order.
pub const CONFIRMED_BY: &str = "kubemoor.dev/confirmed-by";

/// How long a ticket is valid: an order is carried out immediately, or by the next leader.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(5);

const PURPOSE: &str = "order";

/// What the user may do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Create,
    Update,
}

/// The order that a ticket belongs to.
#[derive(Clone, Copy, Debug)]
pub struct TicketOrder<'a> {
    pub release: &'a ReleaseId,
    /// The uid of its GuardedRelease.
    pub uid: &'a str,
    /// The `spec.reconcileAt` that orders the repair.
    pub at: &'a str,
}

/// The objects that the user who ordered a repair may write themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The user who ordered it, as authenticated by the API server.
    pub user: String,
    /// When the API server was asked for the user's permissions.
    pub issued: Timestamp,
    /// The revision that the objects were compared with.
    pub revision: u64,
    /// SHA-256 of its manifest, in hexadecimal.
    pub manifest: String,
    /// The permitted action for each object.
    pub objects: Vec<OrderGrant>,
}

/// One object of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderGrant {
    pub verb: Verb,
    /// The object, as its release names it.
    pub object: ObjectReference,
    /// The namespace of that release.
    pub home: String,
}

#[derive(Serialize, Deserialize)]
struct Signed {
    ticket: Ticket,
    mark: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    #[error("it is not a ticket")]
    Unreadable,
    /// It was made for another order, or with another key.
    #[error("the guard did not issue it for this order")]
    Foreign,
    #[error("it is older than {LIFETIME:#}")]
    Expired,
}

impl Ticket {
    /// The signed ticket for an order, as JSON.
    ///
    /// # Errors
    /// The ticket cannot be serialized.
    pub fn sign(self, key: &SigningKey, order: &TicketOrder<'_>) -> Result<String, serde_json::Error> {
        let mark = URL_SAFE_NO_PAD.encode(key.mark(PURPOSE, &parts(order, &serde_json::to_vec(&self)?)));
        serde_json::to_string(&Signed { ticket: self, mark })
    }

    /// The ticket in this text, if it is valid for the order at `now`.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub fn read(
        text: &str,
        key: &SigningKey,
        order: &TicketOrder<'_>,
        now: Timestamp,
    ) -> Result<Self, TicketError> {
        let Signed { ticket, mark } = serde_json::from_str(text).map_err(|_| TicketError::Unreadable)?;
        let mark = URL_SAFE_NO_PAD.decode(mark).map_err(|_| TicketError::Unreadable)?;
        let content = serde_json::to_vec(&ticket).map_err(|_| TicketError::Unreadable)?;
        if !key.is_mark(&mark, PURPOSE, &parts(order, &content)) {
            return Err(TicketError::Foreign);
        }
        if ticket.is_expired(now) {
            return Err(TicketError::Expired);
        }
        Ok(ticket)
    }

    /// Whether the user's permissions may have changed since it was issued.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        // The clocks of replicas differ by less.
        now.duration_since(self.issued).abs() > LIFETIME
    }

    /// Whether it permits writing `object` according to this revision's manifest.
    pub fn confirms(&self, object: &ObjectId, verb: Verb, (revision, manifest): (u64, &[u8; 32])) -> bool {
        self.revision == revision
            && self.manifest == hex(manifest)
            && self.objects.iter().any(|it| it.verb == verb && it.object.id(&it.home) == *object)
    }
}

impl OrderGrant {
    pub fn new(verb: Verb, object: &ObjectId, release: &ReleaseId) -> Self {
        let home = release.namespace.clone();
        Self { verb, object: ObjectReference::new(object, &home), home: home.to_string() }
    }
}

pub fn hex<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> String {
    bytes.into_iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parts<'a>(order: &TicketOrder<'a>, content: &'a [u8]) -> [&'a [u8]; 5] {
    let TicketOrder { release, uid, at } = order;
    [release.namespace.as_bytes(), release.name.as_bytes(), uid.as_bytes(), at.as_bytes(), content]
}

#[cfg(test)]
mod tests;
