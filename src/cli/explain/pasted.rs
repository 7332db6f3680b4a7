//! A denial as people paste it.
//!
//! Entry point: [`Denial::parse`]. Invariant: total on any text; understands
//! what [`crate::verdict::message`] says, with whatever stands around it.

use crate::model::ReleaseId;

/// What stands between object and release in a denial.
const DECLARED: &str = " is declared by Helm release ";

/// What a denial is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) release: ReleaseId,
    pub(super) paths: Vec<String>,
}

impl Denial {
    /// Reads a denial; none if it is of another kind.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (before, after) = text.split_once(DECLARED)?;
        let (object, namespace) = match before.rsplit_once(" in namespace ") {
            Some((object, namespace)) if !namespace.contains(' ') => (object, Some(namespace.to_owned())),
            _ => (before, None),
        };
        let (kind, name) = object.rsplit(' ').next()?.split_once('/')?;
        let (release, rest) = after.split_once(" in namespace ")?;
        let (storage, rest) = rest.split_once(' ')?;
        let paths = rest.split(" (declared ").filter_map(|part| part.rsplit(' ').next());
        let paths = paths.filter(|word| word.starts_with('/')).map(str::to_owned).collect();
        let is_word = |text: &str| !text.is_empty() && !text.contains(' ');
        (is_word(kind) && is_word(name) && is_word(release)).then(|| Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace,
            release: ReleaseId { namespace: storage.to_owned(), name: release.to_owned() },
            paths,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, wanted: Option<(&str, Option<&str>, &str, &[&str])>) {
        let found = Denial::parse(text);
        let found = found.as_ref().map(|denial| {
            let paths: Vec<&str> = denial.paths.iter().map(String::as_str).collect();
            (
                format!("{}/{}", denial.kind, denial.name),
                denial.namespace.clone(),
                denial.release.to_string(),
                paths,
            )
        });
        let wanted = wanted.map(|(object, namespace, release, paths)| {
            (object.to_owned(), namespace.map(str::to_owned), release.to_owned(), paths.to_vec())
        });
        assert_eq!(found, wanted, "{text}");
    }

    #[test]
    fn a_denial_is_read_with_whatever_stands_around_it() {
        check(
            "Error from server: admission webhook \"v1.apps.edits.kubemoor.dev\" denied the request: \
             Deployment/web in namespace shop is declared by Helm release shop in namespace shop (revision 3), \
             and this edit would leave it otherwise: /spec/replicas (declared 2, was 2, would be 5); \
             /spec/template/spec/containers/[name=app]/image (declared \"a\", was \"a\", would be \"b\"). Change \
             the chart's values and run `helm upgrade shop -n shop`.\n",
            Some((
                "Deployment/web",
                Some("shop"),
                "shop/shop",
                &["/spec/replicas", "/spec/template/spec/containers/[name=app]/image"],
            )),
        );
        check(
            "ClusterRole/reader is declared by Helm release shop in namespace\nops (revision 1) and would be deleted.",
            Some(("ClusterRole/reader", None, "ops/shop", &[])),
        );
    }

    #[test]
    fn what_is_no_denial_is_none() {
        for text in
            ["", " is declared by Helm release ", "web is declared by Helm release a in namespace b c", "x"]
        {
            check(text, None);
        }
    }
}
