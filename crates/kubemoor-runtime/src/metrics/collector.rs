//! Metrics that are computed at each scrape, so that none can be outdated.
//!
//! Entry point: [`collect`]. Invariant: keeps no number. Must not name a metric.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

struct AtScrape<F>(F);

/// Has every scrape call `encode`, which encodes the metrics.
pub(super) fn collect<F>(registry: &mut Registry, encode: F)
where
    F: Fn(DescriptorEncoder<'_>) -> Result<(), fmt::Error> + Send + Sync + 'static,
{
    registry.register_collector(Box::new(AtScrape(encode)));
}

impl<F> fmt::Debug for AtScrape<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

impl<F> Collector for AtScrape<F>
where
    F: Fn(DescriptorEncoder<'_>) -> Result<(), fmt::Error> + Send + Sync + 'static,
{
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        (self.0)(encoder)
    }
}
