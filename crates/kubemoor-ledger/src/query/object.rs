//! The possible kinds for a user's name of an object, without asking a cluster.
//!
//! Entry point: [`possible_kinds`]. Invariant: the right kind is among them. Must not ask a cluster.

use kubemoor_declare::model::NamedObject;

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

/// The possible kinds of the named object, in lower case: a plural does not determine its singular.
pub(crate) fn possible_kinds(object: &NamedObject) -> Vec<String> {
    let kind = object.kind.as_str();
    let mut kinds = vec![kind.to_owned()];
    kinds.extend(SHORT.iter().filter(|(short, _)| *short == kind).map(|(_, long)| (*long).to_owned()));
    for (plural, singular) in [("ies", "y"), ("es", ""), ("s", "")] {
        kinds.extend(kind.strip_suffix(plural).map(|stem| format!("{stem}{singular}")));
    }
    kinds
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
            let filter: NamedObject = text.parse().unwrap();
            assert!(possible_kinds(&filter).iter().any(|found| found == kind), "{text}: {filter:?}");
            assert_eq!(filter.to_string().parse(), Ok(filter), "{text}");
        }
        for text in ["web", "/web", "deployment/", "deployment/web/scale", ""] {
            assert!(text.parse::<NamedObject>().is_err(), "{text}");
        }
    }
}
