//! What repairs of an object have shown, for one record of its release.
//!
//! Entry point: [`RecordNotes`]. Invariant: notes of another record, even of the same revision, count for nothing: a
//! release that is installed anew begins at revision 1 again. Pure state.

use std::collections::{BTreeMap, BTreeSet};

use kubemoor_declare::model::ObjectId;

/// Texts by object, for the record with this uid.
#[derive(Debug, Default)]
pub(super) struct RecordNotes(BTreeMap<ObjectId, (String, BTreeSet<String>)>);

impl RecordNotes {
    /// Whether that was noted of the object, for this record.
    pub(super) fn has(&self, object: &ObjectId, record: &str, text: &str) -> bool {
        self.0.get(object).is_some_and(|(of, texts)| of == record && texts.contains(text))
    }

    /// Notes that of the object, for this record alone.
    pub(super) fn note(&mut self, object: &ObjectId, record: &str, texts: impl IntoIterator<Item = String>) {
        let (of, noted) = self.0.entry(object.clone()).or_default();
        if of != record {
            (*of, *noted) = (record.to_owned(), BTreeSet::new());
        }
        noted.extend(texts);
    }

    /// Forgets an object.
    pub(super) fn forget(&mut self, object: &ObjectId) {
        self.0.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_count_for_one_record_of_one_object() {
        let [a, b] = ["a", "b"].map(|name| ObjectId::namespaced("", "ConfigMap", "shop", name));
        let mut notes = RecordNotes::default();
        notes.note(&a, "u1", ["x".to_owned()]);
        notes.note(&a, "u1", ["y".to_owned()]);
        assert!(notes.has(&a, "u1", "x") && notes.has(&a, "u1", "y"));
        assert!(!notes.has(&a, "u2", "x") && !notes.has(&b, "u1", "x") && !notes.has(&a, "u1", "z"));
        notes.note(&a, "u2", ["z".to_owned()]);
        assert!(!notes.has(&a, "u2", "x") && notes.has(&a, "u2", "z"));
        notes.forget(&a);
        assert!(!notes.has(&a, "u2", "z"));
    }
}
