//! The admission surface: the one place that knows `AdmissionReview`.
//!
//! `server` keeps connections, `intake` turns a request into a review's bytes,
//! `review` reads those bytes and writes the answer, `validate` judges with
//! `case` and `look`, `mutate` sets edits back, `registration` keeps the webhook
//! configurations.

pub mod case;
pub mod held;
pub mod intake;
pub mod look;
mod mutate;
pub mod registration;
mod request;
pub mod review;
pub mod server;
pub mod validate;
