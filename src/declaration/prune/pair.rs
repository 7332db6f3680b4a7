//! Two texts of one object, read only where they differ.
//!
//! Entry point: [`super::Pruned::pair`]. Invariant: what stands in both with
//! the same text is left out of both, so no declared path changes there. Only
//! entries on the way to declared values are left out: what is compared as one
//! value, and lists that are told apart by elements, are read whole or not at
//! all. Recursion follows the declarations, not the texts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};

use super::{Fate, Keep};

/// The entries of a map as text; of a name that stands twice the last counts.
type Entries<'a> = BTreeMap<Name<'a>, &'a RawValue>;

/// A name that borrows from the text unless it holds escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Keep<'_> {
    pub(super) fn pair(self, old: &RawValue, new: &RawValue) -> Result<(Value, Value), Error> {
        if !is_map(old) || !is_map(new) {
            return Ok((self.clone().read(old)?, self.read(new)?));
        }
        let (old, new): (Entries<'_>, Entries<'_>) =
            (serde_json::from_str(old.get())?, serde_json::from_str(new.get())?);
        let (mut before, mut after) = (Map::new(), Map::new());
        for (name, old) in &old {
            let Some(new) = new.get(name) else {
                self.read_entry(&name.0, old, &mut before)?;
                continue;
            };
            if old.get() == new.get() && !self.is_needed(&name.0) {
                continue;
            }
            match self.entry(&name.0) {
                Fate::Skip => {}
                Fate::Whole => {
                    before.insert(name.0.to_string(), serde_json::from_str(old.get())?);
                    after.insert(name.0.to_string(), serde_json::from_str(new.get())?);
                }
                Fate::Prune(below) => {
                    let (old, new) = below.pair(old, new)?;
                    before.insert(name.0.to_string(), old);
                    after.insert(name.0.to_string(), new);
                }
            }
        }
        for (name, new) in new.iter().filter(|(name, _)| !old.contains_key(name)) {
            self.read_entry(&name.0, new, &mut after)?;
        }
        Ok((Value::Object(before), Value::Object(after)))
    }

    /// Whether an entry is looked at even if it does not change.
    fn is_needed(&self, name: &str) -> bool {
        self.always.is_some_and(|always| always.0.iter().any(|(own, _)| *own == name))
    }

    fn read_entry(&self, name: &str, text: &RawValue, into: &mut Map<String, Value>) -> Result<(), Error> {
        let value = match self.entry(name) {
            Fate::Skip => return Ok(()),
            Fate::Whole => serde_json::from_str(text.get())?,
            Fate::Prune(below) => below.read(text)?,
        };
        into.insert(name.to_owned(), value);
        Ok(())
    }

    fn read(self, text: &RawValue) -> Result<Value, Error> {
        self.deserialize(&mut serde_json::Deserializer::from_str(text.get()))
    }
}

fn is_map(text: &RawValue) -> bool {
    text.get().starts_with('{')
}
