//! Finds the name that was probably intended by a misspelled one.
//!
//! Entry points: [`nearest`] among names, [`kind`] among the kinds of Kubernetes. Invariant: a name
//! that is not similar to any other has no nearest one. Must not decide whether a name is wrong.

use std::sync::{Arc, LazyLock};

use strsim::damerau_levenshtein;

use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::model::Gvk;
use kubemoor_declare::schema::KindSchema;

static CORE: LazyLock<Catalog> = LazyLock::new(Catalog::with_core);

/// The kinds of Kubernetes with this name, of one group or of any.
pub(super) fn schemas(group: Option<&str>, kind: &str) -> Vec<Arc<KindSchema>> {
    let is_meant = |facts: &&KindFacts| facts.kind == kind && group.is_none_or(|group| facts.group == group);
    let gvk = |facts: &KindFacts| Gvk {
        group: facts.group.clone(),
        version: facts.versions.first().cloned().unwrap_or_default(),
        kind: facts.kind.clone(),
    };
    CORE.kinds().filter(is_meant).filter_map(|facts| CORE.schema(&gvk(facts))).collect()
}

/// The name that is most similar to `wanted`, if at most a third of the letters differ.
pub fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let most = (wanted.chars().count() / 3).max(1);
    let scored = names.into_iter().map(|name| (damerau_levenshtein(&wanted, &name.to_lowercase()), name));
    scored.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

/// The Kubernetes kind that an unknown name probably means: with different capital letters, as a
/// plural, or with one typing error in a long name. Custom kinds are not known here.
pub fn kind(wanted: &str) -> Option<String> {
    let is = |it: &&str| it.eq_ignore_ascii_case(wanted);
    if CORE.kinds().any(|facts| facts.kind == wanted) {
        return None;
    }
    let meant = CORE.kinds().find(|facts| is(&facts.kind.as_str()) || is(&facts.plural.as_str()));
    let slipped = || {
        let like = |kind: &str| kind.len() >= 7 && damerau_levenshtein(kind, wanted) == 1;
        let mut like: Vec<_> = CORE.kinds().filter(|facts| like(&facts.kind)).collect();
        like.sort_by(|a, b| a.kind.cmp(&b.kind));
        like.into_iter().next()
    };
    meant.or_else(slipped).map(|facts| facts.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_differs_by_a_few_letters() {
        let names = ["replicas", "revisionHistoryLimit", "template", "selector"];
        for (wanted, expected) in [
            ("replcas", Some("replicas")),
            ("Replicas", Some("replicas")),
            ("repilcas", Some("replicas")),
            ("revisionHistory", Some("revisionHistoryLimit")),
            ("image", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, names), expected, "{wanted}");
        }
    }

    #[test]
    fn kind_is_meant_by_other_letters_plurals_and_slips() {
        for (wanted, expected) in [
            ("deployment", Some("Deployment")),
            ("deployments", Some("Deployment")),
            ("Configmap", Some("ConfigMap")),
            ("Deploymnet", Some("Deployment")),
            ("StatefullSet", Some("StatefulSet")),
            ("Deployment", None),
            ("Widget", None),
            ("Rule", None),
            ("", None),
        ] {
            assert_eq!(kind(wanted).as_deref(), expected, "{wanted}");
        }
    }
}
