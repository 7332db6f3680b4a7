//! The last seen agreement of a live object with its declaration.
//!
//! Entry points: [`Agreement::after`] gives the agreement of an object that was seen as declared,
//! [`Agreement::is_with`] tells whether it is with a declaration, and [`Agreement::confirms`] and
//! [`Agreement::confirms_all`] tell which values of the declaration a repair may write. Invariant:
//! a value counts as seen only if the live object held it. A field that was allowed to differ
//! (ignored, allowed, scaled) was not seen; it stays among the open paths until it is. Pure.
//! Must not hold a value.

use std::fmt;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::declaration::Declaration;
use super::settled::Settled;
use super::signing::SigningKey;
use kubemoor_declare::model::ObjectId;
use kubemoor_declare::path::Path;

/// The most open paths of one object, and the most characters of one path; beyond that, their
/// common parents are open.
const OPEN: usize = 20;
const OPEN_CHARS: usize = 200;

/// No open paths, which all agreements without any share: there is one for each object.
static NONE: LazyLock<Arc<Vec<String>>> = LazyLock::new(Arc::default);

/// The last seen agreement of a live object with its declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    seal: Seal,
    /// The paths at which the object has not been seen to agree; almost always [`NONE`].
    open: Arc<Vec<String>>,
}

/// An agreement under the guard's key: it reveals nothing about the values, and cannot be made
/// without the key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seal([u8; 16]);

/// An object that was seen alive with its release's annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenAlive {
    /// The object.
    pub object: Arc<ObjectId>,
    /// Its last seen agreement; `None` if there never was one.
    pub agreement: Option<Agreement>,
    /// Its values that dry runs have settled.
    pub settled: Option<Arc<Settled>>,
}

impl Agreement {
    /// An agreement with a declaration, except at the `open` paths.
    pub fn with(key: &SigningKey, declaration: &Declaration<'_>, open: Vec<String>) -> Self {
        let open = few(open);
        Self { seal: Seal::of(key, declaration, &open), open: shared(open) }
    }

    /// Reads an agreement from its texts; `None` if they are invalid.
    pub fn read(seal: &str, open: &[String]) -> Option<Self> {
        let seal = Seal(URL_SAFE_NO_PAD.decode(seal).ok()?.try_into().ok()?);
        Some(Self { seal, open: shared(open.to_vec()) })
    }

    /// The agreement of an object that was seen as declared except at the `spared` paths, after an
    /// agreement `before`. `is_same` tells at which paths the earlier declaration has the same
    /// values.
    pub fn after(
        before: Option<&Self>,
        key: &SigningKey,
        declaration: &Declaration<'_>,
        spared: &[Path],
        is_same: impl Fn(&Path) -> bool,
    ) -> Self {
        let before = before.filter(|_| !spared.is_empty());
        let is_again = before.is_some_and(|before| before.is_with(key, declaration));
        let is_known = |path: &Path| {
            before.is_some_and(|before| (is_again || is_same(path)) && !before.is_open(&path.to_string()))
        };
        let open = spared.iter().filter(|path| !is_known(path)).map(ToString::to_string).collect();
        Self::with(key, declaration, open)
    }

    /// Whether it is with this declaration.
    pub fn is_with(&self, key: &SigningKey, declaration: &Declaration<'_>) -> bool {
        self.seal == Seal::of(key, declaration, self.open())
    }

    /// Whether values of its declaration may be written at these paths.
    pub fn confirms<'p>(&self, mut paths: impl Iterator<Item = &'p Path>) -> bool {
        !paths.any(|path| self.is_open(&path.to_string()))
    }

    /// Whether all of its declaration may be written, except for the value at `but`.
    pub fn confirms_all(&self, but: Option<&Path>) -> bool {
        let but = but.map(ToString::to_string);
        self.open().iter().all(|path| but.as_ref() == Some(path))
    }

    /// The text by which [`Self::read`] knows it, with the open paths.
    pub fn seal(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.seal.0)
    }

    /// The paths at which the object has not been seen to agree.
    pub fn open(&self) -> &[String] {
        &self.open
    }

    /// Whether something at, above or below a path is open.
    fn is_open(&self, path: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.open().iter().any(|open| within(open, path) || within(path, open))
    }
}

impl Seal {
    fn of(key: &SigningKey, declaration: &Declaration<'_>, open: &[String]) -> Self {
        let open: Vec<&[u8]> = open.iter().map(|path| path.as_bytes()).collect();
        Self(declaration.mark(key, "agreement", &open))
    }
}

fn shared(open: Vec<String>) -> Arc<Vec<String>> {
    if open.is_empty() { Arc::clone(&NONE) } else { Arc::new(open) }
}

/// These paths, or their parents if they are many or long.
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

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

#[cfg(test)]
mod tests;
