//! The known state of a cluster, as far as verdicts and repairs need it, followed by list and watch.
//!
//! Entry points: [`kinds::Kinds`] (the served kinds and the types of their fields), [`releases::Releases`]
//! (the index of the declarations of releases, fed by a watch of records), [`policies::InForce`],
//! [`allowances::Allowances`] and [`autoscalers::Autoscalers`] (permitted changes), [`arbiter::Arbiter`]
//! (remembered dry runs); `reflect` feeds them from lists and watches. [`directory`] holds releases in files
//! for a guard without a cluster.
//!
//! Invariants: a failed or slow API server never costs the last good state. An object that a whole listing
//! does not name does not exist any more. Must not judge a change, know AdmissionReview, ask the API server
//! except through `client`, or put a Secret's values into a log or an error.

mod custom;
mod managed;
mod payloads;
mod queue;
mod records;
mod reflect;

pub mod allowances;
pub mod arbiter;
pub mod autoscalers;
pub mod directory;
pub mod guarded;
pub mod kinds;
pub mod namespaces;
pub mod policies;
pub mod progress;
pub mod releases;

pub use queue::{Announcer, Changes};
