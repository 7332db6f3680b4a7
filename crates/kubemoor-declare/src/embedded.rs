//! The built-in catalog: the kinds that people put in charts, as Kubernetes
//! itself describes them.
//!
//! Entry point: [`core()`]. Invariant: read once, at the first use, from a file
//! that `cargo run --example core_kinds` writes from a server's own OpenAPI
//! documents; never edited by hand. The forms are [`encode`] and [`decode`].

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use super::catalog::Catalog;
use crate::model::Gvk;

mod format;

pub use self::format::{FormatError, decode, encode};

/// The reduced types and the facts of the core kinds.
static DATA: &str = include_str!("embedded/core.json");

/// The built-in catalog.
pub fn core() -> &'static Catalog {
    // A test decodes this very text: it cannot fail at run time.
    static CORE: LazyLock<Catalog> = LazyLock::new(|| decode(DATA).unwrap_or_default());
    &CORE
}

/// Whether any type of the core kinds has a field of that name.
pub fn has_field(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<Arc<str>>> = LazyLock::new(|| {
        let pod = Gvk { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        core().schema(&pod).map(|schema| schema.types.names()).unwrap_or_default()
    });
    NAMES.contains(name)
}

impl Catalog {
    /// The built-in catalog of the core kinds as a base to add to.
    pub fn with_core() -> Self {
        core().clone()
    }
}

#[cfg(test)]
mod tests;
