//! The indexes of a ledger's months in a real PostgreSQL: which month has them, and which searches use them.

use crate::ledger_months::{Shared, at, noon};

/// The statement for the partitions that have no such index.
fn parts_without(index: &str) -> String {
    format!(
        "SELECT coalesce(string_agg(inhrelid::regclass::text, ' '), '') FROM pg_inherits \
         WHERE inhparent = 'entries'::regclass AND NOT EXISTS (SELECT FROM pg_indexes \
         WHERE tablename = inhrelid::regclass::text AND indexdef LIKE '{index}')"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_an_object_are_found_by_index_of_its_month() {
    let shared = Shared::start().await;
    let without = &parts_without("%(cluster, object_name, id)");
    shared.record("east", [at(noon(0), "this")]).await;
    assert_eq!(shared.ask(without), "");
    let explained = shared.ask(
        "SET enable_seqscan = off; EXPLAIN SELECT id FROM entries \
         WHERE cluster = 1 AND object_name = 'web' ORDER BY id DESC LIMIT 10",
    );
    assert!(explained.contains("object_name_id_idx") || explained.contains("_object"), "{explained}");
    // Nobody who writes waits for an index over the rows of before.
    shared.make_older(3);
    shared.record("east", [at(noon(1), "late")]).await;
    assert_eq!(shared.ask(without), "entries_before");
    assert_eq!(shared.details().await, ["late", "this"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_are_found_by_index_of_their_month() {
    let shared = Shared::start().await;
    let without = parts_without("%(cluster, operation, id) WHERE%");
    shared.record("east", [at(noon(0), "this")]).await;
    assert_eq!(shared.ask(&without), "");
    // With one row other plans are cheaper, and what counts is whether this one is possible.
    shared.ask(
        "ALTER TABLE entries DROP CONSTRAINT entries_pkey; DROP INDEX entries_release, entries_namespace, \
         entries_user, entries_verdict, entries_user_release, entries_user_namespace, entries_object",
    );
    for operations in ["'DELETE'", "'CREATE', 'DELETE'"] {
        let explained = shared.ask(&format!(
            "SET enable_seqscan = off; \
             EXPLAIN SELECT id FROM entries WHERE cluster = 1 AND operation IN ({operations})",
        ));
        assert!(explained.contains("operation_id_idx") || explained.contains("_operation"), "{explained}");
    }
}
