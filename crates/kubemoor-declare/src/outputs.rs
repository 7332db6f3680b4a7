//! Fields in a manifest that it does not decide: the outputs of controllers that come with Kubernetes or with
//! every webhook.
//!
//! Entry points: `is_output` of a manifest, [`is_undeclared_output`] of an object. Invariant: a table in
//! code. It has no field with which a user could change an object's behaviour, unless that is declared empty
//! or as a placeholder.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::equality::is_empty;
use super::fields::Fields;
use super::path::{Path, Segment};
use crate::model::ObjectId;

/// The places of CA bundles: API group, kind, names from the root.
const CA_BUNDLES: &[(&str, &str, &[&str])] = &[
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        &["webhooks", "*", "clientConfig", "caBundle"],
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        &["webhooks", "*", "clientConfig", "caBundle"],
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &["spec", "conversion", "webhook", "clientConfig", "caBundle"],
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &["spec", "conversion", "webhookClientConfig", "caBundle"],
    ),
    ("apiregistration.k8s.io", "APIService", &["spec", "caBundle"]),
];

/// The places of values that the API server derives from others where they are null or empty: API group, kind, names
/// from the root.
const DERIVED: &[(&str, &str, &[&str])] = &[
    ("", "PersistentVolumeClaim", &["spec", "dataSource"]),
    ("", "ReplicationController", &["spec", "selector"]),
    ("batch", "Job", &["spec", "selector"]),
];

/// The names from the root to a value, to find what is not declared.
#[derive(Clone, Copy)]
pub(super) struct Above<'a> {
    pub(super) above: Option<&'a Above<'a>>,
    pub(super) name: &'a str,
    pub(super) depth: usize,
}

impl Above<'_> {
    /// Whether the names up to here are these, from the root. List elements
    /// are named `*`.
    pub(super) fn is(&self, names: &[&str]) -> bool {
        match names.split_last() {
            None => self.above.is_none(),
            Some((last, rest)) => self.above.is_some_and(|above| self.name == *last && above.is(rest)),
        }
    }
}

/// Whether the document is a Secret.
pub(super) fn is_secret(document: &Value) -> bool {
    is_kind(document, "", "Secret")
}

/// Whether another component fills in `value` at that place: `rules` under an `aggregationRule`, a CA bundle without a
/// certificate, and an empty value that the API server derives from others.
pub(super) fn is_output(document: &Value, at: &Above<'_>, value: &Value) -> bool {
    let is_in = |places: &[(&str, &str, &[&str])]| {
        places.iter().any(|(group, kind, names)| is_kind(document, group, kind) && at.is(names))
    };
    match at.name {
        "rules" => {
            at.is(&["rules"])
                && is_kind(document, "rbac.authorization.k8s.io", "ClusterRole")
                && document.get("aggregationRule").is_some_and(Value::is_object)
        }
        "caBundle" => is_in(CA_BUNDLES) && is_placeholder(value),
        "dataSource" | "selector" => is_empty(value) && is_in(DERIVED),
        _ => false,
    }
}

/// Whether another component fills in the undeclared value at `path` of an object.
pub fn is_undeclared_output(object: &ObjectId, fields: &Fields, path: &Path) -> bool {
    let ObjectId { group, kind, .. } = object;
    let is_at = |names: &[&str]| {
        names.len() == path.0.len()
            && names.iter().zip(path.0.iter()).all(|(name, segment)| match segment {
                Segment::Field(field) => field == name,
                Segment::Key(_) | Segment::Element(_) => *name == "*",
            })
    };
    let is_aggregated = || {
        let rule = Path([Segment::Field("aggregationRule".to_owned())].into());
        group == "rbac.authorization.k8s.io" && kind == "ClusterRole" && fields.declares_around(&rule)
    };
    CA_BUNDLES.iter().any(|(of, named, names)| group == of && kind == named && is_at(names))
        || (is_at(&["rules"]) && is_aggregated())
}

fn is_kind(document: &Value, group: &str, kind: &str) -> bool {
    let text = |name| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let own = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    text("kind") == kind && own == group
}

/// Whether a CA bundle holds no certificate.
fn is_placeholder(value: &Value) -> bool {
    let digits: String = match value {
        Value::Null => return true,
        Value::String(text) => text.split_ascii_whitespace().collect(),
        _ => return false,
    };
    let Ok(bytes) = STANDARD.decode(digits) else { return false };
    !String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----")
}
