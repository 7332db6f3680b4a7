//! A user's view of a cluster, and the actions that their own rights allow: shared by the commands and the
//! web page.
//!
//! Entry points: `reading::Reader`, then `releases`, `comparison` and `explanation`; `allowances`, `policies`
//! and `ledger` for lists; `orders` and `exceptions` for actions. Invariant: needs no guard and no right of
//! its own: the API server authorizes the user. No answer holds a Secret's values. Every failure is one
//! sentence. Must not print, know the command line or the page, or judge by other rules than the guard's.

pub(crate) mod allowances;
pub(crate) mod chart;
pub(crate) mod comparison;
pub(crate) mod exceptions;
pub(crate) mod explanation;
pub(crate) mod failure;
pub(crate) mod fleet;
pub(crate) mod guard;
pub(crate) mod ledger;
pub(crate) mod object;
pub(crate) mod orders;
pub(crate) mod policies;
pub(crate) mod pulses;
pub(crate) mod reading;
pub(crate) mod releases;
pub(crate) mod replay;
pub(crate) mod sheet;
pub(crate) mod times;
