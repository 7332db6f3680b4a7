//! The last life of an object, as far as it was seen.
//!
//! Entry point: [`Life`]. Invariant: pure state. Must not be overwritten by an answer that is older
//! than the known version: [`Life::is_after`].

use std::num::NonZeroU64;
use std::sync::Arc;

use super::live::Manager;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::release::Release;
use kubemoor_policy::agreement::Agreement;
use kubemoor_policy::declaration::Declaration;
use kubemoor_policy::signing::SigningKey;

/// An object's last life.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The release that it is compared with.
    pub(crate) release: Arc<ReleaseId>,
    /// Whether it was seen with this release's annotations.
    pub(crate) vouched: bool,
    pub(crate) alive: bool,
    /// The last `metadata.resourceVersion` of a watch, or of an answer after it.
    pub(crate) version: Version,
    /// Kept once for all objects, most of which have the same.
    pub(crate) managers: Arc<Vec<Manager>>,
    /// The manifest that it last matched.
    pub(crate) judged: Option<ManifestMark>,
    /// Whether it differs as an exception allows.
    pub(crate) allowed: bool,
    /// Its last agreement. Only such values are ever written to it.
    pub(crate) agreed: Option<Agreement>,
    /// The text of the seal that its policy puts on it; `None` for most objects.
    pub(crate) seal: Option<Arc<String>>,
}

/// The first half of a manifest's digest (SHA-256), which tells manifests apart as surely. Every object has one, so the
/// other half would take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManifestMark([u8; 16]);

/// A `metadata.resourceVersion`. For one object, a higher one is later; a value that is not a
/// number cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version(Option<NonZeroU64>);

impl ManifestMark {
    /// The mark of a release's manifest.
    pub(crate) fn of(release: &Release) -> Self {
        let mut mark = [0; 16];
        mark.iter_mut().zip(release.state.digest).for_each(|(to, from)| *to = from);
        Self(mark)
    }
}

impl Version {
    /// Parses a version.
    pub(crate) fn of(text: &str) -> Self {
        Self(text.parse().ok())
    }
}

impl Life {
    /// Whether an agreement is with this declaration, under the object's seal or without one.
    pub(crate) fn is_with(
        &self,
        key: &SigningKey,
        agreement: &Agreement,
        declaration: &Declaration<'_>,
    ) -> bool {
        let is_with = |seal| agreement.is_with(key, &Declaration { seal, ..*declaration });
        is_with(None) || self.seal.as_ref().is_some_and(|seal| is_with(Some(seal)))
    }

    /// Whether a newer version of the object is known than that of an answer.
    pub(crate) fn is_after(&self, version: Version) -> bool {
        self.version.0.zip(version.0).is_some_and(|(known, other)| known > other)
    }
}
