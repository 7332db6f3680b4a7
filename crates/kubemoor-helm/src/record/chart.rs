//! Which chart a revision was made from.
//!
//! Entry point: [`ChartVersion::new`]. Invariant: a name and a version that can stand in any sentence and any command
//! as they are: a user who may write a record chooses them.

use std::fmt;
use std::sync::Arc;

/// The longest name or version, in bytes. Helm has no longer names in its labels.
const LONGEST: usize = 128;

/// A chart by its name and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartVersion {
    name: Arc<str>,
    version: Arc<str>,
}

impl ChartVersion {
    /// The chart with this name and version; `None` if Helm would not accept them.
    pub fn new(name: &str, version: &str) -> Option<Self> {
        let is_plain = |text: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
            !text.is_empty() && text.len() <= LONGEST && text.chars().all(is_plain)
        };
        (is_plain(name) && is_plain(version)).then(|| Self { name: name.into(), version: version.into() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name and version as `helm list` writes them: `web-1.2.3`.
    pub fn label(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

impl fmt::Display for ChartVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} version {}", self.name, self.version)
    }
}
