//! Which releases declare an object, found in constant time.
//!
//! Entry point: [`Index`], fed with [`Release`] values. Invariant: of several
//! claims on one object the one seen first stays first. Holds no client and
//! starts no task.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::release::{Declared, Release};
use crate::declaration::path::Path;
use crate::model::{ObjectId, ReleaseId};

/// All releases, and the objects that they declare.
#[derive(Debug, Default)]
pub struct Index {
    releases: HashMap<ReleaseId, Arc<Release>>,
    claims: HashMap<ObjectId, Vec<Arc<Release>>>,
    /// By group and plural: the kind, and where `scale` keeps the replicas.
    resources: HashMap<(String, String), (String, Option<Path>)>,
}

/// A resource that some release declares, in the version in which it does.
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
    /// Puts a release in, in place of its earlier self.
    pub fn set(&mut self, release: Release) {
        let release = Arc::new(release);
        let before = self.releases.insert(release.id.clone(), Arc::clone(&release));
        let unchanged = |object: &ObjectId| release.objects.contains_key(object);
        for object in
            before.iter().flat_map(|before| before.objects.keys()).filter(|object| !unchanged(object))
        {
            self.drop_claim(object, &release.id);
        }
        for (object, declarations) in release.objects.iter() {
            for declared in declarations.latest.iter().chain(&declarations.baseline) {
                self.learn(object, declared);
            }
            match self.claims.get_mut(object) {
                Some(claims) => match claims.iter_mut().find(|claim| claim.id == release.id) {
                    Some(claim) => *claim = Arc::clone(&release),
                    None => claims.push(Arc::clone(&release)),
                },
                None => drop(self.claims.insert(object.clone(), vec![Arc::clone(&release)])),
            }
        }
    }

    /// Takes a release out.
    pub fn remove(&mut self, id: &ReleaseId) {
        if let Some(release) = self.releases.remove(id) {
            for object in release.objects.keys() {
                self.drop_claim(object, id);
            }
        }
    }

    /// The releases that declare `object`, the one seen first in front.
    pub fn claims(&self, object: &ObjectId) -> &[Arc<Release>] {
        self.claims.get(object).map(Vec::as_slice).unwrap_or_default()
    }

    /// A release.
    pub fn release(&self, id: &ReleaseId) -> Option<&Arc<Release>> {
        self.releases.get(id)
    }

    /// All releases, in no order.
    pub fn releases(&self) -> impl Iterator<Item = &Arc<Release>> {
        self.releases.values()
    }

    /// How many objects are declared.
    pub fn objects(&self) -> usize {
        self.claims.len()
    }

    /// The kind that a declared resource such as `deployments` holds, and
    /// where its `scale` subresource keeps the replicas.
    pub fn kind_of_resource(&self, group: &str, plural: &str) -> Option<(&str, Option<&Path>)> {
        let (kind, scale) = self.resources.get(&(group.to_owned(), plural.to_owned()))?;
        Some((kind, scale.as_ref()))
    }

    /// The resources that releases declare. Kinds that nobody serves yet are
    /// left out.
    pub fn resources(&self) -> BTreeSet<DeclaredResource> {
        let mut resources = BTreeSet::new();
        for release in self.releases.values() {
            for (object, declarations) in release.objects.iter() {
                for declared in declarations.latest.iter().chain(&declarations.baseline) {
                    resources.extend(resource(object, declared));
                }
            }
        }
        resources
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

    fn drop_claim(&mut self, object: &ObjectId, id: &ReleaseId) {
        if let Some(claims) = self.claims.get_mut(object) {
            claims.retain(|claim| claim.id != *id);
            if claims.is_empty() {
                self.claims.remove(object);
            }
        }
    }
}

fn resource(object: &ObjectId, declared: &Declared) -> Option<DeclaredResource> {
    Some(DeclaredResource {
        group: object.group.clone(),
        version: declared.version.to_string(),
        kind: object.kind.clone(),
        plural: declared.plural.as_ref()?.to_string(),
        scale: declared.scale.is_some(),
    })
}

#[cfg(test)]
mod tests;
