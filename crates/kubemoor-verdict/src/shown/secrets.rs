//! The values that nobody may see: a Secret's, and a webhook's address with a caller's token.
//!
//! Entry points: [`is_secret`], [`holds_token`]. Invariant: in doubt a value is secret. Must not show a value.

use serde_json::Value;

use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::{Path, Segment};

/// The fewest letters of a caller's token.
const TOKEN: usize = 32;

/// Whether values at `path` are a Secret's content. Its metadata is not, but
/// for annotations: kubectl keeps whole manifests in one.
pub(super) fn is_secret(object: &ObjectId, path: &Path) -> bool {
    let field = |index: usize| match path.0.get(index) {
        Some(Segment::Field(name)) => Some(name.as_str()),
        _ => None,
    };
    let open = match field(0) {
        Some("metadata") => field(1).is_some_and(|name| name != "annotations") || is_helms(path),
        Some("type" | "immutable") => true,
        _ => false,
    };
    object.group.is_empty() && object.kind == "Secret" && !open
}

/// Whether a value of a webhook configuration holds an address of the guard with
/// the token by which it knows the API server.
pub(super) fn holds_token(object: &ObjectId, value: &Value) -> bool {
    if object.group != "admissionregistration.k8s.io" {
        return false;
    }
    let text = value.to_string();
    let is_token = |rest: &str| {
        let known = |letter: &char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        rest.chars().take_while(known).count() >= TOKEN
    };
    ["/validate/", "/mutate/"].into_iter().any(|base| text.split(base).skip(1).any(is_token))
}

fn is_helms(path: &Path) -> bool {
    matches!(path.0.get(2), Some(Segment::Field(name)) if name.starts_with("meta.helm.sh/") || name.starts_with("helm.sh/"))
}
