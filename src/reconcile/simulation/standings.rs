//! How releases stood at each time, by what really is.

use super::stored::Field;
use super::world::World;
use crate::helm::record::Status;
use crate::model::ReleaseId;

impl World {
    /// Notes how releases stand by now.
    pub(super) fn note_standings(&mut self) {
        let drift = self.drift();
        for (id, records) in &self.records {
            let is_deployed = records.last().is_some_and(|last| last.status == Status::Deployed);
            let own = format!("{id}:");
            let stands = is_deployed && drift.iter().all(|line| !line.starts_with(&own));
            let known = self.standings.entry(id.clone()).or_default();
            if known.last().is_none_or(|(_, before)| *before != stands) {
                known.push((self.log.len(), stands));
            }
        }
    }

    /// Whether a release was in sync with this revision at some time from that place of
    /// the log on. What has another revision by now is not looked into.
    pub(super) fn was_in_sync(&self, id: &ReleaseId, revision: u64, from: usize) -> bool {
        let latest = self.records.get(id).and_then(|records| records.last());
        if latest.is_none_or(|last| last.revision != revision || last.status != Status::Deployed) {
            return true;
        }
        let known = self.standings.get(id).map_or(&[][..], Vec::as_slice);
        let first = known.partition_point(|(place, _)| *place <= from).saturating_sub(1);
        known.iter().skip(first).any(|(_, stands)| *stands)
    }

    /// What of the releases in force is not as declared.
    pub(super) fn drift(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (id, records) in &self.records {
            let Some(latest) = records.last().filter(|it| it.status == Status::Deployed) else { continue };
            for (object, declared) in self.documents(id, &latest.manifest).iter() {
                let Some(live) = self.objects.get(object) else {
                    found.push(format!("{id}: {} is missing", object.name));
                    continue;
                };
                for (field, value) in declared {
                    if live.fields.get(field).map(String::as_str) != Some(self.admitted(value)) {
                        found.push(format!("{id}: {} has another {field:?}", object.name));
                    }
                }
                let is_added = |field: &Field| field.0 == "data" && !declared.contains_key(field);
                if self.sealed && live.fields.keys().any(is_added) {
                    found.push(format!("{id}: {} holds more", object.name));
                }
            }
        }
        found
    }
}
