//! Parts of Flux's ignore rules that a policy cannot express.
//!
//! Entry points: [`refused_target`], [`refused_path`], [`flaw_of`]. Invariant: a refused part is named with its reason.

use super::super::compile::compile;
use super::super::flaw::Flaw;
use super::super::resource::{DriftPolicy, DriftPolicySpec, IgnoreRule, TargetSpec};

/// The field by which a policy cannot select the same objects as Flux, and the reason.
pub(super) fn refused_target(target: Option<&TargetSpec>) -> Option<(&'static str, String)> {
    let target = target?;
    let fields = [
        ("group", &target.group),
        ("version", &target.version),
        ("kind", &target.kind),
        ("namespace", &target.namespace),
        ("name", &target.name),
    ];
    for (field, text) in fields {
        let Some(text) = text else { continue };
        // Inside of brackets, these have another meaning than in the regular expressions of Flux.
        if text.contains('[') && ["&&", "--", "~~"].iter().any(|set| text.contains(set)) || has_nested(text) {
            let reason =
                format!("the class of letters in {text:?} has another meaning here: write it otherwise");
            return Some((field, reason));
        }
    }
    let rule = IgnoreRule { target: Some(target.clone()), paths: vec!["*".to_owned()] };
    let flaw = flaw_of(rule)?;
    let field = fields.iter().map(|(field, _)| *field).chain(["labelSelector", "annotationSelector"]);
    Some((field.into_iter().find(|field| flaw.field.ends_with(field)).unwrap_or("name"), flaw.message))
}

/// The reason why a policy cannot express a path of Flux: there, each segment is a whole name or
/// index.
pub(super) fn refused_path(path: &str) -> Option<String> {
    let is_pattern = |segment: &str| segment == "*" || segment.starts_with('[');
    let is_from_end = |segment: &str| {
        segment.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if let Some(segment) = path.split('/').skip(1).find(|segment| is_pattern(segment)) {
        return Some(format!("Flux looks for a field that is called {segment:?}, and here it is a pattern"));
    }
    if let Some(segment) = path.split('/').skip(1).find(|segment| is_from_end(segment)) {
        return Some(format!(
            "{segment:?} counts from the end of a list: name the element, such as [name=app]"
        ));
    }
    flaw_of(IgnoreRule { target: None, paths: vec![path.to_owned()] }).map(|flaw| flaw.message)
}

/// Whether a class of letters begins in another one. `[[:alpha:]]` does not.
fn has_nested(text: &str) -> bool {
    let mut inside = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '[' if inside && letters.peek() != Some(&':') => return true,
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
    }
    false
}

/// The first flaw of a rule.
fn flaw_of(rule: IgnoreRule) -> Option<Flaw> {
    let policy =
        DriftPolicy::new("flux", DriftPolicySpec { ignore: vec![rule], ..DriftPolicySpec::default() });
    compile(&policy).err()?.into_iter().next()
}
