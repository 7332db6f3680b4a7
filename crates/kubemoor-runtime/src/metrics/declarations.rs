//! Metrics of the cache of declared fields.
//!
//! Entry point: [`register`]. Invariant: the cache counts, and every scrape reads its counters. Must not keep
//! a number itself.

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;

use super::collector::collect;

/// The metrics' names, and what they count.
const METRICS: [(&str, &str); 2] = [
    ("declarations_asked", "Declared objects of which somebody asked for the fields"),
    ("declarations_read", "Declared objects of which the fields were not at hand and had to be read"),
];

/// Registers the metrics. Every scrape calls `counts` for the number of requests for fields, and of those
/// that had to read a document.
pub fn register<F>(registry: &mut Registry, counts: F)
where
    F: Fn() -> [u64; 2] + Send + Sync + 'static,
{
    collect(registry, move |mut encoder| {
        for ((name, help), count) in METRICS.into_iter().zip(counts()) {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    });
}
