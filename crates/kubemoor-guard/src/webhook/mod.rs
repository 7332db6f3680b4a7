//! The admission webhook: the only module that knows `AdmissionReview`. The path of a review begins at
//! [`validate::Validator::answer`] and goes through `intake`, `review`, `case` and `look`; ARCHITECTURE.md lists it.

mod annotations;
pub mod autoscaling;
pub mod case;
mod hints;
pub mod intake;
pub mod look;
pub mod order;
pub mod registration;
pub mod review;
mod shares;
pub mod validate;

#[cfg(test)]
mod tests;
