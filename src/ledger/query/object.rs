//! An object as people name it, without a cluster that could be asked what its kind is called.
//!
//! Entry point: [`ObjectFilter`]. Invariant: what is printed reads back as the same filter.

use std::fmt;
use std::str::FromStr;

/// The short names that kubectl users write, and what they mean.
const SHORT: [(&str, &str); 20] = [
    ("cj", "cronjob"),
    ("cm", "configmap"),
    ("crd", "customresourcedefinition"),
    ("deploy", "deployment"),
    ("ds", "daemonset"),
    ("ep", "endpoints"),
    ("hpa", "horizontalpodautoscaler"),
    ("ing", "ingress"),
    ("limits", "limitrange"),
    ("netpol", "networkpolicy"),
    ("ns", "namespace"),
    ("pc", "priorityclass"),
    ("pdb", "poddisruptionbudget"),
    ("po", "pod"),
    ("pv", "persistentvolume"),
    ("pvc", "persistentvolumeclaim"),
    ("quota", "resourcequota"),
    ("sa", "serviceaccount"),
    ("sts", "statefulset"),
    ("svc", "service"),
];

/// `KIND/NAME` or `KIND.GROUP/NAME`, the kind in any case, as its plural or by a short name of a
/// built-in kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFilter {
    /// The kind, in lower case, as it was written.
    kind: String,
    /// The API group; none for any.
    pub(in crate::ledger) group: Option<String>,
    /// The name.
    pub(in crate::ledger) name: String,
}

impl ObjectFilter {
    /// What the kind may be called, in lower case: a plural does not tell its singular.
    pub(in crate::ledger) fn kinds(&self) -> Vec<String> {
        let kind = self.kind.as_str();
        let mut kinds = vec![kind.to_owned()];
        kinds.extend(SHORT.iter().filter(|(short, _)| *short == kind).map(|(_, long)| (*long).to_owned()));
        for (plural, singular) in [("ies", "y"), ("es", ""), ("s", "")] {
            kinds.extend(kind.strip_suffix(plural).map(|stem| format!("{stem}{singular}")));
        }
        kinds
    }
}

impl FromStr for ObjectFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "an object is KIND/NAME, such as deployment/web, or KIND.GROUP/NAME";
        let (kind, name) = text.split_once('/').ok_or(form)?;
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (kind, None),
        };
        if kind.is_empty() || name.is_empty() || name.contains('/') {
            return Err(form);
        }
        Ok(Self { kind: kind.to_lowercase(), group, name: name.to_owned() })
    }
}

impl fmt::Display for ObjectFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, group, name } = self;
        match group {
            Some(group) => write!(f, "{kind}.{group}/{name}"),
            None => write!(f, "{kind}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_as_kubectl_users_name_it() {
        for (text, kind) in [
            ("Deployment/web", "deployment"),
            ("deployments.apps/web", "deployment"),
            ("deploy/web", "deployment"),
            ("ingresses/web", "ingress"),
            ("NetworkPolicies/web", "networkpolicy"),
            ("svc/web", "service"),
        ] {
            let filter: ObjectFilter = text.parse().unwrap();
            assert!(filter.kinds().iter().any(|found| found == kind), "{text}: {filter:?}");
            assert_eq!(filter.to_string().parse(), Ok(filter), "{text}");
        }
        for text in ["web", "/web", "deployment/", "deployment/web/scale", ""] {
            assert!(text.parse::<ObjectFilter>().is_err(), "{text}");
        }
    }
}
