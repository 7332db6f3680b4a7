//! The base of a process that serves ports: validated settings, logs and traces, metrics, certificates, authentication
//! of the webhook's callers, and TLS servers with limits. It contains no rules of the guard.

pub mod callers;
pub mod config;
pub mod metrics;
pub mod server;
pub mod telemetry;
pub mod tls;

// The test server of `server/tests` uses this name, because the webhook's tests include the same file.
#[cfg(test)]
extern crate self as kubemoor_runtime;
