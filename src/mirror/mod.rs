//! What is kept of a cluster: what it holds, as far as verdicts and repairs need
//! it, followed by list and watch.
//!
//! Entry points: [`kinds::Kinds`] (which kinds the cluster serves and how their
//! fields compare), [`releases::Releases`] (the index of what releases declare,
//! fed by a watch of records), [`policies::InForce`], [`allowances::Allowances`]
//! and [`autoscalers::Autoscalers`] (what may change), [`arbiter::Arbiter`]
//! (remembered dry runs); `reflect` feeds what is listed and watched.
//! [`directory`] holds releases in files for a guard without a cluster.
//!
//! Invariants: a failed or slow API server never costs the last good state; what
//! a whole listing does not name is gone. Must not judge an edit, know
//! AdmissionReview, ask the API server but through `client`, or put a Secret's
//! values into a log or an error.

mod custom;
mod payloads;
mod queue;
pub(crate) mod raw;
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
