//! The program that upgrades a release, for the next step that a message names.
//!
//! Entry points: [`Owner::of`], [`LiveWriters`] for who wrote the live object. Invariant: the manifest counts first, then
//! who wrote last. Every user who changes an object can write its labels and choose a field manager, so that these only
//! choose the words of a message. Must not judge.

use jiff::Timestamp;
use serde_json::Value;

use kubemoor_declare::fields::Fields;
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::outline::Excerpt;
use kubemoor_helm::release::{Head, Writer};

/// The labels by which Flux marks what a HelmRelease installs.
const FLUX: [&str; 2] = ["helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace"];

/// How Argo CD marks what an Application installs: as an annotation
/// `APPLICATION:GROUP/KIND:NAMESPACE/NAME`, or as a label.
const ARGO: [&str; 2] = ["argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"];

/// Argo CD's own default label, which it also writes over the chart's.
const COMMON: &str = "app.kubernetes.io/instance";

/// The longest name of an Application.
const NAME: usize = 253;

/// Who upgrades a release, as its manifest, its record and the live object say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A user with the Helm command line.
    Helm,
    /// Terraform, by its provider for Helm.
    Terraform,
    /// Flux, for a HelmRelease; `None` if it is not known which one.
    Flux(Option<ReleaseId>),
    /// Argo CD, for an Application; `None` if it is not known which one.
    Argo(Option<String>),
}

/// Who wrote a live object, as far as its metadata tell.
#[derive(Clone, Debug, Default)]
pub struct LiveWriters<'a> {
    /// `None` where the object tells none.
    managers: Option<Vec<Manager>>,
    metadata: Option<Excerpt<'a>>,
}

/// A program that wrote the object itself.
#[derive(Clone, Debug)]
struct Manager {
    name: String,
    time: String,
}

impl Owner {
    /// The owner of the release of an object with these declared fields, where `record` is the latest record.
    pub fn of<'l>(fields: &Fields, record: Option<&Head>, live: impl FnOnce() -> LiveWriters<'l>) -> Self {
        let text = |map: &str, name: &str| match fields.get(&["metadata", map, name]) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let flux = |map| Some((text(map, FLUX[0])?, text(map, FLUX[1])?));
        if let Some((name, namespace)) = flux("labels").or_else(|| flux("annotations")) {
            return Self::Flux(Some(ReleaseId { namespace: namespace.into(), name: name.into() }));
        }
        let tracked = text("annotations", ARGO[0]);
        let tracked = tracked.and_then(|id| Some(id.split_once(':')?.0.to_owned()));
        if let Some(application) = tracked.or_else(|| text("labels", ARGO[1])) {
            return Self::Argo(Some(application));
        }
        let live = live();
        let newer = live.newest().filter(|(time, _)| record.is_none_or(|record| *time > record.touched));
        let writer = record.map(|record| record.writer).unwrap_or_default();
        match newer.map_or(writer, |(_, writer)| writer) {
            Writer::Flux => Self::Flux(None),
            Writer::Argo => Self::Argo(live.application()),
            Writer::Terraform => Self::Terraform,
            Writer::Other => Self::Helm,
        }
    }

    pub(super) fn removal(&self, release: &ReleaseId) -> String {
        let ReleaseId { namespace, name } = release;
        match self {
            Self::Helm => format!(
                "To remove it, remove it from the chart and upgrade, or uninstall the release: helm uninstall {name} -n {namespace}"
            ),
            Self::Terraform => format!(
                "To remove it, remove it from the chart or its values in the Terraform resource helm_release of release {name:?} and run: terraform apply"
            ),
            Self::Flux(found) => format!(
                "To remove it, remove it from the chart or its values in {}: Flux upgrades the release.",
                helm_release(found.as_ref(), name)
            ),
            Self::Argo(found) => format!(
                "To remove it, remove it from the chart or its values in {}.",
                application(found.as_deref())
            ),
        }
    }
}

impl<'a> LiveWriters<'a> {
    /// Those of a live object.
    pub fn of(object: &Excerpt<'a>) -> Self {
        let Some(metadata) = object.at(&["metadata"]) else { return Self::default() };
        let manager = |entry: &Excerpt<'_>| {
            let [name, time, subresource] = entry.texts(&[], ["manager", "time", "subresource"]);
            Some(Manager { name: name?, time: time? }).filter(|_| subresource.is_none_or(|it| it.is_empty()))
        };
        let managers = metadata.at(&["managedFields"]).and_then(|list| list.items());
        let managers = managers.map(|entries| entries.iter().filter_map(manager).collect());
        Self { managers, metadata: Some(metadata) }
    }

    /// Those of an object in a review, before the edit or else after it: some API servers send no managers of the object
    /// before.
    pub(super) fn of_review(objects: [Option<&Excerpt<'a>>; 2]) -> Self {
        let found = objects.into_iter().flatten().map(Self::of).find(|writers| writers.managers.is_some());
        found.unwrap_or_default()
    }

    /// The last program among those that upgrade releases for people, and when it wrote.
    fn newest(&self) -> Option<(Timestamp, Writer)> {
        let known = self.managers.iter().flatten().filter_map(|manager| match Writer::of(&manager.name) {
            writer @ (Writer::Flux | Writer::Argo) => Some((manager.time.parse().ok()?, writer)),
            Writer::Terraform | Writer::Other => None,
        });
        known.max_by_key(|(time, _)| *time)
    }

    /// The Application of Argo CD that the object belongs to, by the surest of its marks.
    fn application(&self) -> Option<String> {
        let metadata = self.metadata.as_ref()?;
        let [tracked] = metadata.texts(&["annotations"], [ARGO[0]]);
        let tracked = tracked.and_then(|id| Some(id.split_once(':')?.0.to_owned()));
        let labels = metadata.texts(&["labels"], [ARGO[1], COMMON]);
        let is_name = |name: &String| {
            let is_letter = |c: u8| c.is_ascii_alphanumeric() || b"-._/".contains(&c);
            !name.is_empty() && name.len() <= NAME && name.bytes().all(is_letter)
        };
        tracked.into_iter().chain(labels.into_iter().flatten()).find(is_name)
    }
}

/// A HelmRelease in words; without its name, that of the `release`.
pub(super) fn helm_release(found: Option<&ReleaseId>, release: &str) -> String {
    match found {
        Some(ReleaseId { namespace, name }) => format!("HelmRelease {name:?} in namespace {namespace:?}"),
        None => format!("the HelmRelease of release {release:?} (kubectl get helmreleases -A)"),
    }
}

/// An Application in words.
pub(super) fn application(found: Option<&str>) -> String {
    match found {
        Some(name) => format!("Argo CD Application {name:?}"),
        None => "the Argo CD Application of this object (kubectl get applications.argoproj.io -A)".to_owned(),
    }
}

#[cfg(test)]
mod tests;
