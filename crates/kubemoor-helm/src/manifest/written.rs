//! One object of a manifest as it is written there.
//!
//! Entry point: [`written`].

use serde_json::Value;

use super::documents::{Document, Documents, source};
use super::{DOCUMENT, LONGEST, MAX_DOCUMENTS};
use crate::yaml::{self, Budget};
use kubemoor_declare::model::{Gvk, ObjectId};

/// An object as a manifest has it. May hold secrets: has no `Debug`.
pub struct Written<'m> {
    /// Its document.
    pub text: &'m str,
    /// The template that rendered it, as Helm notes above it.
    pub source: Option<String>,
    /// The object, as written.
    pub object: Value,
}

/// The last document of a manifest that holds this object alone.
pub fn written<'m>(manifest: &'m str, object: &ObjectId) -> Option<Written<'m>> {
    let mut found = None;
    for document in Documents::of(manifest).take(MAX_DOCUMENTS) {
        let Document::Yaml(text) = document else { continue };
        let may_be = text.len() <= LONGEST && text.contains(&*object.kind) && text.contains(&*object.name);
        if !may_be {
            continue;
        }
        let mut budget = Budget::new(DOCUMENT);
        let Ok(value) = yaml::to_json(text, &mut budget) else { continue };
        if is(&value, object) {
            found = Some(Written { text, source: source(text), object: value });
        }
    }
    found
}

/// Whether a document is this object. A document without a namespace is in its release's namespace, or in
/// none.
fn is(value: &Value, object: &ObjectId) -> bool {
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
    let gvk =
        Gvk::from_api_version(text("/apiVersion").unwrap_or_default(), text("/kind").unwrap_or_default());
    gvk.group == object.group
        && gvk.kind == object.kind
        && text("/metadata/name") == Some(&object.name)
        && text("/metadata/namespace").is_none_or(|namespace| object.namespace.as_deref() == Some(namespace))
}
