//! The program's entry: what is global to the process, and nothing else.

use std::process::ExitCode;

/// A denial allocates and frees a few hundred small values, which takes jemalloc less time than the allocator of glibc.
/// `.cargo/config.toml` sets it up.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Fails only when a provider is installed already, and nothing ran before.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    kubemoor::cli::run()
}
