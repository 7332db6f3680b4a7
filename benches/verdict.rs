//! What a verdict costs: the CPU that the webhook's server takes per review,
//! against a handler that only reads the body and says yes.
//!
//! Both run behind the same server, each in a process of its own, so that its
//! CPU is counted apart from the client's. The rounds alternate between them:
//! what else the machine does falls on both, and the median of the rounds'
//! ratios is the result.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stdout)]

mod verdict {
    pub(crate) mod client;
    pub(crate) mod load;
    pub(crate) mod server;
}

use std::env;
use std::path::Path;

use verdict::client::Client;
use verdict::load::{self, Review};
use verdict::server::{self, Served};

/// Rounds of each pair; their median counts.
const ROUNDS: usize = 21;

/// Requests to one server in one round.
const REQUESTS: usize = 1000;

/// Requests before the first round.
const WARM_UP: usize = 1000;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, flag, folder] = arguments.as_slice()
        && flag == server::FLAG
    {
        return server::run(Path::new(folder));
    }
    let folder = tempfile::tempdir().unwrap();
    load::write_store(folder.path());
    let mut server = Served::start(folder.path());
    let reviews = [
        (load::undeclared(), 1.2),
        (load::annotated(), 2.0),
        (load::status_written(), 2.0),
        (load::scaled_up(), 2.0),
        (load::with_another_image(), 2.0),
    ];
    println!("CPU of the server per review, median of {ROUNDS} rounds of {REQUESTS} reviews:");
    println!("{:<44} {:>8} {:>9} {:>9} {:>6}", "review", "bytes", "yes", "verdict", "ratio");
    for (review, bar) in reviews {
        measure(&mut server, &review, bar);
    }
}

fn measure(server: &mut Served, review: &Review, bar: f64) {
    let mut judging = Client::connect(server, server::JUDGE, &review.text);
    let mut nodding = Client::connect(server, server::NOD, &review.text);
    let (answer, yes) = (judging.ask(), nodding.ask());
    assert!(yes.contains("\"allowed\":true"), "{yes}");
    assert!(answer.contains(review.answer), "{} is answered with {answer}", review.name);
    for _ in 0..WARM_UP {
        judging.ask();
        nodding.ask();
    }
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // Each goes first every other round.
        let (yes, verdict) = if round % 2 == 0 {
            let yes = server.cpu_of(server::NOD, || nodding.ask_times(REQUESTS));
            (yes, server.cpu_of(server::JUDGE, || judging.ask_times(REQUESTS)))
        } else {
            let verdict = server.cpu_of(server::JUDGE, || judging.ask_times(REQUESTS));
            (server.cpu_of(server::NOD, || nodding.ask_times(REQUESTS)), verdict)
        };
        rounds.push((yes, verdict));
    }
    let per_request = |cpu: f64| cpu / REQUESTS as f64;
    let yes = median(rounds.iter().map(|(yes, _)| per_request(*yes)));
    let verdict = median(rounds.iter().map(|(_, verdict)| per_request(*verdict)));
    let ratio = median(rounds.iter().map(|(yes, verdict)| verdict / yes));
    println!(
        "{:<44} {:>8} {:>6.1} us {:>6.1} us {:>6.2} (at most {bar}{})",
        review.name,
        review.text.len(),
        yes,
        verdict,
        ratio,
        if ratio > bar { ": missed" } else { "" }
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
