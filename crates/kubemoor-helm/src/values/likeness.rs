//! Matches values by type and name, where no template shows the value that prints a field.
//!
//! Entry points: [`is_alike`], [`printers`]. Invariant: a value is named only where it is the only one of its
//! kind.

use super::outline::Step;
use super::printed::Printer;
use super::tree::{self, Leaf};
use super::{Context, Prefixes};

/// The fewest letters by which words are taken for the same.
const STEM: usize = 3;

/// The values of a part of the chart that are the field's by value and name.
pub(super) fn printers(
    steps: &[Step],
    (declared, new): (&str, Option<&str>),
    prefixes: &Prefixes,
    context: &Context<'_>,
) -> Vec<Printer> {
    let leaves: Vec<Leaf> =
        prefixes.0.iter().flat_map(|prefix| tree::leaves(context.values, prefix)).collect();
    let tags = of_image(&leaves, (declared, new));
    if !tags.is_empty() || context.place == "image" {
        return tags;
    }
    let mut alike: Vec<&Leaf> =
        leaves.iter().filter(|leaf| leaf.text == declared && is_alike(steps, &leaf.path)).collect();
    // Among several candidates, and for names that every chart has, the value must also carry the name of a
    // field above.
    if alike.len() > 1 || context.place == "name" {
        let near: Vec<&Leaf> = alike.iter().copied().filter(|leaf| is_near(steps, &leaf.path)).collect();
        alike = if near.len() == 1 { near } else { Vec::new() };
    }
    let printer = |leaf: &Leaf| Printer {
        path: leaf.path.clone(),
        is_equal: true,
        is_list: false,
        new: new.map(str::to_owned),
    };
    alike.into_iter().map(printer).collect()
}

/// Whether a value has a similar name to the field that it may set.
pub(super) fn is_alike(steps: &[Step], path: &[String]) -> bool {
    let Some(field) = name(steps) else { return false };
    path.last().is_some_and(|last| share(&words(field), &words(last)))
}

/// Whether the name above a value is like a name above the field.
fn is_near(steps: &[Step], path: &[String]) -> bool {
    let Some(above) = path.len().checked_sub(2).and_then(|at| path.get(at)) else { return false };
    let fields = steps.iter().rev().skip(1).filter_map(|step| match step {
        Step::Field(name) => Some(name),
        Step::Item(_) => None,
    });
    fields.take(3).any(|name| share(&words(name), &words(above)))
}

/// The tag, or the repository, of an image that consists of both.
fn of_image(leaves: &[Leaf], (declared, new): (&str, Option<&str>)) -> Vec<Printer> {
    let Some((name, tag)) = declared.rsplit_once(':') else { return Vec::new() };
    let wanted = new.and_then(|new| new.rsplit_once(':'));
    let beside = |leaf: &Leaf, sibling: &str| -> Option<String> {
        let parent = leaf.path.split_last()?.1;
        let found = leaves
            .iter()
            .find(|it| it.path.split_last().is_some_and(|(last, above)| last == sibling && above == parent));
        found.map(|found| found.text.clone())
    };
    let tags = leaves.iter().filter(|leaf| {
        let is_tag = leaf.path.last().is_some_and(|last| last == "tag") && leaf.text == tag;
        is_tag && beside(leaf, "repository").is_some_and(|it| name == it || name.ends_with(&format!("/{it}")))
    });
    let is_of_tag = wanted.is_none_or(|(wanted, _)| wanted == name);
    let new = wanted.map(|(_, tag)| tag.to_owned());
    let printer =
        |leaf: &Leaf| Printer { path: leaf.path.clone(), is_equal: true, is_list: false, new: new.clone() };
    let found: Vec<Printer> = tags.filter(|_| is_of_tag).map(printer).collect();
    // Of several images with one tag nothing tells which one it is.
    if found.len() == 1 { found } else { Vec::new() }
}

fn name(steps: &[Step]) -> Option<&str> {
    steps.iter().rev().find_map(|step| match step {
        Step::Field(name) => Some(name.as_str()),
        Step::Item(_) => None,
    })
}

/// The words of a name in camel case, or with dashes.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    for c in name.chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| word.len() >= STEM);
    words
}

/// Whether one of these words begins with one of those.
fn share(some: &[String], others: &[String]) -> bool {
    let stem = |word: &String| word.trim_end_matches('s').to_owned();
    some.iter().map(stem).any(|a| others.iter().map(stem).any(|b| a.starts_with(&b) || b.starts_with(&a)))
}
