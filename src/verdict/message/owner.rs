//! The program that upgrades a release, for the next step that a message names.
//!
//! Entry points: [`Owner::of`], [`LiveWriters`] for who wrote the live object. Invariant: the manifest counts first, then
//! who wrote last. Every user who changes an object can write its labels and choose a field manager, so that these only
//! choose the words of a message. Must not judge.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::declaration::fields::Fields;
use crate::helm::release::{Head, Writer};
use crate::model::ReleaseId;

/// The labels by which Flux marks what a HelmRelease installs.
const FLUX: [&str; 2] = ["helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace"];

/// How Argo CD marks what an Application installs: as an annotation
/// `APPLICATION:GROUP/KIND:NAMESPACE/NAME`, or as a label.
const ARGO: [&str; 2] = ["argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"];

/// The longest object in a review, in bytes, in which writers are looked for. No database keeps a longer one.
const LONGEST: usize = 4 << 20;

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
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LiveWriters {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    managed_fields: Option<Vec<Managed>>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Managed {
    manager: String,
    subresource: String,
    time: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "argocd.argoproj.io/instance")]
    instance: String,
    /// Argo CD's own default, which it also writes over the chart's.
    #[serde(rename = "app.kubernetes.io/instance")]
    common: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "argocd.argoproj.io/tracking-id")]
    tracking: String,
}

impl Owner {
    /// The owner of the release of an object with these declared fields, where `record` is the latest record.
    pub fn of(fields: &Fields, record: Option<&Head>, live: impl FnOnce() -> LiveWriters) -> Self {
        let text = |map: &str, name: &str| match fields.get(&["metadata", map, name]) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let flux = |map| Some((text(map, FLUX[0])?, text(map, FLUX[1])?));
        if let Some((name, namespace)) = flux("labels").or_else(|| flux("annotations")) {
            return Self::Flux(Some(ReleaseId { namespace, name }));
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

impl LiveWriters {
    /// Those of a live object.
    pub fn of(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }

    /// Those of an object in a review, before the edit or else after it: some API servers send no managers of the object
    /// before.
    pub fn of_review(texts: [&str; 2]) -> Self {
        let read = |text: &str| -> Option<Self> {
            let writers: Self = serde_json::from_str(text).ok()?;
            writers.metadata.managed_fields.is_some().then_some(writers)
        };
        let found = texts.into_iter().filter(|text| text.len() <= LONGEST).find_map(read);
        found.unwrap_or_default()
    }

    /// The last program among those that upgrade releases for people, and when it wrote.
    fn newest(&self) -> Option<(Timestamp, Writer)> {
        let entries = self.metadata.managed_fields.iter().flatten().filter(|it| it.subresource.is_empty());
        let known = entries.filter_map(|entry| match Writer::of(&entry.manager) {
            writer @ (Writer::Flux | Writer::Argo) => Some((entry.time.parse().ok()?, writer)),
            Writer::Terraform | Writer::Other => None,
        });
        known.max_by_key(|(time, _)| *time)
    }

    /// The Application of Argo CD that the object belongs to.
    fn application(&self) -> Option<String> {
        let Metadata { labels, annotations, .. } = &self.metadata;
        let tracked = annotations.iter().filter_map(|it| Some(it.tracking.split_once(':')?.0));
        let labelled = labels.iter().flat_map(|it| [it.instance.as_str(), it.common.as_str()]);
        let is_name = |name: &&str| {
            let is_letter = |c: u8| c.is_ascii_alphanumeric() || b"-._/".contains(&c);
            !name.is_empty() && name.len() <= NAME && name.bytes().all(is_letter)
        };
        tracked.chain(labelled).find(is_name).map(str::to_owned)
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
