//! Indexes all releases and the objects that they declare, with lookups in constant time. If several releases declare
//! one object, the first one seen remains first. If several namespaces hold records of one release, changes are judged
//! by all of them, and none is used for repairs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;

use super::release::{DeclaredObject, InvalidRecord, Release};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::packed::FieldsCache;
use kubemoor_declare::path::Path;

/// All releases, and the objects that they declare.
#[derive(Debug, Default)]
pub struct Index {
    /// By the namespace of their records, and their name.
    stored: HashMap<ReleaseId, Arc<Release>>,
    named: HashMap<ReleaseId, Histories>,
    claims: ClaimTable,
    /// By group and plural: the kind, and the path of the replicas that `scale` sets.
    resources: HashMap<(String, String), (String, Option<Path>)>,
    /// The resources that releases declare, with the number of objects that do.
    declared: BTreeMap<DeclaredResource, usize>,
    /// The memory that declarations use, by the namespace that holds the records and in total, and its limit.
    weights: HashMap<String, usize>,
    weight: usize,
    limit: Option<usize>,
    cache: Arc<FieldsCache>,
}

impl Index {
    /// An index of releases whose declared fields use at most `limit` bytes together.
    pub fn within(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    pub fn cache(&self) -> &Arc<FieldsCache> {
        &self.cache
    }

    /// Checks that there is memory for the declarations of a release, instead of the previous ones of its records.
    pub fn check_room_for(&self, release: &Release) -> Result<(), IndexFullError> {
        let before = self.stored.get(&release.stored()).map_or(0, |before| before.weight);
        if release.weight <= before {
            return Ok(());
        }
        let grows = release.weight - before;
        let own = self.weights.get(&release.storage).copied().unwrap_or_default();
        match self.limit {
            _ if own + grows > MAX_WEIGHT => Err(IndexFullError::Namespace),
            Some(limit) if self.weight + grows > limit => Err(IndexFullError::All { limit }),
            _ => Ok(()),
        }
    }

    pub fn set(&mut self, release: Release) {
        self.replace(&release.stored(), Some(Arc::new(release)));
    }

    /// Removes the release of the records at `stored`.
    pub fn remove(&mut self, stored: &ReleaseId) {
        self.replace(stored, None);
    }

    fn replace(&mut self, stored: &ReleaseId, after: Option<Arc<Release>>) {
        let before = match &after {
            Some(release) => self.stored.insert(stored.clone(), Arc::clone(release)),
            None => self.stored.remove(stored),
        };
        let weight = |release: &Option<Arc<Release>>| release.as_ref().map_or(0, |release| release.weight);
        self.weigh(&stored.namespace, weight(&before), weight(&after));
        self.claims.replace(before.as_ref(), after.as_ref());
        if let Some(release) = &after {
            self.count(release, true);
        }
        if let Some(before) = &before {
            self.count(before, false);
            if after.as_ref().is_none_or(|release| release.id != before.id) {
                self.update_history(&before.id, stored, None);
            }
        }
        let Some(release) = after else { return };
        self.update_history(&release.id, stored, Some(&release));
        for (object, declarations) in release.objects.iter() {
            for declared in declarations.all() {
                self.record_scale_path(object, declared);
            }
        }
    }

    /// The releases that declare `object`; the one seen first comes first.
    pub fn claims(&self, object: &ObjectId) -> ClaimingReleases<'_> {
        self.claims.get(object)
    }

    /// The release with this id; invalid if several namespaces hold its records, unless all but one say uninstalled.
    pub fn release(&self, id: &ReleaseId) -> Option<&Arc<Release>> {
        self.named.get(id).map(|named| &named.representative)
    }

    /// The release with this id, unless it is uninstalled.
    pub fn installed(&self, id: &ReleaseId) -> Option<&Arc<Release>> {
        self.release(id).filter(|release| !release.is_uninstalled())
    }

    pub fn releases(&self) -> impl Iterator<Item = &Arc<Release>> {
        self.named.values().map(|named| &named.representative)
    }

    /// The release of the records at `stored`, unless the records of several namespaces say that it is installed: any
    /// of these may be removed.
    pub fn release_without_rival(&self, stored: &ReleaseId) -> Option<&Arc<Release>> {
        let release = self.stored.get(stored)?;
        rivals(&self.named.get(&release.id)?.histories).is_none().then_some(release)
    }

    /// The release of the records at `stored`.
    pub fn stored(&self, stored: &ReleaseId) -> Option<&Arc<Release>> {
        self.stored.get(stored)
    }

    /// The id of the release of the records at `stored`; until it is known, `stored` itself.
    pub fn release_stored_as(&self, stored: ReleaseId) -> ReleaseId {
        self.stored.get(&stored).map_or(stored, |release| release.id.clone())
    }

    /// The releases from all records, in no order: one for each namespace that holds records of a release.
    pub fn histories(&self) -> impl Iterator<Item = &Arc<Release>> {
        self.stored.values()
    }

    pub fn objects(&self) -> usize {
        self.claims.objects()
    }

    /// The kind of a declared resource such as `deployments`, and the path of the replicas that its `scale` subresource
    /// sets.
    pub fn kind_of_resource(&self, group: &str, plural: &str) -> Option<(&str, Option<&Path>)> {
        let (kind, scale) = self.resources.get(&(group.to_owned(), plural.to_owned()))?;
        Some((kind, scale.as_ref()))
    }

    /// The resources that releases declare. Kinds that are not served yet are left out.
    pub fn resources(&self) -> BTreeSet<DeclaredResource> {
        self.declared.keys().cloned().collect()
    }

    fn weigh(&mut self, namespace: &str, before: usize, after: usize) {
        self.weight = self.weight + after - before;
        let own = self.weights.entry(namespace.to_owned()).or_default();
        *own = *own + after - before;
        if *own == 0 {
            self.weights.remove(namespace);
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

    fn record_scale_path(&mut self, object: &ObjectId, declared: &DeclaredObject) {
        if let Some(plural) = declared.plural() {
            let key = (object.group.to_string(), plural.to_string());
            let known = self.resources.entry(key).or_insert_with(|| (object.kind.to_string(), None));
            // A release that was assembled before the kind's facts were known must not hide its scale.
            if declared.scale().is_some() {
                *known = (object.kind.to_string(), declared.scale().cloned());
            }
        }
    }

    /// Replaces the history from the records at `stored` among those of the release `id`; `None` removes it.
    fn update_history(&mut self, id: &ReleaseId, stored: &ReleaseId, release: Option<&Arc<Release>>) {
        let mut histories = self.named.remove(id).map(|named| named.histories).unwrap_or_default();
        histories.retain(|history| !history.is_stored_as(stored));
        histories.extend(release.cloned());
        if let Some(named) = Histories::choose_representative(histories) {
            self.named.insert(id.clone(), named);
        }
    }
}

#[derive(Debug)]
struct Histories {
    /// The releases from the records of each namespace; usually there is one.
    histories: Vec<Arc<Release>>,
    /// The history that represents the release.
    representative: Arc<Release>,
}

impl Histories {
    /// Chooses the history that represents the release: an installed one before an uninstalled one, then one from a
    /// trusted record, then the one in the release's own namespace. `None` without any.
    fn choose_representative(mut histories: Vec<Arc<Release>>) -> Option<Self> {
        histories.sort_by_cached_key(|it| {
            (it.is_uninstalled(), !it.state.is_known(), it.storage != it.id.namespace, it.storage.clone())
        });
        let speaker = match rivals(&histories) {
            Some((first, second)) => Arc::new(contested(first, second)),
            None => Arc::clone(histories.first()?),
        };
        Some(Self { histories, representative: speaker })
    }
}

/// The first two histories by which the release is installed.
fn rivals(histories: &[Arc<Release>]) -> Option<(&Release, &Release)> {
    let mut rivals = histories.iter().filter(|it| !it.is_uninstalled());
    Some((rivals.next()?, rivals.next()?))
}

/// The release, marked invalid: with records in two namespaces its declarations cannot be determined.
fn contested(release: &Release, rival: &Release) -> Release {
    let reason = format!(
        "the release has records in namespace {} and in namespace {}: delete those that are not its own",
        release.storage, rival.storage
    );
    let invalid = InvalidRecord { secret: rival.latest.secret.clone(), reason };
    Release { invalid: Some(release.invalid.clone().unwrap_or(invalid)), ..release.clone() }
}

/// The maximum memory in bytes for the declarations of releases whose records are in one namespace.
pub const MAX_WEIGHT: usize = 24 << 20;

/// There is not enough memory for the declarations of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexFullError {
    #[error("the releases of its namespace declare more than {MAX_WEIGHT} bytes, so this one is not checked")]
    Namespace,
    #[error(
        "all releases together declare more than the {limit} bytes that fit in the guard's memory, so this \
         one is not checked"
    )]
    All { limit: usize },
}

/// A resource that some release declares, in the version in which the API server reports the declared objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeclaredResource {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub scale: bool,
}

fn resource(object: &ObjectId, declared: &DeclaredObject) -> Option<DeclaredResource> {
    Some(DeclaredResource {
        group: object.group.to_string(),
        version: declared.served().to_owned(),
        kind: object.kind.to_string(),
        plural: declared.plural()?.to_owned(),
        scale: declared.scale().is_some(),
    })
}

/// The releases that declare one object; the one seen first comes first.
pub type ClaimingReleases<'t> = SmallVec<[&'t Arc<Release>; 2]>;

/// The keys are shared with the releases' own maps, so that each is in memory once.
#[derive(Debug, Default)]
pub struct ClaimTable(HashMap<Arc<ObjectId>, SmallVec<[Arc<Release>; 1]>>);

impl ClaimTable {
    pub fn get(&self, object: &ObjectId) -> ClaimingReleases<'_> {
        self.0.get(object).into_iter().flatten().collect()
    }

    pub fn objects(&self) -> usize {
        self.0.len()
    }

    /// Replaces the claims of a release; `before` is the release as inserted last.
    pub fn replace(&mut self, before: Option<&Arc<Release>>, after: Option<&Arc<Release>>) {
        if let Some(before) = before {
            let is_over = |object: &&Arc<ObjectId>| after.is_none_or(|it| !it.objects.contains_key(*object));
            for object in before.objects.keys().filter(is_over) {
                let Some(claims) = self.0.get_mut(object) else { continue };
                claims.retain(|it| !Arc::ptr_eq(it, before));
                if claims.is_empty() {
                    self.0.remove(object);
                }
            }
        }
        let Some(after) = after else { return };
        for object in after.objects.keys() {
            let mut claims = self.0.remove(object).unwrap_or_default();
            let own = before.and_then(|before| claims.iter_mut().find(|it| Arc::ptr_eq(it, before)));
            match own {
                Some(own) => own.clone_from(after),
                None => claims.push(Arc::clone(after)),
            }
            self.0.insert(Arc::clone(object), claims);
        }
    }
}

#[cfg(test)]
mod tests;
