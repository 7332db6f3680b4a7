//! How releases stand by what really is, and stood.

use super::stored::{Field, Fields, Stored};
use super::world::{Change, World};
use crate::helm::record::Status;
use crate::model::{ObjectId, ReleaseId};

impl World {
    /// Whether each object of a release was at some time from that place of the log on as this revision
    /// declares it. Watches of records and of objects tell at different times, so the times of two objects may
    /// differ. What has another revision by now is not looked into.
    pub(super) fn was_in_sync(&self, id: &ReleaseId, revision: u64, from: usize) -> bool {
        let Some(latest) = self.records.get(id).and_then(|records| records.last()) else { return true };
        if latest.revision != revision || latest.status != Status::Deployed {
            return true;
        }
        let documents = self.documents(id, &latest.manifest);
        documents.iter().all(|(object, declared)| self.was_as_declared(object, declared, from))
    }

    /// What of the releases in force is not as declared.
    pub(super) fn drift(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (id, records) in &self.records {
            let Some(latest) = records.last().filter(|it| it.status == Status::Deployed) else { continue };
            for (object, declared) in self.documents(id, &latest.manifest).iter() {
                let faults = self.faults(declared, self.objects.get(object));
                found.extend(faults.into_iter().map(|fault| format!("{id}: {} {fault}", object.name)));
            }
        }
        found
    }

    fn was_as_declared(&self, object: &ObjectId, declared: &Fields, from: usize) -> bool {
        let states = |changes: &[Change]| -> Vec<Option<Stored>> {
            let of_it = changes.iter().filter_map(|change| match change {
                Change::Object { object: other, stored, .. } if other == object => {
                    Some(stored.as_deref().cloned())
                }
                _ => None,
            });
            of_it.collect()
        };
        let (before, since) = self.log.split_at(from.min(self.log.len()));
        let at_first = states(before).pop().flatten();
        let since = states(since);
        [at_first].iter().chain(&since).any(|stored| self.faults(declared, stored.as_ref()).is_empty())
    }

    /// What of an object is not as declared.
    fn faults(&self, declared: &Fields, live: Option<&Stored>) -> Vec<String> {
        let Some(live) = live else { return vec!["is missing".to_owned()] };
        let differs = |(field, value): &(&Field, &String)| {
            live.fields.get(*field).map(String::as_str) != Some(self.admitted(value))
        };
        let other = declared.iter().filter(differs).map(|(field, _)| format!("has another {field:?}"));
        let is_added = |field: &Field| field.0 == "data" && !declared.contains_key(field);
        let more = (self.sealed && live.fields.keys().any(is_added)).then(|| "holds more".to_owned());
        other.chain(more).collect()
    }
}
