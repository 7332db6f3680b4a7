//! What the guard has seen of live objects, stored as marks (HMACs with the guard's key): when an object last matched
//! its declaration, which a repair needs as confirmation, and the settled values, which a dry run confirmed as the API
//! server's form of declared values. A mark reveals no value and cannot be made without the key. A field that was
//! allowed to differ is not confirmed: its path is open.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::signing::{Declaration, SigningKey};
use kubemoor_declare::declare::Digest;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;

/// The most open paths of one object, and the most bytes of one path; beyond that, their parents are open instead.
const OPEN: usize = 20;
const OPEN_CHARS: usize = 200;

/// The empty list, shared by all agreements without open paths: there is an agreement for each object.
static NONE: LazyLock<Arc<Vec<String>>> = LazyLock::new(Arc::default);

/// The last seen agreement of a live object with its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastAgreement {
    seal: StatementMark,
    /// The paths at which the object was not seen to match; almost always [`NONE`].
    open: Arc<Vec<String>>,
}

/// A statement about a declaration under the guard's key: it reveals nothing about the values, and cannot be made
/// without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StatementMark([u8; 16]);

/// A live object that the guard has seen with its release's annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    pub object: Arc<ObjectId>,
    /// Its last seen agreement; `None` if there never was one.
    pub agreement: Option<LastAgreement>,
    /// Its values that dry runs have confirmed.
    pub settled: Option<Arc<ObjectSettledValues>>,
}

impl LastAgreement {
    /// An agreement with a declaration, except at the `open` paths.
    pub fn new(key: &SigningKey, declaration: &Declaration<'_>, open: Vec<String>) -> Self {
        let open = few(open);
        Self { seal: StatementMark::on_agreement(key, declaration, &open), open: shared(open) }
    }

    /// Reads an agreement from its texts; `None` if they are invalid.
    pub fn read(seal: &str, open: &[String]) -> Option<Self> {
        Some(Self { seal: StatementMark::read(seal)?, open: shared(open.to_vec()) })
    }

    /// The agreement of an object that was seen as declared except at the `spared` paths. A spared path is open, unless
    /// `before` confirmed it for the same declared value; `is_same` compares the value at a path with the earlier one.
    pub fn after(
        before: Option<&Self>,
        key: &SigningKey,
        declaration: &Declaration<'_>,
        spared: &[Path],
        is_same: impl Fn(&Path) -> bool,
    ) -> Self {
        let before = before.filter(|_| !spared.is_empty());
        let is_again = before.is_some_and(|before| before.is_for_declaration(key, declaration));
        let is_known = |path: &Path| {
            before.is_some_and(|before| (is_again || is_same(path)) && !before.is_open(&path.to_string()))
        };
        let open = spared.iter().filter(|path| !is_known(path)).map(ToString::to_string).collect();
        Self::new(key, declaration, open)
    }

    pub fn is_for_declaration(&self, key: &SigningKey, declaration: &Declaration<'_>) -> bool {
        self.seal == StatementMark::on_agreement(key, declaration, self.open_paths())
    }

    /// Whether the declared values at these paths may be written.
    pub fn confirms<'p>(&self, mut paths: impl Iterator<Item = &'p Path>) -> bool {
        !paths.any(|path| self.is_open(&path.to_string()))
    }

    /// Whether all declared values may be written, except for the one at `but`.
    pub fn confirms_all(&self, but: Option<&Path>) -> bool {
        let but = but.map(ToString::to_string);
        self.open_paths().iter().all(|path| but.as_ref() == Some(path))
    }

    /// The mark as text; [`Self::read`] restores the agreement from it and the open paths.
    pub fn seal(&self) -> String {
        self.seal.text()
    }

    /// The paths at which the object was not seen to match.
    pub fn open_paths(&self) -> &[String] {
        &self.open
    }

    /// Whether something at, above or below a path is open.
    fn is_open(&self, path: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.open_paths().iter().any(|open| within(open, path) || within(path, open))
    }
}

impl StatementMark {
    /// Marks the agreement with a declaration, except at the `open` paths.
    fn on_agreement(key: &SigningKey, declaration: &Declaration<'_>, open: &[String]) -> Self {
        let open: Vec<&[u8]> = open.iter().map(|path| path.as_bytes()).collect();
        Self(declaration.mark(key, "agreement", &open))
    }

    /// Marks a settled value, or only the declaration if there is no path and no value.
    fn on_settled(key: &SigningKey, of: &Declaration<'_>, path: &str, value: Option<&Digest>) -> Self {
        let parts = [path.as_bytes(), value.map(Digest::as_bytes).unwrap_or_default()];
        Self(of.mark(key, "settled", &parts))
    }

    fn read(text: &str) -> Option<Self> {
        Some(Self(URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()?))
    }

    fn text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

fn shared(open: Vec<String>) -> Arc<Vec<String>> {
    if open.is_empty() { Arc::clone(&NONE) } else { Arc::new(open) }
}

/// Replaces paths by their parents while there are too many of them or they are too long.
fn few(mut paths: Vec<String>) -> Vec<String> {
    let parent = |path: &str| path.rfind('/').and_then(|end| path.get(..end)).unwrap_or_default().to_owned();
    for path in &mut paths {
        while path.len() > OPEN_CHARS {
            *path = parent(path);
        }
    }
    paths.sort();
    paths.dedup();
    while paths.len() > OPEN {
        let deepest = paths.iter().map(|path| path.matches('/').count()).max().unwrap_or_default();
        for path in &mut paths {
            if path.matches('/').count() == deepest {
                *path = parent(path);
            }
        }
        paths.sort();
        paths.dedup();
    }
    paths
}

/// The most settled values of one object, and the most bytes of a path. For other values, the dry run is repeated.
const VALUES: usize = 20;
const PATH_CHARS: usize = 300;

/// The values of one object that a dry run confirmed as the API server's form of declared values.
#[derive(Clone)]
pub struct ObjectSettledValues {
    key: SigningKey,
    release: ReleaseId,
    declaration: StatementMark,
    /// The marks of the values, by path.
    values: BTreeMap<String, StatementMark>,
}

impl ObjectSettledValues {
    /// Marks these values of a declaration; skips those that are nested too deeply.
    pub fn mark<'v>(
        key: &SigningKey,
        declaration: &Declaration<'_>,
        values: impl IntoIterator<Item = (&'v Path, Option<&'v Value>)>,
    ) -> Self {
        let mut settled = Self {
            key: key.clone(),
            release: declaration.release.clone(),
            declaration: StatementMark::on_settled(key, declaration, "", None),
            values: BTreeMap::new(),
        };
        for (path, value) in values {
            let (path, value) = (path.to_string(), Digest::new(&json!({ "value": value })));
            if let Some(value) = value.filter(|_| path.len() <= PATH_CHARS && settled.values.len() < VALUES) {
                let mark = StatementMark::on_settled(key, declaration, &path, Some(&value));
                settled.values.insert(path, mark);
            }
        }
        settled
    }

    /// Reads the marks of an object of this release from text; skips invalid values.
    pub fn read<'t>(
        key: &SigningKey,
        release: &ReleaseId,
        declaration: &str,
        values: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Option<Self> {
        let values = values.into_iter().take(VALUES).filter(|(path, _)| path.len() <= PATH_CHARS);
        let values = values.filter_map(|(path, value)| Some((path.to_owned(), StatementMark::read(value)?)));
        let (declaration, values) = (StatementMark::read(declaration)?, values.collect());
        Some(Self { key: key.clone(), release: release.clone(), declaration, values })
    }

    pub fn release(&self) -> &ReleaseId {
        &self.release
    }

    /// Whether a dry run confirmed this value as the API server's form of the declared one.
    pub fn holds(&self, declaration: &Declaration<'_>, path: &Path, value: Option<&Value>) -> bool {
        if self.release != *declaration.release || self.values.is_empty() {
            return false;
        }
        let path = path.to_string();
        let (Some(known), Some(value)) = (self.values.get(&path), Digest::new(&json!({ "value": value })))
        else {
            return false;
        };
        StatementMark::on_settled(&self.key, declaration, &path, Some(&value)) == *known
    }

    /// The marks as text, of the declaration and of each value with its path, for [`Self::read`].
    pub fn texts(&self) -> (String, Vec<(String, String)>) {
        let values = self.values.iter().map(|(path, value)| (path.clone(), value.text()));
        (self.declaration.text(), values.collect())
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

impl PartialEq for ObjectSettledValues {
    fn eq(&self, other: &Self) -> bool {
        (&self.release, self.declaration, &self.values) == (&other.release, other.declaration, &other.values)
    }
}

impl Eq for ObjectSettledValues {}

impl fmt::Debug for ObjectSettledValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.keys()).finish()
    }
}

/// The settled values of all objects.
#[derive(Debug, Default)]
pub struct SettledValueIndex(HashMap<ObjectId, Arc<ObjectSettledValues>>);

/// [`SettledValueIndex`], shared by all code that judges changes.
pub type SharedSettledValues = RwLock<SettledValueIndex>;

impl SettledValueIndex {
    pub fn get(&self, object: &ObjectId) -> Option<Arc<ObjectSettledValues>> {
        self.0.get(object).cloned()
    }

    /// Records values that a dry run of this or an earlier process confirmed; returns whether any of them is new.
    pub fn record(&mut self, object: &ObjectId, settled: ObjectSettledValues) -> bool {
        if settled.values.is_empty() {
            return false;
        }
        let settled = match self.0.get(object) {
            Some(before) => settled.after(before),
            None => settled,
        };
        let before = self.0.insert(object.clone(), Arc::new(settled.clone()));
        before.is_none_or(|before| *before != settled)
    }

    /// Forgets the values of an object that the release no longer declares.
    pub fn forget(&mut self, release: &ReleaseId, object: &ObjectId) {
        if self.0.get(object).is_some_and(|settled| settled.release == *release) {
            self.0.remove(object);
        }
    }
}

#[cfg(test)]
mod tests;
