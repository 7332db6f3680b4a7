//! An object as people name it: `KIND/NAME`.
//!
//! Entry point: [`NamedObject`]. Invariant: what is printed reads back as the same name. Must not know which kinds there
//! are.

use std::fmt;
use std::str::FromStr;

/// `KIND/NAME` or `KIND.GROUP/NAME`, the kind in any case, as its plural or by a
/// short name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// The kind, in lower case, as it was written.
    pub kind: String,
    /// The API group; `None` for any group.
    pub group: Option<String>,
    /// The name.
    pub name: String,
}

impl FromStr for NamedObject {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "an object is KIND/NAME, such as deployment/web, or KIND.GROUP/NAME";
        let (kind, name) = text.split_once('/').ok_or(form)?;
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (kind, None),
        };
        if kind.is_empty() || name.is_empty() || name.contains('/') {
            return Err(form);
        }
        Ok(Self { kind: kind.to_lowercase(), group, name: name.to_owned() })
    }
}

impl fmt::Display for NamedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, group, name } = self;
        match group {
            Some(group) => write!(f, "{kind}.{group}/{name}"),
            None => write!(f, "{kind}/{name}"),
        }
    }
}
