//! Keyed lists before and after an update: only the elements that differ are read.
//!
//! Entry point: `Keep::lists`. Invariant: elements are left out of both lists only where every place holds
//! the same keys before and after, and no remaining element shares its keys with a left-out one. So the order
//! and the number of elements with any keys compare like those of the whole lists. Where the text does not
//! show that, there is no answer.

use memchr::memchr;
use memchr::memmem::Finder;
use serde_json::Value;
use smallvec::SmallVec;

use super::{Keep, whole};
use crate::fields::{Element, Elements};
use crate::outline::Part;
use crate::schema::{ListKey, Types};

/// Pairs of elements that are compared; of longer lists there is no answer.
const MAX_PAIRS: usize = 1 << 12;

/// The maximum number of an element's keys that are compared by their text.
const MAX_KEYS: usize = 4;

/// The changed elements that most updates have at most.
const FEW: usize = 2;

/// The digits of a number that is the same only if its text is.
const MAX_DIGITS: usize = 15;

/// The keys of an element as they are spelled, in the order of the list's;
/// behind the last one empty.
type Spelled<'t> = [&'t str; MAX_KEYS];

impl<'f> Keep<'f> {
    pub(super) fn lists(&self, old: Part<'_, '_>, new: Part<'_, '_>) -> Option<(Value, Value)> {
        let declared = self.elements();
        let Some((first, types)) = declared.first() else {
            return Some((Value::Array(Vec::new()), Value::Array(Vec::new())));
        };
        let keys = first.keys(types);
        if declared.iter().any(|(elements, types)| elements.keys(types) != keys) {
            return None;
        }
        let pairs = old.items_in_step(new)?;
        let count = pairs.iter().filter(|(.., same)| !same).count();
        let others = declared.iter().map(|(elements, _)| elements.items.len()).sum::<usize>() + pairs.len();
        if count.saturating_mul(others) > MAX_PAIRS {
            return None;
        }
        let mut changed = Vec::with_capacity(count);
        for (old, new, _) in pairs.iter().filter(|(.., same)| !same) {
            let own = spelled(*old, keys).filter(|own| spelled(*new, keys) == Some(*own))?;
            changed.push((own, *old, *new));
        }
        let literals: SmallVec<[Option<Finder<'_>>; FEW]> =
            changed.iter().map(|(own, ..)| literal(keys, own)).collect();
        for (same, ..) in pairs.iter().filter(|(.., same)| *same) {
            if literals.iter().all(|literal| lacks(same.text(), literal.as_ref())) {
                continue;
            }
            let own = spelled(*same, keys)?;
            if changed.iter().any(|(keys, ..)| *keys == own) {
                return None;
            }
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (own, old, new) in changed {
            let Some(keep) = element(&declared, keys, &own)? else { continue };
            let keep = Keep { family: self.family, union: self.union, ..keep };
            let (old, new) = if keep.is_whole() { (whole(old)?, whole(new)?) } else { keep.pair(old, new)? };
            before.push(old);
            after.push(new);
        }
        Some((Value::Array(before), Value::Array(after)))
    }
}

/// The fields to keep of the element with these keys; none if it is undeclared.
fn element<'f>(
    declared: &[(&'f Elements, &'f Types)],
    keys: &'f [ListKey],
    own: &Spelled<'_>,
) -> Option<Option<Keep<'f>>> {
    let mut keep = Keep { keys: keys.iter().map(|key| &*key.name).collect(), ..Keep::default() };
    for (elements, types) in declared {
        for item in &elements.items {
            if has_spelled(item, keys, own)? {
                keep.nodes.push((&item.node, *types));
            }
        }
    }
    Some((!keep.nodes.is_empty()).then_some(keep))
}

fn has_spelled(element: &Element, keys: &[ListKey], own: &Spelled<'_>) -> Option<bool> {
    if element.keys.len() != keys.len() {
        return None;
    }
    for (value, own) in element.keys.iter().zip(own) {
        let same = match value {
            Value::String(text) => text == own,
            Value::Number(number) if number.is_f64() => return None,
            Value::Number(number) => number.to_string() == *own,
            Value::Bool(value) => value.to_string() == *own,
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        if !same {
            return Some(false);
        }
    }
    Some(true)
}

/// The text that every element with these keys holds: a key without a default occurs there literally, unless it could be
/// a number, which has several spellings.
fn literal<'t>(keys: &[ListKey], own: &Spelled<'t>) -> Option<Finder<'t>> {
    let is_name = |own: &str| own.bytes().any(|it| it.is_ascii_alphabetic() && !matches!(it, b'e' | b'E'));
    let mut names = keys.iter().zip(own).filter(|(key, own)| key.default.is_none() && is_name(own));
    names.next().map(|(_, own)| Finder::new(*own))
}

/// Whether the text alone shows that an element does not hold this; with an escape in it, it does not.
fn lacks(element: &str, literal: Option<&Finder<'_>>) -> bool {
    let element = element.as_bytes();
    let holds = |literal: &Finder<'_>| memchr(b'\\', element).is_some() || literal.find(element).is_some();
    !literal.is_none_or(holds)
}

/// The keys of a live element. `None` if one of them is absent, or could equal a key with another text.
fn spelled<'t>(element: Part<'t, '_>, keys: &'t [ListKey]) -> Option<Spelled<'t>> {
    let mut found: [Option<&str>; MAX_KEYS] = [None; MAX_KEYS];
    if keys.len() > found.len() {
        return None;
    }
    element.each_entry(|entry| {
        if entry.name.contains('\\') {
            return None;
        }
        if let Some((_, place)) = keys.iter().zip(&mut found).find(|(key, _)| *key.name == *entry.name) {
            *place = Some(canonical(entry.value)?);
        }
        Some(())
    })?;
    let mut own = [""; MAX_KEYS];
    for ((key, found), own) in keys.iter().zip(found).zip(&mut own) {
        *own = match (found, key.default.as_deref()) {
            (None | Some(""), Some(Value::String(default))) => default,
            (None | Some(""), Some(_)) | (None, None) => return None,
            (Some(text), _) => text,
        };
    }
    Some(own)
}

/// The text of a key, if it is the same key only where this is the same.
fn canonical<'t>(value: Part<'t, '_>) -> Option<&'t str> {
    let text = value.text();
    if let Some(rest) = text.strip_prefix('"') {
        return rest.strip_suffix('"').filter(|text| !text.contains('\\'));
    }
    let is_number = text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number || matches!(text, "true" | "false")).then_some(text)
}
