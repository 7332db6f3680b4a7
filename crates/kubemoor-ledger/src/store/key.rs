//! Names as indexes hold them.
//!
//! Entry point: [`of`]. Invariant: a key never changes, since
//! databases hold it; names that share a key cost time and nothing else. Pure.

/// The columns that rows are looked up by.
pub(super) const NAMES: [Name; 4] = [
    Name { index: "entries_release", key: "release_key", column: "release" },
    Name { index: "entries_user", key: "user_key", column: "user_name" },
    Name { index: "entries_namespace", key: "namespace_key", column: "namespace" },
    Name { index: "entries_verdict", key: "verdict_key", column: "verdict" },
];

/// The column of the name of the object that a row is about.
pub(super) const OBJECT: &str = "object_name";

/// The pairs of columns for which PostgreSQL has an index, the most selective first.
pub(super) const PAIRS: [[&str; 2]; 6] = [
    [OBJECT, "user_key"],
    ["user_key", "release_key"],
    ["user_key", "namespace_key"],
    ["namespace_key", "release_key"],
    ["user_key", "verdict_key"],
    ["release_key", "verdict_key"],
];

/// A column that rows are looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The index that begins with its key.
    pub(super) index: &'static str,
    /// The column of its key.
    pub(super) key: &'static str,
    /// The column.
    pub(super) column: &'static str,
}

/// The key of a name: FNV-1a with 32 bits.
pub(super) fn of(name: &str) -> i32 {
    let hash = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, hash).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_databases_hold_already() {
        // The published values of FNV-1a.
        assert_eq!(of("").cast_unsigned(), 0x811c_9dc5);
        assert_eq!(of("foobar").cast_unsigned(), 0xbf9c_f968);
    }
}
