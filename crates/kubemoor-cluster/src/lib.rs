//! A cluster as the guard sees it: [`client`] is how an API server is asked, and the only place that writes to one;
//! [`mirror`] is what is kept of it in memory, fed by watches.

pub mod client;
pub mod mirror;

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;
