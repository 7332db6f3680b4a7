//! The built-in catalog: the kinds that people put in charts, as Kubernetes
//! itself describes them.
//!
//! Entry point: [`core()`]. Invariant: read once, at the first use, from a file
//! that `cargo run --example core_kinds` writes from a server's own OpenAPI
//! documents; never edited by hand. The forms are [`encode`] and [`decode`].

use std::sync::LazyLock;

use super::catalog::Catalog;

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

#[cfg(test)]
mod tests;
