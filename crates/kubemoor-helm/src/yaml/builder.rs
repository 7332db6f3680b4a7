//! Builds a JSON value from the events of a YAML document, with Go's meaning of keys, merges and aliases. Every byte of a
//! value is charged to the [`Budget`] before it is allocated.

use std::collections::HashMap;

use granit_parser::{Event, ScalarStyle, StructureStyle, Tag};
use serde_json::{Map, Value};

use super::scalar::{YamlScalar, core_tag, resolve};
use super::{MAX_DEPTH, YamlError};

/// The memory of a value in a list that has grown to twice its need.
const NODE: usize = 2 * size_of::<Value>();

/// The memory of a map's first leaf: eleven slots, used or not.
const MAP: usize = 11 * ENTRY;

const ENTRY: usize = size_of::<String>() + size_of::<Value>();

/// The remaining memory for one manifest's objects, in bytes of their [`Value`]s. A few bytes of YAML can
/// expand to a kilobyte of maps, and an alias to everything that it refers to.
pub(crate) struct Budget(usize);

pub(super) struct Builder<'b> {
    open: Vec<OpenFrame>,
    /// The finished nodes that aliases may name; `None` while under construction.
    anchors: HashMap<usize, Option<YamlNode>>,
    budget: &'b mut Budget,
}

#[derive(Clone)]
struct YamlNode {
    content: NodeContent,
    weight: usize,
    /// Levels of nesting, from 1.
    height: usize,
}

#[derive(Clone)]
enum NodeContent {
    /// A scalar keeps its type until it is known to be a key or a value.
    Scalar(YamlScalar),
    Tree(Value),
}

/// A list or map that has not ended yet.
struct OpenFrame {
    content: OpenNode,
    flow: bool,
    anchor: usize,
    weight: usize,
    height: usize,
}

enum OpenNode {
    List(Vec<Value>),
    Map(Map<String, Value>, MapSlot),
}

enum MapSlot {
    Key,
    Value(String),
    Merge,
}

struct Role {
    /// `<<`, unquoted.
    merge: bool,
    alias: bool,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes `bytes`, or nothing and `None` when fewer are left.
    pub(crate) fn charge(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

impl<'b> Builder<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Self {
        Self { open: Vec::new(), anchors: HashMap::new(), budget }
    }

    /// Whether the next event stands within brackets or braces.
    pub(super) fn in_flow(&self) -> bool {
        self.open.last().is_some_and(|frame| frame.flow)
    }

    /// Takes the next event, which began at `line`. Returns the document's root once it is whole.
    pub(super) fn take(&mut self, event: Event<'_>, line: usize) -> Result<Option<Value>, YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let merge = is_merge(&text, style, tag.as_deref());
                let node = self.scalar(&text, style, tag.as_deref(), line)?;
                self.remember(anchor, &node, line)?;
                self.place(node, Role { merge, alias: false }, line)
            }
            Event::SequenceStart(style, anchor, _) => {
                self.open(OpenNode::List(Vec::new()), style, anchor, line)?;
                Ok(None)
            }
            Event::MappingStart(style, anchor, _) => {
                self.open(OpenNode::Map(Map::new(), MapSlot::Key), style, anchor, line)?;
                Ok(None)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(line),
            Event::Alias(anchor) => {
                let node = self.alias(anchor, line)?;
                self.place(node, Role { merge: false, alias: true }, line)
            }
            // Marks of the stream and of documents carry no content.
            _ => Ok(None),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        line: usize,
    ) -> Result<YamlNode, YamlError> {
        let weight = NODE + text.len();
        self.charge(weight, line)?;
        let scalar =
            resolve(text, style == ScalarStyle::Plain, tag).map_err(|tag| YamlError::Tag { line, tag })?;
        Ok(YamlNode { content: NodeContent::Scalar(scalar), weight, height: 1 })
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<YamlNode, YamlError> {
        let Some(Some(node)) = self.anchors.get(&anchor) else {
            return Err(YamlError::Cycle { line });
        };
        self.budget.charge(node.weight).ok_or(YamlError::Memory { line })?;
        Ok(node.clone())
    }

    fn open(
        &mut self,
        content: OpenNode,
        style: StructureStyle,
        anchor: usize,
        line: usize,
    ) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlError::Depth { line });
        }
        if let Some(OpenFrame { content: OpenNode::Map(_, MapSlot::Key), .. }) = self.open.last() {
            return Err(YamlError::Key { line });
        }
        let weight = match content {
            OpenNode::List(_) => NODE,
            OpenNode::Map(..) => NODE + MAP,
        };
        self.charge(weight, line)?;
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        let flow = style == StructureStyle::Flow;
        self.open.push(OpenFrame { content, flow, anchor, weight, height: 1 });
        Ok(())
    }

    fn close(&mut self, line: usize) -> Result<Option<Value>, YamlError> {
        let Some(frame) = self.open.pop() else { return Ok(None) };
        let value = match frame.content {
            OpenNode::List(items) => Value::Array(items),
            OpenNode::Map(entries, _) => Value::Object(entries),
        };
        let node = YamlNode { content: NodeContent::Tree(value), weight: frame.weight, height: frame.height };
        self.remember(frame.anchor, &node, line)?;
        self.place(node, Role { merge: false, alias: false }, line)
    }

    /// Keeps a copy of an anchored node for its aliases.
    fn remember(&mut self, anchor: usize, node: &YamlNode, line: usize) -> Result<(), YamlError> {
        if anchor != 0 {
            self.charge(node.weight, line)?;
            self.anchors.insert(anchor, Some(node.clone()));
        }
        Ok(())
    }

    /// Puts a finished node into the innermost open list or map; without one it is the document's root.
    fn place(&mut self, node: YamlNode, role: Role, line: usize) -> Result<Option<Value>, YamlError> {
        if self.open.len() + node.height > MAX_DEPTH {
            return Err(YamlError::Depth { line });
        }
        let Some(frame) = self.open.last_mut() else { return value(node, line).map(Some) };
        frame.weight += node.weight;
        frame.height = frame.height.max(node.height + 1);
        match &mut frame.content {
            OpenNode::List(items) => items.push(value(node, line)?),
            OpenNode::Map(entries, slot) => match std::mem::replace(slot, MapSlot::Key) {
                MapSlot::Key if role.merge => *slot = MapSlot::Merge,
                MapSlot::Key => {
                    frame.weight += ENTRY;
                    self.budget.charge(ENTRY).ok_or(YamlError::Memory { line })?;
                    *slot = MapSlot::Value(key(node, line)?);
                }
                MapSlot::Value(key) => {
                    entries.insert(key, value(node, line)?);
                }
                MapSlot::Merge => merge(entries, value(node, line)?, role.alias, line)?,
            },
        }
        Ok(None)
    }

    fn charge(&mut self, bytes: usize, line: usize) -> Result<(), YamlError> {
        self.budget.charge(bytes).ok_or(YamlError::Memory { line })
    }
}

/// goyaml.v2 merges where it meets `<<`, over the keys before it; among several maps the first takes
/// precedence. An alias may refer to a map, but not to a list of maps.
fn merge(entries: &mut Map<String, Value>, source: Value, alias: bool, line: usize) -> Result<(), YamlError> {
    match source {
        Value::Object(map) => entries.extend(map),
        Value::Array(maps) if !alias => {
            for map in maps.into_iter().rev() {
                let Value::Object(map) = map else { return Err(YamlError::Merge { line }) };
                entries.extend(map);
            }
        }
        _ => return Err(YamlError::Merge { line }),
    }
    Ok(())
}

fn is_merge(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> bool {
    text == "<<"
        && match tag {
            None => style == ScalarStyle::Plain,
            Some(tag) => tag.parts() == ("", "!") || core_tag(tag).is_some_and(|kind| kind == "merge"),
        }
}

fn value(node: YamlNode, line: usize) -> Result<Value, YamlError> {
    match node.content {
        NodeContent::Tree(value) => Ok(value),
        NodeContent::Scalar(scalar) => scalar.into_value().ok_or(YamlError::NotFinite { line }),
    }
}

fn key(node: YamlNode, line: usize) -> Result<String, YamlError> {
    match node.content {
        NodeContent::Tree(_) => None,
        NodeContent::Scalar(scalar) => scalar.into_key(),
    }
    .ok_or(YamlError::Key { line })
}
