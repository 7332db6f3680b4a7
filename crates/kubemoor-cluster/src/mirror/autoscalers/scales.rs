//! The content of one autoscaler: its workload and its range.
//!
//! Entry points: [`read`], [`Scales::autoscaler`]. Invariant: an owner is trusted only under the name that
//! KEDA gives its autoscalers, and for the workload in the release's declaration. Pure.

use serde::Deserialize;
use serde_json::Value;

use super::{GROUP, KEDA, KIND};
use kubemoor_declare::model::{Autoscaler, Gvk, ObjectId};
use kubemoor_helm::release::Release;

/// The field in which a ScaledObject names KEDA's autoscaler.
const NAMED: [&str; 4] = ["spec", "advanced", "horizontalPodAutoscalerConfig", "name"];

/// What one autoscaler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scales {
    /// The workload that it scales.
    pub target: ObjectId,
    pub(super) minimum: i32,
    pub(super) maximum: i32,
    /// The object that made it.
    pub(super) maker: Option<ObjectId>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(default)]
    owner_references: Vec<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    scale_target_ref: Reference,
    min_replicas: Option<i32>,
    max_replicas: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
    #[serde(default)]
    controller: Option<bool>,
}

impl Scales {
    /// The range of the autoscaler at `id`, where `declaring` returns the releases that declare an object.
    pub fn autoscaler<'r>(
        &self,
        id: &ObjectId,
        declaring: impl Fn(&ObjectId) -> Vec<&'r Release>,
    ) -> Autoscaler {
        let maker = self.maker.as_ref().filter(|maker| maker.group == KEDA);
        let names = |release: &&Release| {
            maker.is_some_and(|maker| {
                named_by(release, maker) == id.name && scales(release, maker, &self.target)
            })
        };
        let made = maker.map(&declaring).unwrap_or_default().into_iter().filter(names);
        Autoscaler {
            minimum: self.minimum,
            maximum: self.maximum,
            by_keda: maker.is_some(),
            declared_by: declaring(id).into_iter().chain(made).map(|release| release.id.clone()).collect(),
        }
    }
}

/// An autoscaler's identity and content; `None` if it is malformed.
pub fn read(object: &Value) -> Option<(ObjectId, Scales)> {
    let Object { metadata, spec } = Object::deserialize(object).ok()?;
    let place = |reference: Reference| ObjectId {
        group: Gvk::from_api_version(&reference.api_version, &reference.kind).group.into(),
        kind: reference.kind.into(),
        namespace: Some(metadata.namespace.clone().into()),
        name: reference.name.into(),
    };
    let maker = metadata.owner_references.into_iter().find(|owner| owner.controller == Some(true)).map(place);
    let scales = Scales {
        target: place(spec.scale_target_ref),
        minimum: spec.min_replicas.unwrap_or(1),
        maximum: spec.max_replicas,
        maker,
    };
    let id = ObjectId {
        group: GROUP.into(),
        kind: KIND.into(),
        namespace: Some(metadata.namespace.clone().into()),
        name: metadata.name.into(),
    };
    Some((id, scales))
}

/// Whether `release` declares a ScaledObject for this workload.
fn scales(release: &Release, scaled: &ObjectId, workload: &ObjectId) -> bool {
    let Some(declared) = release.declared(scaled) else { return false };
    let is = |path: &[&str], wanted: &str, default: &str| match declared.fields().get(path) {
        Some(Value::String(text)) => text == wanted,
        _ => default == wanted,
    };
    is(&["spec", "scaleTargetRef", "name"], &workload.name, "")
        && is(&["spec", "scaleTargetRef", "kind"], &workload.kind, "Deployment")
}

/// The name of the autoscaler that KEDA makes for a ScaledObject, as `release`
/// declares that.
fn named_by(release: &Release, scaled: &ObjectId) -> String {
    let name = release.declared(scaled).and_then(|declared| declared.fields().get(&NAMED));
    match name {
        Some(Value::String(name)) if !name.is_empty() => name,
        _ => format!("keda-hpa-{}", scaled.name),
    }
}
