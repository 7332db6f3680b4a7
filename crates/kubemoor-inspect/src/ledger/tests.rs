use super::*;
use kubemoor_declare::model::Operation;

#[test]
fn a_filter_becomes_a_query_that_keeps_every_character() {
    let filter = Filter {
        namespace: Some("shop".to_owned()),
        user: Some("system:serviceaccount:ci:a&b".to_owned()),
        verdicts: vec!["Deny".to_owned(), "Warn".to_owned()],
        operations: vec![Operation::Delete],
        object: Some("Deployments.apps/web".parse().unwrap()),
        since: Some("2026-11-21T08:00:00Z".parse().unwrap()),
        until: Some("2026-11-21T09:00:00Z".parse().unwrap()),
        limit: Some(7),
        ..Filter::default()
    };
    let query = [
        "namespace=shop",
        "user=system%3Aserviceaccount%3Aci%3Aa%26b",
        "verdict=Deny%2CWarn",
        "operation=DELETE",
        "object=deployments%2Eapps%2Fweb",
        "since=2026%2D11%2D21T08%3A00%3A00Z",
        "until=2026%2D11%2D21T09%3A00%3A00Z",
        "limit=7",
    ];
    assert_eq!(path(&filter), format!("/api/v1/ledger?{}", query.join("&")));
}
