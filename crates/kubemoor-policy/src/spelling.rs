//! Finds misspelled kinds and unknown fields in policies. A field is unknown only if the schema lists all fields; a
//! custom kind and its fields are never reported.

use std::sync::{Arc, LazyLock};

use strsim::damerau_levenshtein;

use crate::allowance::DELETE;
use crate::mask::Mask;
use crate::pattern::{Pattern, PatternStep};
use crate::resource::{DriftPolicySpec, TargetSpec};
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::model::Gvk;
use kubemoor_declare::path::Segment;
use kubemoor_declare::schema::{KindSchema, Shape};

/// A field that no object of a kind has.
struct UnknownField {
    message: String,
    /// Whether the correction is clear.
    is_slip: bool,
}

impl Mask {
    /// A message for each path that objects of the kind cannot have.
    pub fn unknown_fields(&self, schema: &KindSchema) -> Vec<String> {
        self.0.iter().filter_map(|path| path.unknown_field(schema)).map(|unknown| unknown.message).collect()
    }
}

impl Pattern {
    /// The first field of the path that objects of the kind cannot have.
    fn unknown_field(&self, schema: &KindSchema) -> Option<UnknownField> {
        let mut ty = schema.root;
        for (place, step) in self.0.iter().enumerate() {
            let unknown = |advice: Option<String>| {
                let path = Self(self.0.iter().take(place + 1).cloned().collect());
                let is_slip = advice.is_some();
                let advice = advice.map(|advice| format!(": {advice}")).unwrap_or_default();
                Some(UnknownField { message: format!("there is no field {path}{advice}"), is_slip })
            };
            ty = match (schema.types.shape(ty), step) {
                (Shape::Any, _) => return None,
                (Shape::Scalar(_), _) => return unknown(None),
                (Shape::Struct(_), PatternStep::Any) => return None,
                (Shape::Struct(known), PatternStep::Only(Segment::Field(name))) => match known.field(name) {
                    Some(field) => field.ty,
                    None if known.open => return None,
                    None => {
                        let names = known.fields.iter().map(|field| &*field.name);
                        return unknown(nearest(name, names).map(|name| format!("did you mean {name}?")));
                    }
                },
                (Shape::Struct(_), PatternStep::Only(_)) => return unknown(None),
                (Shape::Map { value, .. }, _) => *value,
                (Shape::List { .. }, PatternStep::Only(Segment::Field(name)))
                    if !name.bytes().all(|byte| byte.is_ascii_digit()) =>
                {
                    let advice =
                        "it is inside a list: select an element, such as [name=app], or use * for all";
                    return unknown(Some(advice.to_owned()));
                }
                (Shape::List { item, .. }, _) => *item,
            };
        }
        None
    }
}

static CORE: LazyLock<Catalog> = LazyLock::new(Catalog::with_core);

/// The schemas of the built-in kinds with this name, of one group or of any.
pub(crate) fn schemas(group: Option<&str>, kind: &str) -> Vec<Arc<KindSchema>> {
    let is_meant = |facts: &&KindFacts| facts.kind == kind && group.is_none_or(|group| facts.group == group);
    let gvk = |facts: &KindFacts| Gvk {
        group: facts.group.clone(),
        version: facts.versions.first().cloned().unwrap_or_default(),
        kind: facts.kind.clone(),
    };
    CORE.kinds().filter(is_meant).filter_map(|facts| CORE.schema(&gvk(facts))).collect()
}

/// The name that is most similar to `wanted`, if at most a third of the letters differ. Names whose lengths differ by
/// more are not compared, so that a long text costs no more than a short one.
fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let letters = wanted.chars().count();
    let most = (letters / 3).max(1);
    let near = names.into_iter().filter(|name| name.chars().count().abs_diff(letters) <= most);
    let scored = near.map(|name| (damerau_levenshtein(&wanted, &name.to_lowercase()), name));
    scored.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

/// The built-in kind that an unknown name probably means: the same with different capitalization, its plural, or a long
/// name with one typo. Custom kinds are not known here.
fn similar_kind(wanted: &str) -> Option<String> {
    let is = |it: &&str| it.eq_ignore_ascii_case(wanted);
    if CORE.kinds().any(|facts| facts.kind == wanted) {
        return None;
    }
    let meant = CORE.kinds().find(|facts| is(&facts.kind.as_str()) || is(&facts.plural.as_str()));
    let slipped = || {
        let is_near = |kind: &str| kind.len() >= 7 && kind.len().abs_diff(wanted.len()) <= 4;
        let like = |kind: &str| is_near(kind) && damerau_levenshtein(kind, wanted) == 1;
        let mut like: Vec<_> = CORE.kinds().filter(|facts| like(&facts.kind)).collect();
        like.sort_by(|a, b| a.kind.cmp(&b.kind));
        like.into_iter().next()
    };
    meant.or_else(slipped).map(|facts| facts.kind.clone())
}

/// The probably misspelled kinds in a policy's targets: the field and a message. Of regular expressions, only the
/// alternatives are checked.
pub(crate) fn misspelled(spec: &DriftPolicySpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (rule, target, _) in rules(spec) {
        let Some(TargetSpec { kind: Some(kinds), .. }) = target else { continue };
        for kind in kinds.trim_start_matches('(').trim_end_matches(')').split('|') {
            if let Some(meant) = similar_kind(kind) {
                let message = format!("{kind:?} is not a Kubernetes kind: did you mean {meant}?");
                found.push((format!("{rule}.target.kind"), message));
            }
        }
    }
    found
}

/// The paths of rules for one built-in kind that no object of the kind can have: the field and a message. A custom kind
/// may have the same name, so without a group only paths with a clear correction are reported.
pub(crate) fn unknown_fields(spec: &DriftPolicySpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (rule, target, paths) in rules(spec) {
        let Some(TargetSpec { kind: Some(kind), group, .. }) = target else { continue };
        let group = group.as_deref().filter(|group| !group.is_empty());
        let schemas = schemas(group, kind);
        for (index, path) in paths.iter().enumerate().filter(|(_, path)| *path != DELETE) {
            let Ok(pattern) = Pattern::parse(path) else { continue };
            let unknown: Option<Vec<_>> =
                schemas.iter().map(|schema| pattern.unknown_field(schema)).collect();
            let Some(unknown) = unknown.and_then(|unknown| unknown.into_iter().next()) else { continue };
            if group.is_some() || unknown.is_slip {
                found.push((format!("{rule}.paths[{index}]"), format!("in {kind} {}", unknown.message)));
            }
        }
    }
    found
}

/// Every `ignore`, `allow` and `seal` rule: its field, its target and its paths.
pub(crate) fn rules(
    spec: &DriftPolicySpec,
) -> impl Iterator<Item = (String, Option<&TargetSpec>, &[String])> {
    let ignore = spec.ignore.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let allow = spec.allow.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let seal = spec.seal.iter().map(|rule| (&rule.target, &rule.paths)).enumerate();
    let rules = ignore.map(|it| ("ignore", it)).chain(allow.map(|it| ("allow", it)));
    let rules = rules.chain(seal.map(|it| ("seal", it)));
    rules.map(|(list, (index, (target, paths)))| {
        (format!("spec.{list}[{index}]"), target.as_ref(), paths.as_slice())
    })
}

#[cfg(test)]
mod tests;
