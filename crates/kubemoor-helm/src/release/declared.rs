//! An object as one manifest declares it.
//!
//! Entry point: [`Declared::fields`]. Invariant: the fields are the manifest's; the facts about the kind are those that
//! the catalog had at that time. Must not show a field.

use super::allow::AllowAnnotations;
use std::sync::Arc;

use serde_json::Value;

use super::Declarations;
use super::documents::gvk;
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::declare::declare;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::fields::Fields;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::packed::{FieldsCache, Packed};
use kubemoor_declare::path::Path;
use kubemoor_declare::schema::KindSchema;

/// The annotations that opt an object out, with the value that does.
const OPT_OUTS: [(&str, &str); 2] =
    [("kubemoor.dev/guard", "disabled"), ("helm.toolkit.fluxcd.io/driftDetection", "disabled")];

/// An object as one manifest declares it.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The declared fields, cached or to be read.
    pub packed: Packed,
    /// The exception in the manifest's annotations; usually none.
    pub allow: Option<Box<AllowAnnotations>>,
    /// The version in which the manifest spells the object.
    pub version: Arc<str>,
    /// The facts about its kind; `None` while the kind is unknown.
    pub facts: Option<Arc<KindFacts>>,
    /// The manifest's document says `helm.sh/resource-policy: keep`.
    pub keep: bool,
    /// The manifest opts the object out.
    pub opted_out: bool,
    /// The approximate memory of its fields in the cache, in bytes.
    pub weight: u32,
    /// The digest of this declaration; `None` where it nests too deep to be compared whole.
    pub digest: Option<Digest>,
}

impl Declared {
    /// The declared fields, read unless they are cached.
    pub fn fields(&self) -> Arc<Fields> {
        self.packed.fields()
    }

    /// The version in which the API server reports the object: the manifest's, or the preferred one where
    /// that is not served any more.
    pub fn served(&self) -> &str {
        self.facts.as_ref().and_then(|facts| facts.served(&self.version)).unwrap_or(&self.version)
    }

    /// The resource's plural; `None` while the kind is unknown.
    pub fn plural(&self) -> Option<&str> {
        self.facts.as_ref().map(|facts| facts.plural.as_str())
    }

    /// The approximate memory of its fields in the cache, in bytes.
    pub fn weight(&self) -> usize {
        usize::try_from(self.weight).unwrap_or(usize::MAX)
    }

    /// Where its `scale` subresource keeps the replicas.
    pub fn scale(&self) -> Option<&Path> {
        self.facts.as_ref().and_then(|facts| facts.scale_replicas_path.as_ref())
    }

    /// Whether another declaration of the object demands the same, and the same agreement confirms both.
    pub fn is_alike(&self, other: &Self) -> bool {
        let is_typed_alike = self.digest.is_some() && self.packed.is_typed_as(&other.packed);
        self.version == other.version
            && self.opted_out == other.opted_out
            && self.digest == other.digest
            && (is_typed_alike || self.fields() == other.fields())
    }

    /// The approximate memory of this without cached fields, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<(Arc<ObjectId>, Declarations, ObjectId)>() + size_of::<Self>() + self.packed.weight()
    }

    /// The object that `document` declares; the digest is of the document as the manifest spells it, and `keep` says
    /// whether an uninstallation leaves the object alone.
    pub(super) fn of(
        (document, digest): (&Value, Option<Digest>),
        keep: bool,
        schema: Option<Arc<KindSchema>>,
        catalog: &Catalog,
        cache: &Arc<FieldsCache>,
    ) -> Self {
        let gvk = gvk(document);
        let annotation = |name: &str| document.pointer("/metadata/annotations")?.get(name)?.as_str();
        let fields = declare(document, schema.as_deref());
        let weight =
            size_of::<(Arc<ObjectId>, Declarations, ObjectId)>() + size_of::<Self>() + fields.weight();
        Self {
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            allow: AllowAnnotations::of(document).map(Box::new),
            keep,
            opted_out: OPT_OUTS.iter().any(|(name, value)| annotation(name) == Some(value)),
            packed: Packed::new(document, fields, schema, cache),
            version: gvk.version.into(),
            facts: catalog.facts(&gvk.group, &gvk.kind).cloned(),
            digest,
        }
    }
}
