//! How costs grow: of a verdict with the release, the object, the review, the policies and the
//! releases, and of a page of the ledger with its rows. A line for each, linear or better.
//!
//! `cargo bench --bench growth` prints them; `-- docs/performance` draws them into that folder as well.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stdout, clippy::string_slice)]

mod growth {
    pub(crate) mod chart;
    pub(crate) mod pages;
    pub(crate) mod verdicts;
}

#[allow(dead_code, reason = "another benchmark uses all of it")]
#[path = "verdict"]
mod verdict {
    pub(crate) mod client;
    pub(crate) mod load;
    pub(crate) mod server;
}

#[allow(dead_code, reason = "another benchmark uses all of it")]
#[path = "ledger/rows.rs"]
mod rows;

use std::path::Path;

use growth::chart::GrowthLine;

/// What the cost may be multiplied by where its cause doubles: twice, and what a measurement errs by.
const BAR: f64 = 2.2;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, folder] = arguments.as_slice()
        && flag == verdict::server::FLAG
    {
        return verdict::server::run(Path::new(folder));
    }
    let folder = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    let mut lines = growth::verdicts::measure();
    lines.push(growth::pages::measure());
    for line in lines {
        print(&line);
        if let Some(folder) = folder {
            growth::chart::draw(&line, Path::new(folder));
        }
    }
}

/// Prints a line and by what the cost is multiplied where its cause doubles, at the end of the line.
fn print(line: &GrowthLine) {
    println!("{}, by {}", line.cost, line.cause);
    for (cause, cost) in &line.points {
        println!("  {cause:>9} {cost:>9.1}");
    }
    let [.., (cause, cost), (last_cause, last_cost)] = line.points.as_slice() else { return };
    let doublings = (*last_cause as f64 / *cause as f64).log2();
    let factor = (last_cost / cost).powf(1.0 / doublings);
    let missed = if factor > BAR { ": missed" } else { "" };
    println!("  for each doubling at the end, times {factor:.2} (at most {BAR}{missed})");
}
