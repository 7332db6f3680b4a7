//! Tests whether one selector, target or path includes everything that another one does.
//!
//! Entry points: [`is_for_all_of`], [`takes_in`], [`covers`]. Invariant: "yes" is certain; "no" may
//! mean that it is unknown. Must not look at objects.

use crate::pattern::{Pattern, Step};
use crate::resource::{DriftPolicySpec, LabelSelector, TargetSpec};

/// Whether a policy applies to every release that the other one applies to, in every cluster.
pub(super) fn is_for_all_of(wide: &DriftPolicySpec, narrow: &DriftPolicySpec) -> bool {
    let is_empty = |selector: &LabelSelector| *selector == LabelSelector::default();
    let labels = |wide: Option<&LabelSelector>, narrow: Option<&LabelSelector>| {
        wide.is_none_or(|wide| is_empty(wide) || Some(wide) == narrow)
    };
    let none = Default::default();
    let (all, some) = (wide.releases.as_ref().unwrap_or(&none), narrow.releases.as_ref().unwrap_or(&none));
    globs(&all.names, &some.names)
        && globs(&all.namespaces, &some.namespaces)
        && labels(all.namespace_selector.as_ref(), some.namespace_selector.as_ref())
        && labels(wide.cluster_selector.as_ref(), narrow.cluster_selector.as_ref())
}

/// Whether a target selects every object that the other one selects.
pub(super) fn takes_in(wide: Option<&TargetSpec>, narrow: Option<&TargetSpec>) -> bool {
    let none = TargetSpec::default();
    let (wide, narrow) = (wide.unwrap_or(&none), narrow.unwrap_or(&none));
    let fields: [fn(&TargetSpec) -> &Option<String>; 7] = [
        |it| &it.group,
        |it| &it.version,
        |it| &it.kind,
        |it| &it.namespace,
        |it| &it.name,
        |it| &it.label_selector,
        |it| &it.annotation_selector,
    ];
    let said = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    fields.iter().all(|field| {
        let wide = said(field(wide));
        wide.is_empty() || wide == said(field(narrow))
    })
}

/// Whether a pattern covers every path that the other one covers.
pub(super) fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let takes = |(wide, narrow): (&Step, &Step)| *wide == Step::Any || wide == narrow;
    wide.0.len() <= narrow.0.len() && wide.0.iter().zip(&*narrow.0).all(takes)
}

/// Whether globs match every name that the others match.
fn globs(wide: &[String], narrow: &[String]) -> bool {
    let is_all = |globs: &[String]| globs.is_empty() || globs.iter().any(|glob| glob == "*");
    is_all(wide)
        || !narrow.is_empty() && narrow.iter().all(|narrow| wide.iter().any(|wide| glob(wide, narrow)))
}

/// Whether a glob matches every name that the other one matches: it has to match the other's text,
/// where only `*` matches a `*`.
fn glob(wide: &str, narrow: &str) -> bool {
    let (wide, narrow): (Vec<char>, Vec<char>) = (wide.chars().collect(), narrow.chars().collect());
    let (mut at, mut of) = (0, 0);
    // The last `*`, and the length of the text that it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while let Some(letter) = narrow.get(of) {
        let step = wide.get(at);
        if step == Some(&'*') {
            star = Some((at, of));
            at += 1;
        } else if step.is_some_and(|step| step == letter || *step == '?' && *letter != '*') {
            (at, of) = (at + 1, of + 1);
        } else if let Some((place, taken)) = star {
            star = Some((place, taken + 1));
            (at, of) = (place + 1, taken + 1);
        } else {
            return false;
        }
    }
    wide.iter().skip(at).all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_takes_in_another_only_if_every_name_is_matched() {
        for (wide, narrow, expected) in [
            ("*", "shop", true),
            ("shop-*", "shop-web", true),
            ("shop-*", "shop-*", true),
            ("shop-*", "shop-web-*", true),
            ("*-web", "shop-*-web", true),
            ("s*p", "shop", true),
            ("shop-?", "shop-1", true),
            ("shop-?", "shop-?", true),
            ("shop-*", "shop-?", true),
            ("shop-?", "shop-*", false),
            ("shop-web", "shop-*", false),
            ("shop", "shop-web", false),
            ("*-web", "shop-*", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(glob(wide, narrow), expected, "{wide} {narrow}");
        }
        let list = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
        for (wide, narrow, expected) in [
            (list(&[]), list(&["a"]), true),
            (list(&["a"]), list(&[]), false),
            (list(&["*"]), list(&[]), true),
            (list(&["a-*", "b"]), list(&["b", "a-c"]), true),
            (list(&["a-*", "b"]), list(&["b", "c"]), false),
        ] {
            assert_eq!(globs(&wide, &narrow), expected, "{wide:?} {narrow:?}");
        }
    }

    #[test]
    fn pattern_covers_what_lies_below_and_what_its_steps_name() {
        for (wide, narrow, expected) in [
            ("*", "/spec", true),
            ("/spec", "/spec/replicas", true),
            ("/spec/replicas", "/spec", false),
            ("/metadata/annotations/*", "/metadata/annotations/a", true),
            ("/metadata/annotations/a", "/metadata/annotations/*", false),
            ("/spec/containers/*/image", "/spec/containers/[name=app]/image", true),
            ("/spec/containers/[name=app]", "/spec/containers/[name=app]/image", true),
            ("/spec/containers/[name=app]", "/spec/containers/[name=web]/image", false),
        ] {
            let pattern = |text| Pattern::parse(text).unwrap();
            assert_eq!(covers(&pattern(wide), &pattern(narrow)), expected, "{wide} {narrow}");
        }
    }
}
