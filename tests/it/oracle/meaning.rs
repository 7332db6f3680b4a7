//! When two objects mean the same though they differ to the letter.

use serde_json::Value;

use super::edits::QUANTITIES as SPELLINGS;

/// Lists whose elements have keys, or are a set: what their order is means nothing. Older servers leave it as an
/// editor made it, newer ones restore the manifest's.
const UNORDERED: [&str; 11] = [
    "containers",
    "volumes",
    "ports",
    "imagePullSecrets",
    "secrets",
    "volumeMounts",
    "topologySpreadConstraints",
    "hostAliases",
    "parts",
    "tags",
    "metrics",
];

/// Lists with keys whose order has a meaning: the guard restores it, whatever the server.
const ORDERED: [&str; 2] = ["env", "initContainers"];

/// Maps whose values are quantities, which some kinds keep as they are spelled.
const QUANTITIES: [&str; 6] = ["hard", "requests", "limits", "default", "defaultRequest", "max"];

/// Fields that are quantities.
const SPELLED: [&str; 3] = ["averageValue", "divisor", "sizeLimit"];

/// Whether two objects of one kind mean the same.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    match one["kind"].as_str() {
        // The account's own list is one value, as the list of a pod is not.
        Some("ServiceAccount") if one["imagePullSecrets"] != other["imagePullSecrets"] => {
            let is_longer = is_continued(&one["imagePullSecrets"], &other["imagePullSecrets"]);
            is_longer && is_same_field("", &without_pull_secrets(one), &without_pull_secrets(other))
        }
        Some("Gadget") => is_same_field("", &without_voids(one), &without_voids(other)),
        _ => is_same_field("", one, other),
    }
}

/// What the guard lets through on purpose: the cluster's own controllers append to the credentials of an account.
/// `edited` is the longer one.
fn is_continued(edited: &Value, applied: &Value) -> bool {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    items(edited).starts_with(&items(applied))
}

fn without_pull_secrets(account: &Value) -> Value {
    let mut account = account.clone();
    account.as_object_mut().unwrap().remove("imagePullSecrets");
    account
}

/// What the guard lets through on purpose: clients that know the types of a custom kind leave out what is null, and
/// lists and maps that are empty. An empty struct stays.
fn without_voids(value: &Value) -> Value {
    const MAPS: [&str; 4] = ["colours", "marks", "labels", "annotations"];
    let is_void = |name: &str, value: &Value| {
        value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || (MAPS.contains(&name) && value.as_object().is_some_and(serde_json::Map::is_empty))
    };
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), without_voids(value)))
            .filter(|(name, value)| !is_void(name, value))
            .collect(),
        Value::Array(items) => items.iter().map(without_voids).collect(),
        _ => value.clone(),
    }
}

fn is_same_field(name: &str, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let is_quantity = QUANTITIES.contains(&name);
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    let same = |other| {
                        is_quantity && is_same_quantity(value, other) || is_same_field(name, value, other)
                    };
                    other.get(name).is_some_and(same)
                })
        }
        // NetworkPolicies keep these as one value, ports and all.
        (Value::Array(one), Value::Array(other)) if ["ingress", "egress"].contains(&name) => one == other,
        (Value::Array(one), Value::Array(other)) if UNORDERED.contains(&name) || ORDERED.contains(&name) => {
            let has =
                |items: &[Value], item: &Value| items.iter().any(|other| is_same_field("", item, other));
            one.len() == other.len()
                && one.iter().all(|item| has(other, item))
                && other.iter().all(|item| has(one, item))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same_field("", one, other))
        }
        (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text)) => {
            name == "port" && *text == number.to_string()
        }
        (Value::String(_), Value::String(_)) if SPELLED.contains(&name) && is_same_quantity(one, other) => {
            true
        }
        // The server chooses one anew where none is declared.
        (Value::Number(_), Value::Number(_)) if name == "nodePort" => true,
        _ => one == other,
    }
}

fn is_same_quantity(one: &Value, other: &Value) -> bool {
    let spelled = |value: &Value| value.as_str().map(str::to_owned);
    let Some((one, other)) = spelled(one).zip(spelled(other)) else { return false };
    SPELLINGS.iter().any(|same| same.contains(&one.as_str()) && same.contains(&other.as_str()))
}

/// Whether elements that both objects have stand in another order where that has a meaning.
pub(super) fn is_reordered(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().any(|(name, value)| {
            let Some(other) = after.get(name) else { return false };
            ORDERED.contains(&name.as_str()) && common(value, other) != common(other, value)
                || is_reordered(value, other)
        }),
        (Value::Array(before), Value::Array(after)) => before.iter().any(|item| {
            let same = |other: &&Value| item.get("name").is_some() && other.get("name") == item.get("name");
            after.iter().find(same).is_some_and(|other| is_reordered(item, other))
        }),
        _ => false,
    }
}

/// The names of the elements that the other list has as well, in their order.
fn common<'v>(list: &'v Value, other: &Value) -> Vec<&'v Value> {
    let names = |list: &'v Value| list.as_array().into_iter().flatten().filter_map(|item| item.get("name"));
    let others: Vec<&Value> =
        other.as_array().into_iter().flatten().filter_map(|item| item.get("name")).collect();
    names(list).filter(|name| others.contains(name)).collect()
}
