//! Access to a cluster: [`client`] sends all requests to the API server and is the only module that writes to it;
//! [`mirror`] keeps the cluster state that the guard needs in memory, updated by watches.

/// The API server client: sends every request and interprets the responses. A failed or slow API server causes an
/// error, never a panic. Data from the cluster is untrusted: every body has a size limit, and one invalid object never
/// ends a watch. Caches no objects, evaluates no changes, and puts no Secret values into a log or an error.
pub mod client {
    pub mod access;
    pub mod allowances;
    pub mod call;
    pub mod connection;
    pub mod discovery;
    pub mod events;
    pub mod forward;
    pub mod guarded;
    pub mod lease;
    pub mod objects;
    pub mod pages;
    pub mod registrations;
    pub mod resource;
    pub mod shared_secret;
    pub mod watch;
    pub mod writer;

    pub use discovery::by_short_name;
    pub use resource::ApiResource;
    pub use watch::ObjectEvent;
}

/// The cluster state that verdicts and repairs need, kept in memory by list and watch. If the API server fails or is
/// slow, the last good state is kept. An object that is missing from a complete list is treated as deleted. Evaluates
/// no changes, calls the API server only through [`client`], and puts no Secret values into a log or an error.
pub mod mirror {
    mod records;
    mod reflect;

    pub mod allowances;
    pub mod arbiter;
    pub mod autoscalers;
    pub mod directory;
    pub mod kinds;
    pub mod policies;
    pub mod policy_files;
    pub mod releases;

    pub use reflect::{ChangeAnnouncer, ChangeQueue, GuardedWatch, Progress, until};
}

#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "each crate's tests use a part of it")]
#[path = "../../kubemoor-helm/src/samples.rs"]
mod sample_releases;
