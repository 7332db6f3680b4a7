//! Every call to the API server, and what is kept of its answers. No decision.
//!
//! Entry points: [`client::connect`], then [`kinds::Kinds`] (which kinds the
//! cluster serves and how their fields compare), [`releases::Releases`] (the
//! index of what releases declare, fed by a watch of records), [`objects::Objects`]
//! (single objects), [`arbiter::Arbiter`] (dry runs), [`access`] (who may what),
//! [`policies::InForce`], [`allowances::Allowances`] and
//! [`autoscalers::Autoscalers`] (what may change).
//!
//! Invariants: a failed or slow API server costs an answer, never a panic and
//! never the last good state. What the cluster holds is untrusted: every body
//! has a size cap, one bad object never ends a watch. Must not judge an edit,
//! know AdmissionReview, or put a Secret's values into a log or an error.

mod custom;
pub mod discovery;
mod live;
mod own_secret;
mod payloads;
mod queue;
mod raw;
mod records;
mod resource;
mod schemas;
mod watch;

pub mod access;
pub mod allowances;
pub mod arbiter;
pub mod autoscalers;
pub mod call;
pub mod caller_secret;
pub mod certificate_secret;
pub mod client;
pub mod directory;
pub mod events;
pub mod guard_api;
pub mod guarded;
pub mod identity;
pub mod kinds;
pub mod labelled;
pub mod lease;
pub mod namespaces;
pub mod objects;
pub mod policies;
pub mod progress;
pub mod releases;

pub use discovery::by_short_name;
pub use queue::{Announcer, Changes};
pub use resource::Resource;
pub use watch::Event;
