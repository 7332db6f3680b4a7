//! What a guard costs and how fast it is on a real control plane: its resident
//! memory with many releases, and the time from a deletion to the object's
//! return.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::string_slice)]
#![allow(clippy::print_stdout)]

mod cluster {
    pub(crate) mod memory;
    pub(crate) mod recreation;
}

#[path = "../tests/it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
mod support;

fn main() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime().block_on(cluster::memory::measure());
    runtime().block_on(cluster::recreation::measure());
}
