//! How one talks to an API server: every request that goes to one, and what its
//! answer is. No decision, and nothing kept.
//!
//! Entry points: [`connection::connect`], then [`objects::Objects`] (single
//! objects of any kind), [`guarded`], [`allowances`] and `policy_statuses` (Kubemoor's own
//! kinds), [`registrations`] (the webhook configurations), [`events::Events`] (written; `event_list` reads them), [`lease`] (who leads), [`access`], [`identity`] and
//! [`user_authority`] (who somebody is, and may do what), [`forward`] (to a guard, through the API server). What goes through [`call`] has a size cap and a
//! time; lists come in `pages`; what a leader writes goes through [`writer`].
//!
//! Invariants: a failed or slow API server costs an answer, never a panic. What
//! the cluster holds is untrusted: every body has a size cap, one bad object never
//! ends a watch. Must not know what is kept of the cluster, judge an edit, know
//! AdmissionReview, or put a Secret's values into a log or an error.

mod live;
mod own_secret;

pub(crate) mod event_list;
pub(crate) mod pages;
pub(crate) mod policy_statuses;
pub(crate) mod resource;
pub(crate) mod schemas;
pub(crate) mod watch;

pub mod access;
pub mod allowances;
pub mod call;
pub mod caller_secret;
pub mod certificate_secret;
pub mod connection;
pub mod discovery;
pub mod events;
pub mod forward;
pub mod guard_api;
pub mod guarded;
pub mod identity;
pub mod labelled;
pub mod lease;
pub mod objects;
pub mod registrations;
pub mod user_authority;
pub mod writer;

pub use discovery::by_short_name;
pub use resource::Resource;
pub use watch::Event;
