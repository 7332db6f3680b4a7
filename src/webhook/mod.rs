//! The admission surface: the one place that knows `AdmissionReview`.
//!
//! `server` keeps connections, `intake` turns a request into a review's bytes,
//! `review` reads those bytes and writes the answer, `validate` judges with
//! `case` and `look`, `registration` keeps the webhook configuration.

pub mod case;
pub mod held;
pub mod intake;
pub mod look;
pub mod registration;
mod request;
pub mod review;
pub mod server;
pub mod validate;
