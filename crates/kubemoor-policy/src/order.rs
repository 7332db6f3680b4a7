//! Tickets for the loop: the objects that the user who orders a repair may write themself.
//!
//! Entry points: [`Ticket::sign`] for who has asked the API server,
//! [`Ticket::read`] for who acts on it. Invariant: a ticket counts for one order,
//! one GuardedRelease, one manifest, and for [`LIFETIME`]; nobody without the
//! guard's key can make one. It names objects and no values. Pure.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::guarded::ObjectReference;
use super::signing::SigningKey;
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// The annotation of a GuardedRelease that holds the ticket of its last order.
pub const CONFIRMED_BY: &str = "kubemoor.dev/confirmed-by";

/// How long a ticket is valid: an order is carried out at once, or by the next leader.
pub const LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// The purpose of the mark.
const PURPOSE: &str = "order";

/// What a person may do to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Create a missing object.
    Create,
    /// Update an existing object.
    Update,
}

/// The order that a ticket belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The release.
    pub release: &'a ReleaseId,
    /// The uid of its GuardedRelease.
    pub uid: &'a str,
    /// The `spec.reconcileAt` that orders the repair.
    pub at: &'a str,
}

/// The objects that the user who ordered a repair may write themself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The user who ordered it, by the API server's name.
    pub user: String,
    /// When the API server was asked.
    pub issued: Timestamp,
    /// The revision that the objects were compared with.
    pub revision: u64,
    /// SHA-256 of its manifest, in hexadecimal.
    pub manifest: String,
    /// The permitted action for each object.
    pub objects: Vec<Grant>,
}

/// One object of a ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The permitted action.
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

/// The reason why a ticket is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It cannot be read.
    #[error("it is no ticket")]
    Unreadable,
    /// It was made for another order, or with another key.
    #[error("the guard has not made it for this order")]
    Foreign,
    /// It is too old.
    #[error("it is older than {LIFETIME:#}")]
    Expired,
}

impl Ticket {
    /// The text of the ticket for an order.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn sign(self, key: &SigningKey, order: &Order<'_>) -> Result<String, serde_json::Error> {
        let mark = URL_SAFE_NO_PAD.encode(key.mark(PURPOSE, &parts(order, &serde_json::to_vec(&self)?)));
        serde_json::to_string(&Signed { ticket: self, mark })
    }

    /// The ticket in this text, if it is valid for an order now.
    ///
    /// # Errors
    /// Why it does not.
    pub fn read(
        text: &str,
        key: &SigningKey,
        order: &Order<'_>,
        now: Timestamp,
    ) -> Result<Self, TicketError> {
        let Signed { ticket, mark } = serde_json::from_str(text).map_err(|_| TicketError::Unreadable)?;
        let mark = URL_SAFE_NO_PAD.decode(mark).map_err(|_| TicketError::Unreadable)?;
        let content = serde_json::to_vec(&ticket).map_err(|_| TicketError::Unreadable)?;
        if !key.is_mark(&mark, PURPOSE, &parts(order, &content)) {
            return Err(TicketError::Foreign);
        }
        // Clocks of replicas differ by less.
        if now.duration_since(ticket.issued).abs() > LIFETIME {
            return Err(TicketError::Expired);
        }
        Ok(ticket)
    }

    /// Whether it permits writing `object` according to this revision's manifest.
    pub fn confirms(&self, object: &ObjectId, verb: Verb, (revision, manifest): (u64, &[u8; 32])) -> bool {
        self.revision == revision
            && self.manifest == hex(manifest)
            && self.objects.iter().any(|it| it.verb == verb && it.object.id(&it.home) == *object)
    }
}

impl Grant {
    /// For an object of `release`.
    pub fn new(verb: Verb, object: &ObjectId, release: &ReleaseId) -> Self {
        let home = release.namespace.clone();
        Self { verb, object: ObjectReference::of(object, &home), home: home.to_string() }
    }
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parts<'a>(order: &Order<'a>, content: &'a [u8]) -> [&'a [u8]; 5] {
    let Order { release, uid, at } = order;
    [release.namespace.as_bytes(), release.name.as_bytes(), uid.as_bytes(), at.as_bytes(), content]
}

#[cfg(test)]
mod tests;
