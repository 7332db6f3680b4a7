//! The built-in catalog of the core kinds.
//!
//! Entry point: [`core`].

use super::catalog::Catalog;

/// The built-in catalog.
pub fn core() -> &'static Catalog {
    static CORE: std::sync::LazyLock<Catalog> = std::sync::LazyLock::new(Catalog::default);
    &CORE
}
