//! Metrics of the states of releases.
//!
//! Entry point: [`register`]. Invariant: releases are named only where the settings ask for that.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::collector::collect;
use kubemoor_declare::model::ReleaseId;

/// The state of one release.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The release.
    pub release: ReleaseId,
    /// Its state in one word of a closed set.
    pub reason: &'static str,
    /// How many of its objects are not as declared.
    pub drifted: u64,
}

/// Registers the metrics. Every scrape calls `standings` for the states of all releases. With `per_release` each
/// release with drift has a separate series.
pub fn register<F, I>(registry: &mut Registry, per_release: bool, standings: F)
where
    F: Fn() -> I + Send + Sync + 'static,
    I: IntoIterator<Item = Standing>,
{
    collect(registry, move |mut encoder| {
        let mut standings: Vec<_> = standings().into_iter().collect();
        standings.sort_by(|left, right| left.release.cmp(&right.release));
        encode_totals(&standings, &mut encoder)?;
        if per_release { encode_each(&standings, &mut encoder) } else { Ok(()) }
    });
}

fn encode_totals(standings: &[Standing], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut reasons = BTreeMap::<_, u64>::new();
    let mut drifted = 0_u64;
    for standing in standings {
        *reasons.entry(standing.reason).or_default() += 1;
        drifted = drifted.saturating_add(standing.drifted);
    }
    let kind = ConstGauge::new(0_u64).metric_type();
    let mut by_reason =
        encoder.encode_descriptor("releases_guarded", "Guarded releases by how they stand", None, kind)?;
    for (reason, count) in reasons {
        ConstGauge::new(count).encode(by_reason.encode_family(&[("reason", reason)])?)?;
    }
    let all = encoder.encode_descriptor("objects_drifted", "Objects that are not as declared", None, kind)?;
    ConstGauge::new(drifted).encode(all)
}

fn encode_each(standings: &[Standing], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut each = encoder.encode_descriptor(
        "release_objects_drifted",
        "Objects of a release that are not as declared; no series without any",
        None,
        ConstGauge::new(0_u64).metric_type(),
    )?;
    for standing in standings.iter().filter(|standing| standing.drifted > 0) {
        let labels =
            [("namespace", standing.release.namespace.as_str()), ("release", standing.release.name.as_str())];
        ConstGauge::new(standing.drifted).encode(each.encode_family(&labels)?)?;
    }
    Ok(())
}
