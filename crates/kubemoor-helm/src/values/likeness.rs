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
        is_part: false,
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

/// The tag of an image that consists of a repository and a tag; where another image is wanted, those of both that change.
fn of_image(leaves: &[Leaf], (declared, new): (&str, Option<&str>)) -> Vec<Printer> {
    let Some((name, tag)) = declared.rsplit_once(':') else { return Vec::new() };
    let beside = |leaf: &Leaf, sibling: &str| -> Option<&Leaf> {
        let parent = leaf.path.split_last()?.1;
        leaves
            .iter()
            .find(|it| it.path.split_last().is_some_and(|(last, above)| last == sibling && above == parent))
    };
    let images = leaves.iter().filter_map(|leaf| {
        let is_tag = leaf.path.last().is_some_and(|last| last == "tag") && leaf.text == tag;
        let repository = beside(leaf, "repository").filter(|_| is_tag)?;
        // A registry may stand before it.
        let registry = name.strip_suffix(&*repository.text)?;
        (registry.is_empty() || registry.ends_with('/')).then_some((registry, repository, leaf))
    });
    // Of several images with one tag nothing tells which one it is.
    let images: Vec<_> = images.collect();
    let [(registry, repository, leaf)] = images.as_slice() else { return Vec::new() };
    let printer = |leaf: &Leaf, is_part: bool, new: Option<&str>| Printer {
        path: leaf.path.clone(),
        is_equal: true,
        is_list: false,
        is_part,
        new: new.map(str::to_owned),
    };
    let Some(new) = new else { return vec![printer(leaf, false, None)] };
    let wanted = new.rsplit_once(':').and_then(|(wanted, tag)| Some((wanted.strip_prefix(*registry)?, tag)));
    match wanted {
        Some((wanted, tag)) if wanted == repository.text => vec![printer(leaf, false, Some(tag))],
        Some((wanted, same)) if same == tag => vec![printer(repository, false, Some(wanted))],
        Some((wanted, tag)) => vec![printer(repository, true, Some(wanted)), printer(leaf, true, Some(tag))],
        None => Vec::new(),
    }
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
