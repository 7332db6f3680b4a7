use serde_json::json;

use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use crate::sample_verdicts::book_of;
use kubemoor_policy::compile;

#[test]
fn padding_does_not_make_an_edit_wait_for_a_turn() {
    for (sent, declared, expected) in [
        (1000, 1000, false),
        // Padded, of an object of which little is declared.
        (1_800_000, 1000, false),
        (1_800_000, 300_000, true),
        (100_000, 300_000, false),
        (1000, 5_000_000, true),
    ] {
        assert_eq!(takes_long(sent, declared), expected, "{sent} {declared}");
    }
}

#[test]
fn records_are_kept_from_all_but_operators_of_their_namespace() {
    let policy = compile::policy(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftPolicy", "metadata": {"name": "p"},
        "spec": {"releases": {"names": ["web"]}, "edits": "Deny", "operators": [{"kind": "User", "name": "ci"}]},
    }));
    let resolver = book_of(EditsMode::Warn, Some(Arc::new(policy.unwrap())));
    let mut index = Index::default();
    for name in ["web", "api"] {
        index.set(assembled(SampleRecord { namespace: "shop", name, ..SampleRecord::default() }, None));
    }
    for (namespace, user, expected) in
        [("shop", "mallory", Some(EditsMode::Deny)), ("shop", "ci", None), ("elsewhere", "mallory", None)]
    {
        let actor = Actor { user: user.to_owned(), ..Actor::default() };
        let policy = operator_policy(&resolver, &index, Some(namespace), Some(&actor));
        assert_eq!(policy.map(|policy| policy.edits), expected, "{namespace} {user}");
    }
}
