//! The memory that declarations use.
//!
//! Entry point: [`Taken`]. Invariant: declarations that are counted fit into the limits of their namespace and of all
//! together.

use std::collections::HashMap;

/// The memory that declarations use.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// By the namespace that holds the records.
    pub(super) by_namespace: HashMap<String, usize>,
    /// All together, and what they may.
    pub(super) all: usize,
    pub(super) limit: Option<usize>,
}

/// The most memory that the declarations of releases may take whose records
/// lie in one namespace, in bytes.
pub const MAX_WEIGHT: usize = 24 << 20;

/// There is not enough memory for the declarations of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// In its namespace.
    #[error("the releases of its namespace declare more than {MAX_WEIGHT} bytes, so this one is not judged")]
    Namespace,
    /// In all.
    #[error(
        "all releases declare more than the {limit} bytes that the guard's memory has room for, so this one is not judged"
    )]
    All {
        /// The bytes that there are.
        limit: usize,
    },
}
