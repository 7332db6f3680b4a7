//! The metrics as a scrape shows them; dashboards rest on these names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;

use super::*;

fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

fn check(registry: &Registry, expected: &[&str]) {
    let text = scrape(registry);
    for line in expected {
        assert!(text.lines().any(|present| present == *line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_connection_is_open_until_its_count_is_dropped() {
    let mut registry = registry();
    let metrics = ConnectionMetrics::register(&mut registry);
    let (first, second) = (metrics.opened(), metrics.opened());
    check(&registry, &["kubemoor_connections_open{port=\"webhook\"} 2"]);
    drop(first);
    metrics.ended(ConnectionEnd::CutOff);
    check(
        &registry,
        &[
            "kubemoor_connections_open{port=\"webhook\"} 1",
            "kubemoor_connections_total{port=\"webhook\",end=\"cut_off\"} 1",
        ],
    );
    drop(second);
    check(&registry, &["kubemoor_connections_open{port=\"webhook\"} 0"]);
}

#[test]
fn verdicts_are_counted_by_webhook_decision_and_reason() {
    let mut registry = registry();
    let metrics = AdmissionMetrics::register(&mut registry);
    check(
        &registry,
        &[
            "kubemoor_verdicts_total{webhook=\"edits\",decision=\"deny\",reason=\"drift\"} 0",
            "kubemoor_verdicts_total{webhook=\"records\",decision=\"allow\",reason=\"late\"} 0",
            "kubemoor_verdicts_total{webhook=\"edits\",decision=\"error\",reason=\"unreached\"} 0",
        ],
    );
    assert!(expected_verdicts().count() < 60, "a replica serves too many series");
    assert!(!scrape(&registry).contains("not-declared"), "allowed edits are served before the first one");
    metrics.answered(Webhook::Edits, Decision::Deny, "drift", Duration::from_micros(700));
    metrics.answered(Webhook::Edits, Decision::Deny, "drift", Duration::from_secs(2));
    metrics.answered(Webhook::Scale, Decision::Allow, "not-declared", Duration::from_micros(1));
    metrics.malformed();
    check(
        &registry,
        &[
            "kubemoor_verdicts_total{webhook=\"edits\",decision=\"deny\",reason=\"drift\"} 2",
            "kubemoor_verdicts_total{webhook=\"scale\",decision=\"allow\",reason=\"not-declared\"} 1",
            "kubemoor_admission_duration_seconds_count{webhook=\"edits\"} 2",
            "kubemoor_admission_duration_seconds_bucket{le=\"0.0005\",webhook=\"edits\"} 0",
            "kubemoor_admission_duration_seconds_bucket{le=\"0.001\",webhook=\"edits\"} 1",
            "kubemoor_malformed_reviews_total 1",
        ],
    );
}

#[test]
fn releases_are_counted_when_somebody_asks() {
    let mut registry = registry();
    let failed = Arc::new(AtomicU64::new(1));
    let metrics = RecordMetrics::register(&mut registry, {
        let failed = Arc::clone(&failed);
        move || [("deployed", 7), ("failed", failed.load(Ordering::Relaxed))]
    });
    metrics.undecodable(RecordFault::TooLarge);
    metrics.count_recheck(RecheckResult::TimedOut);
    check(
        &registry,
        &[
            "kubemoor_releases{state=\"deployed\"} 7",
            "kubemoor_releases{state=\"failed\"} 1",
            "kubemoor_records_undecodable_total{reason=\"too_large\"} 1",
            "kubemoor_fresh_looks_total{outcome=\"timed_out\"} 1",
        ],
    );
    failed.store(2, Ordering::Relaxed);
    check(&registry, &["kubemoor_releases{state=\"failed\"} 2"]);
}

#[test]
fn drifts_are_counted_by_kind_and_outcome_and_timed() {
    let mut registry = registry();
    let metrics = GuardMetrics::register(&mut registry);
    check(&registry, &["kubemoor_drift_oldest_seconds 0.0"]);
    metrics.found("missing");
    metrics.repaired("missing", RepairResult::TakenBack);
    metrics.repaired_after("changed", jiff::SignedDuration::from_millis(300));
    metrics.detected_after(jiff::SignedDuration::from_secs(-1));
    check(
        &registry,
        &[
            "kubemoor_drift_found_total{kind=\"missing\"} 1",
            "kubemoor_repairs_total{kind=\"missing\",outcome=\"taken_back\"} 1",
            "kubemoor_repair_delay_seconds_bucket{le=\"0.2\",kind=\"changed\"} 0",
            "kubemoor_repair_delay_seconds_bucket{le=\"0.5\",kind=\"changed\"} 1",
            "kubemoor_drift_detection_delay_seconds_sum 0.0",
        ],
    );
    metrics.oldest(Some(jiff::Timestamp::UNIX_EPOCH));
    assert!(!scrape(&registry).contains("kubemoor_drift_oldest_seconds 0.0"));
}
