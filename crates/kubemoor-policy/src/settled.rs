//! Values that a dry run has settled: the API server stores them for a manifest that spells them
//! differently, or that a mutating webhook rewrites.
//!
//! Entry points: [`Settled::holds`] tells whether a value is one of these, [`SettledValues`] keeps
//! them for all code that judges (`settlements`). Invariant: a value counts for one path of one declaration of one
//! object, and only under the guard's key: the stored marks reveal nothing about the value, and
//! cannot be made without the key. Pure. Must not make a dry run.

mod settlements;

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

pub use self::settlements::{SettledValues, Settlements};
use super::declaration::Declaration;
use super::signing::SigningKey;
use kubemoor_declare::digest::Digest;
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::path::Path;

/// The most values that are kept of one object, and the most characters of a path. Dry runs are
/// repeated for others.
const VALUES: usize = 20;
const PATH_CHARS: usize = 300;

/// The stored mark of a declaration or a value.
type Mark = [u8; 16];

/// The values of one object that a dry run has settled.
#[derive(Clone)]
pub struct Settled {
    key: SigningKey,
    release: ReleaseId,
    /// The mark of the declaration.
    declaration: Mark,
    /// The marks of the values, by path.
    values: BTreeMap<String, Mark>,
}

impl Settled {
    /// Marks these values of a declaration, without those that are nested too deeply.
    pub fn of<'v>(
        key: &SigningKey,
        declaration: &Declaration<'_>,
        values: impl IntoIterator<Item = (&'v Path, Option<&'v Value>)>,
    ) -> Self {
        let mut settled = Self {
            key: key.clone(),
            release: declaration.release.clone(),
            declaration: mark(key, declaration, "", None),
            values: BTreeMap::new(),
        };
        for (path, value) in values {
            let (path, value) = (path.to_string(), Digest::of(&json!({ "value": value })));
            if let Some(value) = value.filter(|_| path.len() <= PATH_CHARS && settled.values.len() < VALUES) {
                settled.values.insert(path.clone(), mark(key, declaration, &path, Some(&value)));
            }
        }
        settled
    }

    /// Reads the texts for an object of this release; invalid texts have no effect.
    pub fn read<'t>(
        key: &SigningKey,
        release: &ReleaseId,
        declaration: &str,
        values: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Option<Self> {
        let mark = |text: &str| URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok();
        let values = values.into_iter().take(VALUES).filter(|(path, _)| path.len() <= PATH_CHARS);
        let values: BTreeMap<String, Mark> =
            values.filter_map(|(path, value)| Some((path.to_owned(), mark(value)?))).collect();
        Some(Self { key: key.clone(), release: release.clone(), declaration: mark(declaration)?, values })
    }

    /// The release that declares the object.
    pub fn release(&self) -> &ReleaseId {
        &self.release
    }

    /// Whether a dry run has settled that this value is the declared one.
    pub fn holds(&self, declaration: &Declaration<'_>, path: &Path, value: Option<&Value>) -> bool {
        if self.release != *declaration.release || self.values.is_empty() {
            return false;
        }
        let path = path.to_string();
        let (Some(known), Some(value)) = (self.values.get(&path), Digest::of(&json!({ "value": value })))
        else {
            return false;
        };
        mark(&self.key, declaration, &path, Some(&value)) == *known
    }

    /// The texts of the declaration, and of each value with its path, which [`Self::read`] reads.
    pub fn texts(&self) -> (String, Vec<(String, String)>) {
        let text = |mark: &Mark| URL_SAFE_NO_PAD.encode(mark);
        let values = self.values.iter().map(|(path, value)| (path.clone(), text(value)));
        (text(&self.declaration), values.collect())
    }

    /// Adds the earlier values of the same declaration.
    fn after(mut self, before: &Self) -> Self {
        if before.declaration == self.declaration {
            for (path, value) in &before.values {
                if self.values.len() < VALUES && !self.values.contains_key(path) {
                    self.values.insert(path.clone(), *value);
                }
            }
        }
        self
    }
}

fn mark(key: &SigningKey, declaration: &Declaration<'_>, path: &str, value: Option<&Digest>) -> Mark {
    let parts = [path.as_bytes(), value.map(Digest::as_bytes).unwrap_or_default()];
    declaration.mark(key, "settled", &parts)
}

impl PartialEq for Settled {
    fn eq(&self, other: &Self) -> bool {
        (&self.release, self.declaration, &self.values) == (&other.release, other.declaration, &other.values)
    }
}

impl Eq for Settled {}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.keys()).finish()
    }
}

#[cfg(test)]
mod tests;
