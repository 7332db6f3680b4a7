//! The entry point: sets what is global to the process.

use std::process::ExitCode;

/// A denial allocates and frees a few hundred small values; jemalloc does this faster than glibc's allocator.
/// `.cargo/config.toml` configures it.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Fails only if a provider is already installed, and nothing ran before this.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    kubemoor::cli::run()
}
