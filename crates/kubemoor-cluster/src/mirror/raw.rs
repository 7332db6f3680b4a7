//! Objects as they come from the API server.
//!
//! Entry point: [`Raw`]. Invariant: an object that its reader cannot make sense
//! of costs itself alone, and never the watch that brings it.

use serde_json::Value;

use crate::client::pages::PAGE;
use crate::client::watch::Form;

/// A whole object as it came.
pub struct Raw(pub Value);

impl Form for Raw {
    type Wire = Value;
    const PAGE: u32 = PAGE;
    const METADATA: bool = false;

    fn read(wire: Value) -> Self {
        Self(wire)
    }

    fn version(&self) -> &str {
        self.0.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
    }
}
