//! What the next Helm upgrade meets, and what the last ones left behind, object by object: for `kubemoor forecast`, `diff`
//! and the page of a release.

use serde::Serialize;
use serde_json::Value;

use super::reading::Reader;
use kubemoor_declare::model::ObjectId;
use kubemoor_helm::left_behind::{self, is_secret};
use kubemoor_helm::record::Status;
use kubemoor_helm::release::Release;
use kubemoor_verdict::ownership::Conflict;

// A conflict of the next upgrade. Its documentation in the schema is that of the conflict.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectConflict {
    pub object: ObjectId,
    #[serde(flatten)]
    pub conflict: Conflict,
}

/// A key that a chart dropped from a Secret's `stringData`, and that no upgrade removes.
#[derive(Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftBehind {
    pub object: ObjectId,
    /// The key, below `/data`.
    pub path: String,
    /// The last revision that declared it.
    pub revision: u64,
}

/// What upgrades left behind in these live objects. Earlier records are read only where a Secret holds a key that the
/// release does not declare.
pub async fn left_behind(
    reader: &Reader,
    release: &Release,
    living: Vec<(&ObjectId, &Value)>,
) -> Vec<LeftBehind> {
    let has_others = |(object, live): &(&ObjectId, &Value)| {
        let Some(declared) = release.declared(object).filter(|_| is_secret(object)) else { return false };
        let fields = declared.fields();
        let is_declared =
            |key: &str| ["data", "stringData"].into_iter().any(|map| fields.get(&[map, key]).is_some());
        let data = live.get("data").and_then(Value::as_object);
        data.is_some_and(|data| data.keys().any(|key| !is_declared(key)))
    };
    let secrets: Vec<_> = living.into_iter().filter(has_others).collect();
    if secrets.is_empty() || release.state.revision < 2 || release.state.status != Status::Deployed {
        return Vec::new();
    }
    let sources = reader.sources(release, &mut Vec::new()).await;
    let of_object = |(object, live): (&ObjectId, &Value)| {
        left_behind::left_behind(&sources, object, live)
            .into_iter()
            .map(|it| LeftBehind { object: object.clone(), path: it.path.to_string(), revision: it.revision })
            .collect::<Vec<_>>()
    };
    let mut found: Vec<_> = secrets.into_iter().flat_map(of_object).collect();
    found.sort_by(|one, other| (&one.object, &one.path).cmp(&(&other.object, &other.path)));
    found
}

impl LeftBehind {
    /// The key in a sentence, and the command that removes it.
    pub fn text(&self) -> String {
        let Self { object, path, revision } = self;
        let place =
            object.namespace.as_ref().map_or_else(String::new, |namespace| format!(" -n {namespace}"));
        format!(
            "{object} still holds {path}, which revision {revision} set by `stringData` and the chart no longer declares: \
             no upgrade removes it. To remove it: kubectl patch secret {}{place} --type json -p \
             '[{{\"op\": \"remove\", \"path\": \"{path}\"}}]'",
            object.name,
        )
    }
}
