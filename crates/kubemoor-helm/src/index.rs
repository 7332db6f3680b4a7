//! The index of the releases that declare an object, with lookups in constant time.
//!
//! Entry point: [`Index`], fed with [`Release`] values. Invariant: if several releases claim one object, the
//! first one seen remains first. If one release has several histories, changes are judged by all of them, and
//! none is used for repairs. Holds no client and starts no task.

mod memory;
mod named;
mod resource;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use self::memory::Taken;
pub use self::memory::{Full, MAX_WEIGHT};
use self::named::Named;
pub use self::resource::DeclaredResource;
use self::resource::resource;
use super::claims::{ClaimTable, Claims};
use super::release::{Declared, Release};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::packed::FieldsCache;
use kubemoor_declare::path::Path;

/// All releases, and the objects that they declare.
#[derive(Debug, Default)]
pub struct Index {
    /// By where their records lie.
    stored: HashMap<ReleaseId, Arc<Release>>,
    named: HashMap<ReleaseId, Named>,
    claims: Box<ClaimTable>,
    /// By group and plural: the kind, and where `scale` keeps the replicas.
    resources: HashMap<(String, String), (String, Option<Path>)>,
    /// The resources that releases declare, with the number of objects that do.
    declared: BTreeMap<DeclaredResource, usize>,
    taken: Box<Taken>,
    /// The recently used declared fields.
    cache: Arc<FieldsCache>,
}

impl Index {
    /// An index of releases whose declared fields use at most `limit` bytes together.
    pub fn within(limit: Option<usize>) -> Self {
        Self { taken: Box::new(Taken { limit, ..Taken::default() }), ..Self::default() }
    }

    /// The cache of recently used declared fields.
    pub fn cache(&self) -> &Arc<FieldsCache> {
        &self.cache
    }

    /// Checks that there is memory for the declarations of a release, which replace those of the same records
    /// before.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn room_for(&self, release: &Release) -> Result<(), Full> {
        let before = self.stored.get(&release.stored()).map_or(0, |before| before.weight);
        if release.weight <= before {
            return Ok(());
        }
        let grows = release.weight - before;
        let own = self.taken.by_namespace.get(&release.storage).copied().unwrap_or_default();
        match self.taken.limit {
            _ if own + grows > MAX_WEIGHT => Err(Full::Namespace),
            Some(limit) if self.taken.all + grows > limit => Err(Full::All { limit }),
            _ => Ok(()),
        }
    }

    /// Adds a release, and replaces the earlier one of the same records.
    pub fn set(&mut self, release: Release) {
        let (stored, release) = (release.stored(), Arc::new(release));
        let weight = self.stored.get(&stored).map_or(0, |before| before.weight);
        self.weigh(&stored.namespace, weight, release.weight);
        let before = self.stored.insert(stored.clone(), Arc::clone(&release));
        self.count(&release, true);
        if let Some(before) = &before {
            self.count(before, false);
        }
        if let Some(before) = before.as_ref().filter(|before| before.id != release.id) {
            self.withdraw(&before.id, &stored);
        }
        self.enter(&release, &stored);
        self.claims.set(&stored, &release);
        for (object, declarations) in release.objects.iter() {
            for declared in declarations.all() {
                self.learn(object, declared);
            }
        }
    }

    /// Takes out what the records at `stored` say.
    pub fn remove(&mut self, stored: &ReleaseId) {
        if let Some(release) = self.stored.remove(stored) {
            self.weigh(&stored.namespace, release.weight, 0);
            self.withdraw(&release.id, stored);
            self.count(&release, false);
            self.claims.remove(stored);
        }
    }

    /// The releases that declare `object`, the one seen first in front.
    pub fn claims(&self, object: &ObjectId) -> Claims<'_> {
        self.claims.of(object)
    }

    /// A release. One with histories in several namespaces is invalid, unless
    /// all but one say that it is uninstalled.
    pub fn release(&self, id: &ReleaseId) -> Option<&Arc<Release>> {
        self.named.get(id).map(|named| &named.speaker)
    }

    /// All releases, in no order.
    pub fn releases(&self) -> impl Iterator<Item = &Arc<Release>> {
        self.named.values().map(|named| &named.speaker)
    }

    /// The release for which the records at `stored` speak, if no others say
    /// that it is installed. Of several histories any may go.
    pub fn uncontested(&self, stored: &ReleaseId) -> Option<&Arc<Release>> {
        let release = self.stored.get(stored)?;
        self.named.get(&release.id)?.rivals().is_none().then_some(release)
    }

    /// The release for which the records at `stored` speak.
    pub fn stored(&self, stored: &ReleaseId) -> Option<&Arc<Release>> {
        self.stored.get(stored)
    }

    /// The release of the records at `stored`; until it is known, the one with that place and name.
    pub fn release_stored_as(&self, stored: ReleaseId) -> ReleaseId {
        self.stored.get(&stored).map_or(stored, |release| release.id.clone())
    }

    /// The releases from all records, in no order: several for a release with histories in several
    /// namespaces.
    pub fn histories(&self) -> impl Iterator<Item = &Arc<Release>> {
        self.stored.values()
    }

    /// How many objects are declared.
    pub fn objects(&self) -> usize {
        self.claims.objects()
    }

    /// The kind that a declared resource such as `deployments` holds, and
    /// where its `scale` subresource keeps the replicas.
    pub fn kind_of_resource(&self, group: &str, plural: &str) -> Option<(&str, Option<&Path>)> {
        let (kind, scale) = self.resources.get(&(group.to_owned(), plural.to_owned()))?;
        Some((kind, scale.as_ref()))
    }

    /// The resources that releases declare. Kinds that are not served yet are left out.
    pub fn resources(&self) -> BTreeSet<DeclaredResource> {
        self.declared.keys().cloned().collect()
    }

    fn weigh(&mut self, namespace: &str, before: usize, after: usize) {
        let Taken { by_namespace, all, .. } = &mut *self.taken;
        *all = *all + after - before;
        let own = by_namespace.entry(namespace.to_owned()).or_default();
        *own = *own + after - before;
        if *own == 0 {
            by_namespace.remove(namespace);
        }
    }

    /// Adds the resources of a release to the counts, or subtracts them.
    fn count(&mut self, release: &Release, is_there: bool) {
        for (object, declarations) in release.objects.iter() {
            for resource in declarations.all().filter_map(|declared| resource(object, declared)) {
                let count = self.declared.entry(resource).or_default();
                *count = if is_there { *count + 1 } else { count.saturating_sub(1) };
            }
        }
        if !is_there {
            self.declared.retain(|_, count| *count > 0);
        }
    }

    fn learn(&mut self, object: &ObjectId, declared: &Declared) {
        if let Some(plural) = declared.plural() {
            let key = (object.group.to_string(), plural.to_string());
            let known = self.resources.entry(key).or_insert_with(|| (object.kind.to_string(), None));
            // A release that was assembled before the kind was known well must
            // not hide its scale.
            if declared.scale().is_some() {
                *known = (object.kind.to_string(), declared.scale().cloned());
            }
        }
    }

    /// Counts a release among those of its name.
    fn enter(&mut self, release: &Arc<Release>, stored: &ReleaseId) {
        match self.named.get_mut(&release.id) {
            Some(named) => {
                named.histories.retain(|history| !history.is_stored_as(stored));
                named.histories.push(Arc::clone(release));
                named.elect();
            }
            None => {
                let histories = vec![Arc::clone(release)];
                let speaker = Arc::clone(release);
                self.named.insert(release.id.clone(), Named { histories, speaker });
            }
        }
    }

    /// Subtracts the declarations that the records at `stored` no longer hold as the release `id`.
    fn withdraw(&mut self, id: &ReleaseId, stored: &ReleaseId) {
        if let Some(named) = self.named.get_mut(id) {
            named.histories.retain(|history| !history.is_stored_as(stored));
            if named.histories.is_empty() {
                self.named.remove(id);
            } else {
                named.elect();
            }
        }
    }
}

#[cfg(test)]
mod tests;
