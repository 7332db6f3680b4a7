//! The index of the releases that declare an object, with lookups in constant time.
//!
//! Entry point: [`Index`], fed with [`Release`] values. Invariant: if several releases claim one object, the
//! first one seen remains first. If one release has several histories, changes are judged by all of them, and
//! none is used for repairs. Holds no client and starts no task.

mod claims;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use self::claims::ClaimTable;
pub use self::claims::Claims;
use super::record::Status;
use super::release::{Declared, Invalid, Release};
use crate::declaration::packed::FieldsCache;
use crate::declaration::path::Path;
use crate::model::{ObjectId, ReleaseId};

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

/// The memory that declarations use.
#[derive(Debug, Default)]
struct Taken {
    /// By the namespace that holds the records.
    by_namespace: HashMap<String, usize>,
    /// All together, and what they may.
    all: usize,
    limit: Option<usize>,
}

/// The most memory that the declarations of releases may take whose records
/// lie in one namespace, in bytes.
pub const MAX_WEIGHT: usize = 24 << 20;

/// There is not enough memory for the declarations of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// In its namespace.
    #[error("the releases of its namespace declare more than {MAX_WEIGHT} bytes, so this one is not judged")]
    Namespace,
    /// In all.
    #[error(
        "all releases declare more than the {limit} bytes that the guard's memory has room for, so this one is not judged"
    )]
    All {
        /// The bytes that there are.
        limit: usize,
    },
}

/// The histories of one release name.
#[derive(Debug)]
struct Named {
    /// The releases from the records of each namespace; usually there is one.
    histories: Vec<Arc<Release>>,
    /// The one that counts where one has to.
    speaker: Arc<Release>,
}

/// A resource that some release declares, in the version in which the API server reports the declared
/// objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeclaredResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural, such as `deployments`.
    pub plural: String,
    /// Whether it has a `scale` subresource.
    pub scale: bool,
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

    fn weigh(&mut self, namespace: &str, before: usize, after: usize) {
        let Taken { by_namespace, all, .. } = &mut *self.taken;
        *all = *all + after - before;
        let own = by_namespace.entry(namespace.to_owned()).or_default();
        *own = *own + after - before;
        if *own == 0 {
            by_namespace.remove(namespace);
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
        self.claims.set(&stored, before.as_deref(), &release);
        for (object, declarations) in release.objects.iter() {
            for declared in declarations.latest.iter().chain(&declarations.baseline) {
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
            self.claims.remove(stored, &release);
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

    /// Adds the resources of a release to the counts, or subtracts them.
    fn count(&mut self, release: &Release, is_there: bool) {
        for (object, declarations) in release.objects.iter() {
            let declared = declarations.latest.iter().chain(&declarations.baseline);
            for resource in declared.filter_map(|declared| resource(object, declared)) {
                let count = self.declared.entry(resource).or_default();
                *count = if is_there { *count + 1 } else { count.saturating_sub(1) };
            }
        }
        if !is_there {
            self.declared.retain(|_, count| *count > 0);
        }
    }

    fn learn(&mut self, object: &ObjectId, declared: &Declared) {
        if let Some(plural) = &declared.plural {
            let key = (object.group.clone(), plural.to_string());
            let known = self.resources.entry(key).or_insert_with(|| (object.kind.clone(), None));
            // A release that was assembled before the kind was known well must
            // not hide its scale.
            if declared.scale.is_some() {
                *known = (object.kind.clone(), declared.scale.clone());
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

impl Named {
    /// Has the right history speak: one that is in force before one that is
    /// uninstalled, one that is believed, then the one in the release's own
    /// namespace.
    fn elect(&mut self) {
        self.histories.sort_by_cached_key(|it| {
            (is_over(it), !it.state.is_known(), it.storage != it.id.namespace, it.storage.clone())
        });
        match (self.rivals(), self.histories.first()) {
            (Some((first, second)), _) => self.speaker = Arc::new(contested(first, second)),
            (None, Some(only)) => self.speaker = Arc::clone(only),
            (None, None) => {}
        }
    }

    /// The first two histories by which the release is installed.
    fn rivals(&self) -> Option<(&Release, &Release)> {
        let mut rivals = self.histories.iter().filter(|it| !is_over(it));
        Some((rivals.next()?, rivals.next()?))
    }
}

fn is_over(release: &Release) -> bool {
    release.state.status == Status::Uninstalled
}

/// The release, marked invalid: with records in two namespaces its declarations cannot be determined.
fn contested(release: &Release, rival: &Release) -> Release {
    let reason = format!(
        "the release has records in namespace {} and in namespace {}: delete those that are not its own",
        release.storage, rival.storage
    );
    let invalid = Invalid { secret: rival.latest.secret.clone(), reason };
    Release { invalid: Some(release.invalid.clone().unwrap_or(invalid)), ..release.clone() }
}

fn resource(object: &ObjectId, declared: &Declared) -> Option<DeclaredResource> {
    Some(DeclaredResource {
        group: object.group.clone(),
        version: declared.served.to_string(),
        kind: object.kind.clone(),
        plural: declared.plural.as_ref()?.to_string(),
        scale: declared.scale.is_some(),
    })
}

#[cfg(test)]
mod tests;
