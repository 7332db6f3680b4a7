//! A resource that some release declares.
//!
//! Entry point: [`resource`]. Invariant: a kind that is not served gives `None`.

use super::super::release::Declared;
use kubemoor_declare::model::ObjectId;

/// A resource that some release declares, in the version in which the API server reports the declared
/// objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeclaredResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural, such as `deployments`.
    pub plural: String,
    /// Whether it has a `scale` subresource.
    pub scale: bool,
}

pub(super) fn resource(object: &ObjectId, declared: &Declared) -> Option<DeclaredResource> {
    Some(DeclaredResource {
        group: object.group.to_string(),
        version: declared.served().to_owned(),
        kind: object.kind.to_string(),
        plural: declared.plural()?.to_owned(),
        scale: declared.scale().is_some(),
    })
}
