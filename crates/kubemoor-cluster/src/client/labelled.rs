//! Objects with Helm's label, and the release that each one names: finds releases without a record in the
//! cluster.
//!
//! Entry point: [`named`]. Invariant: metadata only, in bounded pages. A name on an object is used only if a
//! release can have it.

use std::collections::BTreeMap;

use super::call::CallError;
use super::pages::Pages;
use super::resource::{Meta, Resource};
use kubemoor_declare::model::{self, MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE, ReleaseId};

/// The most pages of one kind that are read.
const PAGES: usize = 40;

/// The longest name that is believed: that of an object of the API.
const LONGEST: usize = 253;

/// The annotation of hooks, which no release declares.
const HOOK: &str = "helm.sh/hook";

/// Argo CD's annotation, as `APPLICATION:GROUP/KIND:NAMESPACE/NAME`; the
/// application may be `NAMESPACE_NAME`.
const ARGO_TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// Argo CD's label, where it tracks by one of its own.
const ARGO_INSTANCE: &str = "argocd.argoproj.io/instance";

/// The label by which charts name their release, and Argo CD its application.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The program that wrote an object, as far as its metadata shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Helm: its annotations name the release.
    Helm,
    /// Argo CD: its label or annotation names the application.
    ArgoCd,
    /// Unknown: a chart's own labels name the release, and Helm's annotations are absent.
    Unknown,
}

/// The releases that objects of a kind say they are of.
#[derive(Debug, Default)]
pub struct Named {
    /// Each with the surest of its origins.
    pub releases: BTreeMap<ReleaseId, Origin>,
    /// Whether there are more objects than were read.
    pub cut: bool,
}

/// The releases that the objects of `resource` in `namespace` (`None`: in all)
/// which carry Helm's label say they are of.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn named(
    client: &kube::Client,
    resource: &Resource,
    namespace: Option<&str>,
) -> Result<Named, CallError> {
    let (key, value) = MANAGED_BY;
    let mut pages = Pages::metadata(client, resource, namespace)?.labelled(&format!("{key}={value}"));
    let mut named = Named::default();
    for _ in 0..PAGES {
        let Some(page) = pages.next().await? else { break };
        for (release, origin) in page.into_items().into_iter().filter_map(|item| release(&item.metadata)) {
            let known = named.releases.entry(release).or_insert(origin);
            *known = origin.min(*known);
        }
    }
    named.cut = !pages.is_over();
    Ok(named)
}

/// The release that an object names; `None` for hooks, and for objects without a release name.
fn release(meta: &Meta) -> Option<(ReleaseId, Origin)> {
    let text = |map: &Option<BTreeMap<String, String>>, key: &str| map.as_ref()?.get(key).cloned();
    let annotation = |key: &str| text(&meta.annotations, key);
    let label = |key: &str| text(&meta.labels, key);
    if annotation(HOOK).is_some() {
        return None;
    }
    let here = meta.namespace.clone();
    let tracked = annotation(ARGO_TRACKING).as_deref().and_then(application);
    let (namespace, name, origin) = match (annotation(RELEASE_NAME), tracked.or_else(|| label(ARGO_INSTANCE)))
    {
        (Some(name), _) => (annotation(RELEASE_NAMESPACE).or(here)?, name, Origin::Helm),
        (None, Some(name)) => (here?, name, Origin::ArgoCd),
        (None, None) => (here?, label(INSTANCE)?, Origin::Unknown),
    };
    let is_name = name.len() <= LONGEST && name.split('.').all(model::is_dns_label);
    (is_name && model::is_dns_label(&namespace))
        .then_some((ReleaseId { namespace: namespace.into(), name: name.into() }, origin))
}

/// The application's name in a tracking annotation.
fn application(text: &str) -> Option<String> {
    let (application, _) = text.split_once(':')?;
    let name = application.rsplit_once('_').map_or(application, |(_, name)| name);
    Some(name.to_owned())
}

#[cfg(test)]
mod tests;
