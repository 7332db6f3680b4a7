//! What a process with ports needs, whatever it serves: settings as checked values, log lines and spans, metrics,
//! certificates, the callers whom the webhook answers, and TLS servers with limits. No rule of the guard is here.

pub mod callers;
pub mod config;
pub mod metrics;
pub mod server;
pub mod telemetry;
pub mod tls;

// The server of the tests names this crate as the tests of the webhook do.
#[cfg(test)]
extern crate self as kubemoor_runtime;
