//! The parts of OpenAPI documents that are read.
//!
//! Entry points: `V3`, `V2`, `Node`. Invariant: everything else is skipped without being stored, because a
//! whole document has megabytes.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// An OpenAPI v3 document.
#[derive(Deserialize)]
pub(super) struct V3 {
    #[serde(default)]
    pub(super) components: Components,
}

/// The definitions of an OpenAPI v3 document.
#[derive(Default, Deserialize)]
pub(super) struct Components {
    #[serde(default)]
    pub(super) schemas: BTreeMap<String, Node>,
}

/// An OpenAPI v2 document.
#[derive(Deserialize)]
pub(super) struct V2 {
    #[serde(default)]
    pub(super) definitions: BTreeMap<String, Node>,
}

/// One schema. Fields of another type than expected read as absent: aggregated
/// API servers publish what they like.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    #[serde(rename = "$ref", deserialize_with = "text")]
    pub(super) reference: Option<String>,
    #[serde(rename = "type", deserialize_with = "text")]
    pub(super) ty: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) format: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(super) pattern: Option<String>,
    pub(super) properties: Option<BTreeMap<String, Node>>,
    pub(super) items: Option<OrFlag>,
    #[serde(rename = "additionalProperties")]
    pub(super) additional: Option<OrFlag>,
    #[serde(rename = "allOf")]
    pub(super) all_of: Option<Vec<Node>>,
    pub(super) default: Option<Value>,
    #[serde(rename = "x-kubernetes-list-type", deserialize_with = "text")]
    pub(super) list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub(super) list_keys: Option<Vec<String>>,
    #[serde(rename = "x-kubernetes-map-type", deserialize_with = "text")]
    pub(super) map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key", deserialize_with = "text")]
    pub(super) merge_key: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy", deserialize_with = "text")]
    pub(super) patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-int-or-string")]
    pub(super) int_or_string: Option<bool>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    pub(super) keeps_unknown: Option<bool>,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    pub(super) kinds: Option<Vec<Kind>>,
}

/// A group, version and kind as documents spell it.
#[derive(Deserialize)]
pub(super) struct Kind {
    #[serde(default)]
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

/// A schema, or `true` for any and `false` for none.
pub(super) enum OrFlag {
    /// Anything, or nothing.
    Flag(bool),
    /// A schema.
    Node(Box<Node>),
}

impl<'de> Deserialize<'de> for OrFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = OrFlag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a schema or a boolean")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<OrFlag, E> {
                Ok(OrFlag::Flag(flag))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrFlag, A::Error> {
                let node = Node::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(OrFlag::Node(Box::new(node)))
            }

            // A schema per position: nothing that Kubernetes knows.
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OrFlag, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(OrFlag::Flag(true))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A text, or `None` for any other value.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(text),
        _ => None,
    })
}
