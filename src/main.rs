//! The program's entry: what is global to the process, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only when a provider is installed already, and nothing ran before.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    kubemoor::cli::run()
}
