//! Kubemoor keeps Helm releases where Helm put them. This package is the program: [`cli`] has its commands, [`app`] puts
//! the parts of `kubemoor serve` together. The parts themselves are the crates in `crates/`.

mod app;
pub mod cli;
