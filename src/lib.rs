//! Kubemoor guards Helm releases against drift. This package is the program: [`cli`] has the commands, [`app`]
//! assembles `kubemoor serve` from the crates in `crates/`.

mod app;
pub mod cli;
