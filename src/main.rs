//! The program's entry: what is global to the process, and nothing else.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A denial allocates and frees a few hundred small values. With the allocator of glibc that is a third of its cost.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Fails only when a provider is installed already, and nothing ran before.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    kubemoor::cli::run()
}
