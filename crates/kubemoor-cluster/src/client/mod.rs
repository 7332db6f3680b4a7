//! The client of the API server: every request to it, and the meaning of its answers. Decides nothing and
//! stores nothing.
//!
//! Entry points: [`connection::connect`], then [`objects::Objects`] (single objects of any kind),
//! [`guarded`], [`allowances`] and `policy_statuses` (Kubemoor's own kinds), [`registrations`] (the webhook
//! configurations), [`events::Events`] (writes events; `event_list` reads them), [`lease`] (leader election),
//! [`access`], [`identity`] and [`user_authority`] (users and their rights), [`forward`] (to a guard, through
//! the API server). Requests through [`call`] have a size cap and a time limit; lists come in `pages`; a
//! leader's writes go through [`writer`].
//!
//! Invariants: a failed or slow API server costs an answer, never a panic. Data from the cluster is
//! untrusted: every body has a size cap, and one bad object never ends a watch. Must not cache the cluster's
//! state, judge a change, know AdmissionReview, or put a Secret's values into a log or an error.

mod live;

pub mod definition;
pub mod event_list;
pub mod pages;
pub mod policy_statuses;
pub mod resource;
pub(crate) mod schemas;
pub mod watch;

pub mod access;
pub mod allowances;
pub mod call;
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
pub mod shared_secret;
pub mod user_authority;
pub mod writer;

pub use discovery::by_short_name;
pub use resource::Resource;
pub use watch::Event;
