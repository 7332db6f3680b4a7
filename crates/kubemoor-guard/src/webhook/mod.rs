//! The admission surface: the one place that knows `AdmissionReview`.
//!
//! Entry point: [`validate::Validator`]. `door` tells the API server from everybody else,
//! `intake` turns a request into a review's bytes, `review` reads those bytes and
//! writes the answer, `validate` judges with `case`, `claims` and `look`, large
//! ones within their `shares`, `suggest` names chart values for messages, `rights` asks who may create exceptions and who
//! may see values, `mutate` sets edits back,
//! `order` asks what the user who orders a repair may write, `relabel` warns of labels that choose a milder policy,
//! `registration` keeps the webhook
//! configurations.
//!
//! Invariant: an edit of an undeclared object is allowed without a call to the cluster, and no
//! content of an object leads to an error. Must not hold a rule: the rules are in `verdict`.

mod acts;
pub mod case;
mod claims;
pub mod door;
pub mod held;
pub mod intake;
pub mod look;
mod mutate;
pub mod order;
pub mod registration;
mod relabel;
mod repeats;
mod request;
pub mod review;
mod rights;
mod shares;
mod suggest;
pub mod validate;

#[cfg(test)]
mod tests;
