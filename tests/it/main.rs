//! The integration tests, as one binary.
// A panic in a test is the failure's report; clippy knows that of functions
// marked as tests, and not of those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::string_slice)]

mod architecture;
mod attacks;
mod bad_input;
mod check;
mod demo;
mod embedded;
mod records_guarded;
mod support;
