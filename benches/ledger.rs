//! What the ledger carries and what it costs: rows a second that are written,
//! filtered queries over many rows, bytes per row, on SQLite and PostgreSQL, and over the rows of 200 clusters; the
//! states of the releases of these clusters; recorded changes that are judged by other policies; and the webhook's
//! answers beside a ledger that is written to all the time.
//!
//! `cargo bench --bench ledger` takes all; `-- write`, `-- query`, `-- clusters`, `-- fleet`, `-- replay` and
//! `-- webhook` take one, or several. A number behind one is how many rows or releases it takes, or how many rounds:
//! `-- write 200000 query 5000000 clusters 5000000 fleet 100000 replay 1000000 webhook 24`, which are the numbers
//! without one.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::string_slice)]
#![allow(clippy::print_stdout)]

mod ledger {
    pub(crate) mod clusters;
    pub(crate) mod fleet;
    pub(crate) mod query;
    pub(crate) mod replay;
    pub(crate) mod rows;
    pub(crate) mod webhook;
    pub(crate) mod write;
}

#[allow(dead_code, reason = "the other benchmark uses all of it")]
#[path = "verdict"]
mod verdict {
    pub(crate) mod client;
    pub(crate) mod load;
    pub(crate) mod server;
}

#[path = "../tests/it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
mod support;

use std::path::Path;

/// The parts, and how much of each.
const PARTS: [(&str, u64); 6] = [
    ("write", 200_000),
    ("query", 5_000_000),
    ("clusters", 5_000_000),
    ("fleet", 100_000),
    ("replay", 1_000_000),
    ("webhook", 24),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, folder] = arguments.as_slice()
        && flag == verdict::server::FLAG
    {
        return verdict::server::run(Path::new(folder));
    }
    let asked: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let none = !PARTS.iter().any(|(part, _)| asked.contains(part));
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (part, usual) in PARTS {
        let at = asked.iter().position(|word| *word == part);
        if at.is_none() && !none {
            continue;
        }
        let number = at.and_then(|at| asked.get(at + 1)?.parse().ok()).unwrap_or(usual);
        match part {
            "write" => runtime().block_on(ledger::write::measure(number)),
            "query" => runtime().block_on(ledger::query::measure(number)),
            "clusters" => runtime().block_on(ledger::clusters::measure(number)),
            "fleet" => runtime().block_on(ledger::fleet::measure(number)),
            "replay" => runtime().block_on(ledger::replay::measure(number)),
            _ => ledger::webhook::measure(number),
        }
    }
}
