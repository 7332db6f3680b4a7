//! Metrics of what a replica needs to be called: its readiness, and the certificate in use.
//!
//! Entry point: [`register`]. Invariant: every scrape asks anew. Must not keep a number itself.

use jiff::Timestamp;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::collector::collect;

/// What a replica needs to be called, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Whether all conditions of `/readyz` are met.
    pub is_ready: bool,
    /// Begin and end of the validity of the certificate in use; `None` as long as it is only a placeholder.
    pub validity: Option<(Timestamp, Timestamp)>,
}

/// Registers the metrics. Every scrape calls `ask`.
pub fn register<F>(registry: &mut Registry, ask: F)
where
    F: Fn() -> Serving + Send + Sync + 'static,
{
    collect(registry, move |mut encoder| {
        let Serving { is_ready, validity } = ask();
        let ready = ConstGauge::new(i64::from(is_ready));
        let help = "Whether this replica is ready to be called";
        ready.encode(encoder.encode_descriptor("ready", help, None, ready.metric_type())?)?;
        let Some((begin, end)) = validity else { return Ok(()) };
        for (name, help, time) in [
            ("certificate_not_before_timestamp", "Begin of the validity of the certificate in use", begin),
            ("certificate_expiration_timestamp", "End of the validity of the certificate in use", end),
        ] {
            let gauge = ConstGauge::new(time.as_second());
            let unit = Some(&Unit::Seconds);
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)?;
        }
        Ok(())
    });
}
