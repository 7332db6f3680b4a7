//! The knowledge of an earlier guard, read from the status of a GuardedRelease.
//!
//! Entry point: [`Remembered::of`]. Invariant: only a status that a guard with this key has signed counts.

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_policy::agreement::SeenAlive;
use kubemoor_policy::guarded::{GuardedRelease, hidden_digest};
use kubemoor_policy::signing::SigningKey;

/// The reason of a release with an object that another client keeps changing back.
const CONTESTED: &str = "Contested";

/// An earlier guard's knowledge of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The release.
    pub release: ReleaseId,
    /// The revision that was in force.
    pub revision: u64,
    /// The uid of that revision's record; `None` if the status does not name it.
    pub record: Option<String>,
    /// SHA-256 of that revision's manifest as it was first seen.
    pub digest: [u8; 32],
    /// The live objects that carried the release's annotations, and the declarations that they matched.
    pub seen: Vec<SeenAlive>,
    /// The objects that another client kept changing back.
    pub contested: Vec<ObjectId>,
    /// The field manager with which Helm writes the release's objects.
    pub manager: Option<String>,
}

impl Remembered {
    /// The content of a GuardedRelease's status, if a guard with this key signed it; otherwise `None`
    /// yet.
    pub fn of(guarded: &GuardedRelease, key: &SigningKey) -> Option<Self> {
        let (release, status) = (guarded.release()?, guarded.status.as_ref()?);
        let is_contested = status.conditions.iter().any(|condition| condition.reason == CONTESTED);
        let drifts = status.drifts.iter().filter(|_| is_contested);
        Some(Self {
            contested: drifts.map(|drift| drift.object.id(&release.namespace)).collect(),
            revision: status.revision,
            record: status.record_uid.clone(),
            manager: status.field_manager.clone(),
            digest: hidden_digest(
                key,
                &release,
                (status.revision, status.record_uid.as_deref()),
                digest(&status.manifest_digest)?,
            ),
            seen: status.seen.iter().map(|object| object.seen(key, &release)).collect(),
            release,
        })
    }
}

/// Thirty-two bytes of hexadecimal digits.
fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}
