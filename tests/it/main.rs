//! The integration tests, as one binary.
// A panic in a test is the failure's report; clippy knows that of functions
// marked as tests, and not of those that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::string_slice)]

mod allowances;
mod allowed_edits;
mod architecture;
mod attacks;
mod bad_input;
mod break_glass;
mod check;
mod cluster_allowances;
mod cluster_arbiter;
mod cluster_autoscalers;
mod cluster_kinds;
mod cluster_objects;
mod cluster_outages;
mod cluster_releases;
mod command_diff;
mod command_explain;
mod command_line;
mod declared_fields;
mod deletions;
mod demo;
mod documentation;
mod drifts;
mod embedded;
mod emergency;
mod forecast;
mod guarded_releases;
mod helm_failures;
mod helm_kinds;
mod helm_operations;
mod helm_records;
mod helm_scene;
mod installation;
mod leaders;
mod ledger;
mod ledger_audit;
mod ledger_outages;
mod ledger_secrets;
mod ledger_unjudged;
mod loop_faults;
mod loop_orders;
mod loop_scene;
mod policies_watched;
mod policy_command;
mod policy_library;
mod policy_resources;
mod records_guarded;
mod registration;
mod repairs;
mod reverts;
mod sealed_fields;
mod spared_objects;
mod support;
