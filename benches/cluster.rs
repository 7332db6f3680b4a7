//! What a guard costs and how fast it is on a real control plane: what the webhook adds to a request, the requests,
//! CPU and memory of one whose objects are all as declared, or all missing, beside what polling
//! them would cost, and the time from a drift to its repair.
//!
//! `cargo bench --bench cluster` takes all; `-- admission`, `-- in_sync`, `-- missing` or `-- repairs`
//! takes one; `-- in_sync 10000` takes so many releases, `-- in_sync 1000 10` gives each so many revisions.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::string_slice)]
#![allow(clippy::print_stdout)]

mod cluster {
    pub(crate) mod admission;
    pub(crate) mod in_sync;
    pub(crate) mod missing;
    pub(crate) mod objects;
    pub(crate) mod repairs;
}

#[path = "../tests/it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
mod support;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let mut numbers = named.iter().filter_map(|named| named.parse::<u32>().ok());
    let count = numbers.next().and_then(|count| count.try_into().ok()).unwrap_or(cluster::in_sync::RELEASES);
    let revisions = numbers.next().unwrap_or(1);
    let asked = |name: &str| named.is_empty() || named.iter().any(|asked| asked == name);
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if asked("admission") {
        runtime().block_on(cluster::admission::measure());
    }
    if asked("repairs") {
        runtime().block_on(cluster::repairs::measure());
    }
    if asked("in_sync") {
        runtime().block_on(cluster::in_sync::measure(count, revisions));
    }
    if asked("missing") {
        runtime().block_on(cluster::missing::measure());
    }
}
