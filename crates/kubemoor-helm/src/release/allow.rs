//! The annotations of a manifest that ask for an exception.
//!
//! Entry point: [`AllowAnnotations::of`].

use serde_json::Value;

use kubemoor_declare::model::{ALLOW, ALLOW_REASON, ALLOW_UNTIL};

/// The annotations of one object that ask for an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowAnnotations {
    /// `kubemoor.dev/allow`.
    pub allow: Option<String>,
    /// `kubemoor.dev/allow-until`.
    pub until: Option<String>,
    /// `kubemoor.dev/allow-reason`.
    pub reason: Option<String>,
}

impl AllowAnnotations {
    /// The annotations of a document; `None` if it has none of them.
    pub fn of(document: &Value) -> Option<Self> {
        let annotations = document.pointer("/metadata/annotations");
        let text = |name| Some(annotations?.get(name)?.as_str()?.to_owned());
        let read = Self { allow: text(ALLOW), until: text(ALLOW_UNTIL), reason: text(ALLOW_REASON) };
        (read != Self::default()).then_some(read)
    }

    /// Whether each text that differs from `before` matches the declared one.
    pub fn follows(&self, before: &Self, declared: &Self) -> bool {
        let follows =
            |text: fn(&Self) -> &Option<String>| text(self) == text(before) || text(self) == text(declared);
        follows(|it| &it.allow) && follows(|it| &it.until) && follows(|it| &it.reason)
    }
}
