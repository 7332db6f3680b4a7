//! The authorities of the certificates that replicas serve, as replicas tell each other on their Lease.
//!
//! Entry points: [`Announced::see`] for a Lease that was read, [`Announced::annotate`] for one that is written,
//! [`Announced::bundle`]. Invariant: only an announcement under the replicas' signing key counts, so nobody who may
//! write the Lease can have the API server trust an authority. One that no replica repeats ends after [`KEPT`], and a
//! copy of an old one has no effect. Values only; the times are passed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::CaBundle;
use kubemoor_policy::signing::SigningKey;
use kubemoor_runtime::tls::bundle;

const ANNOTATION: &str = "kubemoor.dev/authorities";

/// The purpose of the mark.
const PURPOSE: &str = "authority of a replica";

/// The name of the authority that replicas make and renew together.
const SHARED: &str = "shared";

/// When a replica repeats an announcement.
const REPEAT: Duration = Duration::from_secs(20);

/// How long an authority stays trusted after its last announcement.
const KEPT: Duration = Duration::from_secs(120);

/// The maximum age of an announcement by the clock of the reader, so that a copy of an old one has no effect.
const OLDEST: SignedDuration = SignedDuration::from_hours(1);

/// The shortest time between two announcements of one authority.
const TICK: SignedDuration = SignedDuration::from_micros(1);

/// The most authorities of others that a replica repeats on the Lease, the newest first.
const MOST: usize = 8;

/// The maximum size of one, in bytes.
const CAP: usize = 16 << 10;

/// The authority of the certificate that this replica serves.
#[derive(Clone, Debug)]
pub struct OwnAuthority {
    /// The CA bundle of the certificate.
    pub bundle: CaBundle,
    /// Whether replicas make and renew it together.
    pub is_shared: bool,
}

/// The announced authorities.
#[derive(Default)]
pub(super) struct Announced {
    known: BTreeMap<String, Seen>,
}

/// An announcement, in the form of the Lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    pem: String,
    at: Timestamp,
    mark: String,
}

/// The newest announcement of one authority, and when it was seen first.
struct Seen {
    entry: Entry,
    since: Instant,
}

impl OwnAuthority {
    pub(super) fn pem(&self) -> Option<Arc<str>> {
        self.bundle.borrow().clone()
    }
}

impl Announced {
    /// Takes over the announcements on a Lease.
    pub(super) fn see(&mut self, lease: &ObjectMeta, key: &SigningKey, (now, at): (Instant, Timestamp)) {
        self.forget(now);
        let text = lease.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        let entries = text.and_then(|text| serde_json::from_str::<BTreeMap<String, Entry>>(text).ok());
        for (name, entry) in entries.unwrap_or_default() {
            let is_recent = |entry: &Entry| entry.at.duration_until(at).abs() <= OLDEST;
            let known = self.known.get(&name).filter(|known| is_recent(&known.entry));
            let is_news = known.is_none_or(|known| known.entry.at < entry.at);
            if is_news && is_recent(&entry) && is_marked(&name, &entry, key) {
                self.known.insert(name, Seen { entry, since: now });
            }
        }
    }

    /// When the replica has to announce `own`; `None` without an authority, or with one that is too large.
    pub(super) fn due(&self, own: &OwnAuthority, now: Instant) -> Option<Instant> {
        let pem = own.pem().filter(|pem| pem.len() <= CAP)?;
        Some(match self.known.get(&name(own, &pem)) {
            // Replicas that share an authority renew it together, each at its own time.
            Some(known) => known.since + REPEAT,
            None => now,
        })
    }

    /// Announces `own`, and all others that last, on a Lease. It counts here once the written Lease is seen.
    pub(super) fn annotate(
        &self,
        lease: &mut ObjectMeta,
        own: &OwnAuthority,
        key: &SigningKey,
        (now, at): (Instant, Timestamp),
    ) {
        let mut lasting: Vec<_> = self.known.iter().filter(|(_, seen)| seen.lasts(now)).collect();
        lasting.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.since));
        let mut entries: BTreeMap<_, _> =
            lasting.into_iter().take(MOST).map(|(name, seen)| (name.clone(), seen.entry.clone())).collect();
        if let Some(pem) = own.pem().filter(|pem| pem.len() <= CAP) {
            let name = name(own, &pem);
            let known = self.known.get(&name);
            if known.is_none_or(|known| known.entry.pem != *pem || known.since + REPEAT / 2 <= now) {
                // Later than the last one also after this clock was set back, unless that was wrong by far.
                let last = known.map(|known| known.entry.at).filter(|last| last.duration_since(at) <= OLDEST);
                let at = last.map_or(at, |last| at.max(last.saturating_add(TICK).unwrap_or(last)));
                let mark = URL_SAFE_NO_PAD.encode(key.mark(PURPOSE, &parts(&name, &pem, &at.to_string())));
                entries.insert(name, Entry { pem: pem.to_string(), at, mark });
            }
        }
        let annotations = lease.annotations.get_or_insert_default();
        match serde_json::to_string(&entries) {
            Ok(text) if !entries.is_empty() => annotations.insert(ANNOTATION.to_owned(), text),
            _ => annotations.remove(ANNOTATION),
        };
    }

    /// The replica's own authorities, then those that other replicas serve. `None` if the replica has none, because
    /// then somebody else sets the bundle.
    pub(super) fn bundle(&self, own: &OwnAuthority, now: Instant) -> Option<Arc<str>> {
        let pem = own.pem()?;
        let own = name(own, &pem);
        let others = self.known.iter().filter(|(name, seen)| **name != own && seen.lasts(now));
        let mut others = others.map(|(_, seen)| &*seen.entry.pem).peekable();
        // Without others it is not rewritten.
        Some(if others.peek().is_none() {
            pem
        } else {
            bundle::union([&*pem].into_iter().chain(others)).into()
        })
    }

    /// Forgets those of which a copy is too old as well.
    fn forget(&mut self, now: Instant) {
        let oldest = OLDEST.unsigned_abs();
        self.known.retain(|_, seen| now < seen.since + oldest + oldest);
    }
}

impl Seen {
    /// Whether a replica may still serve a certificate of this authority.
    fn lasts(&self, now: Instant) -> bool {
        now < self.since + KEPT
    }
}

/// The authority's name: replicas that share it replace it, every other one is its own.
fn name(own: &OwnAuthority, pem: &str) -> String {
    if own.is_shared {
        return SHARED.to_owned();
    }
    let digest = Sha256::digest(pem);
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn is_marked(name: &str, entry: &Entry, key: &SigningKey) -> bool {
    let at = entry.at.to_string();
    let mark = URL_SAFE_NO_PAD.decode(&entry.mark).unwrap_or_default();
    entry.pem.len() <= CAP && key.is_mark(&mark, PURPOSE, &parts(name, &entry.pem, &at))
}

fn parts<'a>(name: &'a str, pem: &'a str, at: &'a str) -> [&'a [u8]; 3] {
    [name.as_bytes(), pem.as_bytes(), at.as_bytes()]
}

#[cfg(test)]
mod tests;
