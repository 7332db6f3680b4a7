//! The indexes of a ledger's months in a real PostgreSQL: which month has them, and which searches use them.

use crate::ledger_months::{Shared, at, noon};

const DOCUMENTED: &str = include_str!("../../docs/ledger.md");

/// The statement for the partitions that have no such index.
fn parts_without(index: &str) -> String {
    format!(
        "SELECT coalesce(string_agg(inhrelid::regclass::text, ' '), '') FROM pg_inherits \
         WHERE inhparent = 'entries'::regclass AND NOT EXISTS (SELECT FROM pg_indexes \
         WHERE tablename = inhrelid::regclass::text AND indexdef LIKE '{index}')"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn rows_of_an_object_are_found_by_index_of_its_month() {
    let shared = Shared::start().await;
    let without = &parts_without("%(cluster, object_name, id, %");
    shared.record("east", [at(noon(0), "this")]).await;
    assert_eq!(shared.ask(without), "");
    // Rows that one more filter drops are dropped by what the index holds of them.
    shared.ask("VACUUM entries");
    let explained = shared.ask(
        "SET enable_seqscan = off; EXPLAIN SELECT id FROM entries WHERE cluster = 1 AND object_name = 'web' \
         AND CASE WHEN user_key = 1 AND lower(object_kind) IN ('deployment') THEN true ELSE false END \
         ORDER BY id DESC LIMIT 10",
    );
    let by = explained.lines().find(|line| line.contains("Index Only Scan")).unwrap_or_default();
    assert!(by.contains("object_name_id_") || by.contains("_object on"), "{explained}");
    // Nobody who writes waits for an index over the rows of before.
    shared.make_older(3);
    shared.record("east", [at(noon(1), "late")]).await;
    assert_eq!(shared.ask(without), "entries_before");
    assert_eq!(shared.details().await, ["late", "this"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn deletions_are_found_by_index_of_their_month() {
    let shared = Shared::start().await;
    let without = parts_without("%(cluster, operation, id) WHERE%");
    shared.record("east", [at(noon(0), "this")]).await;
    assert_eq!(shared.ask(&without), "");
    // With one row other plans are cheaper, and what counts is whether this one is possible.
    shared.ask(
        "ALTER TABLE entries DROP CONSTRAINT entries_pkey; DROP INDEX entries_release, entries_namespace, \
         entries_user, entries_verdict, entries_user_release, entries_user_namespace, entries_object, \
         entries_object_user, entries_pair, entries_user_verdict, entries_release_verdict",
    );
    for operations in ["'DELETE'", "'CREATE', 'DELETE'"] {
        let explained = shared.ask(&format!(
            "SET enable_seqscan = off; \
             EXPLAIN SELECT id FROM entries WHERE cluster = 1 AND operation IN ({operations})",
        ));
        assert!(explained.contains("operation_id_idx") || explained.contains("_operation"), "{explained}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn release_of_a_namespace_is_found_by_index_of_its_month() {
    let shared = Shared::start().await;
    let without = parts_without("%(cluster, namespace_key, release_key, id, user_key, verdict_key)");
    shared.record("east", [at(noon(0), "this")]).await;
    assert_eq!(shared.ask(&without), "");
    shared.ask(
        "ALTER TABLE entries DROP CONSTRAINT entries_pkey; DROP INDEX entries_release, entries_namespace, \
         entries_user_release, entries_user_namespace",
    );
    let explained = shared.ask(
        "SET enable_seqscan = off; EXPLAIN SELECT id FROM entries \
         WHERE cluster = 1 AND namespace_key = 1 AND release_key = 2 ORDER BY id DESC LIMIT 10",
    );
    assert!(explained.contains("namespace_key_release_key_id") || explained.contains("_pair"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn months_with_rows_get_their_indexes_by_the_documented_statements() {
    let shared = Shared::start().await;
    shared.record("east", [at(noon(0), "this")]).await;
    shared.make_older(3);
    shared.record("east", [at(noon(1), "late")]).await;
    let statements: Vec<_> = DOCUMENTED
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("CREATE INDEX CONCURRENTLY"))
        .collect();
    assert_eq!(statements.len(), 6);
    for statement in statements {
        let (columns, _) = statement.split_once(')').unwrap();
        let (_, columns) = columns.split_once("entries_before ").unwrap();
        let without = parts_without(&format!("%{columns})%"));
        assert_eq!(shared.ask(&without), "entries_before", "{statement}");
        shared.ask(statement);
        assert_eq!(shared.ask(&without), "", "{statement}");
    }
}
