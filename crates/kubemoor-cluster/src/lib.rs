//! A cluster as the guard sees it: [`client`] is how an API server is asked, and the only place that writes to one;
//! [`mirror`] is what is kept of it in memory, fed by watches.

/// The client of the API server: every request to it, and the meaning of its answers. A failed or slow API server costs
/// an answer, never a panic. Data from the cluster is untrusted: every body has a size cap, and one bad object never
/// ends a watch. Caches nothing of the cluster, judges no change, and puts no Secret's values into a log or an error.
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

/// The known state of a cluster, as far as verdicts and repairs need it, followed by list and watch. A failed or slow API
/// server never costs the last good state. An object that a whole listing does not name does not exist any more. Judges
/// no change, asks the API server only through [`client`], and puts no Secret's values into a log or an error.
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
