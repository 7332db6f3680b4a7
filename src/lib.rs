//! Kubemoor keeps Helm releases where Helm put them.
//!
//! The modules stand in the order of their ranks: each may import what stands
//! below it, never what stands above. From `verdict` down everything is pure:
//! values in, values out, no I/O, no clock.

pub mod cli;

pub mod app;

pub mod admin;
pub mod guard;
pub mod web;
pub mod webhook;

pub mod inspect;

pub mod mirror;

pub mod client;
pub mod ledger;
pub mod notify;
pub mod server;

pub mod callers;
pub mod metrics;
pub mod telemetry;
pub mod tls;

pub mod reconcile;

pub mod verdict;

pub mod policy;

pub mod helm;

pub mod declaration;

pub mod config;
pub mod model;

mod sweep;
