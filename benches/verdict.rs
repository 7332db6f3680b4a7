//! What a verdict costs: the CPU that the webhook's server takes per review,
//! against a handler that only reads the body and says yes, and under many
//! policies against none.
//!
//! All run behind the same server, each in a process of its own, so that its
//! CPU is counted apart from the client's. The rounds alternate between two of
//! them: what else the machine does falls on both, and the median of the
//! rounds' ratios is the result. What the ledger's writer takes behind the
//! answers is counted apart.
//!
//! `cargo bench --bench verdict` takes all reviews, `-- refused` those whose names hold that text.
// A benchmark that cannot go on says why and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stdout)]

mod verdict {
    pub(crate) mod client;
    pub(crate) mod load;
    #[allow(dead_code, reason = "another benchmark uses all of it")]
    pub(crate) mod server;
}

use std::env;
use std::path::Path;

use verdict::client::BenchClient;
use verdict::load::{self, BenchReview};
use verdict::server::{self, BenchServers};

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
    load::write_policies(folder.path(), load::POLICIES);
    let server = BenchServers::start(folder.path());
    println!("CPU of the server per review, median of {ROUNDS} rounds of {REQUESTS} reviews");
    let named: Vec<&String> = arguments.iter().skip(1).filter(|name| !name.starts_with('-')).collect();
    let is_asked =
        |review: &BenchReview| named.is_empty() || named.iter().any(|name| review.name.contains(*name));
    let measure = |(base, other), review: &BenchReview, bar| {
        if is_asked(review) {
            measure(&server, base, other, review, bar);
        }
    };
    headline("against a handler that says yes", "yes", "verdict");
    let pair = (server::NOD, server::JUDGE);
    measure(pair, &load::undeclared(), 1.2);
    measure(pair, &load::annotated(), 2.5);
    measure(pair, &load::status_written(), 2.5);
    measure(pair, &load::scaled_up(), 5.0);
    measure(pair, &load::with_another_image(), 5.0);
    headline("known by a token against anybody", "open", "token");
    let pair = (server::OPEN, server::JUDGE);
    measure(pair, &load::undeclared(), 1.03);
    measure(pair, &load::annotated(), 1.03);
    headline(&format!("{} policies against none", load::POLICIES), "none", "policies");
    let pair = (server::JUDGE, server::GOVERNED);
    measure(pair, &load::undeclared(), 1.1);
    measure(pair, &load::annotated(), 1.5);
    measure(pair, &load::scaled_up(), 1.5);
    measure(pair, &load::with_another_image(), 1.5);
}

fn headline(title: &str, base: &str, other: &str) {
    println!("{title:<44} {:>8} {base:>9} {other:>9} {:>6} {:>9}", "bytes", "ratio", "ledger");
}

fn measure(server: &BenchServers, base: &str, other: &str, review: &BenchReview, bar: f64) {
    let mut clients =
        [base, other].map(|role| (role, BenchClient::connect(server.server(role), &review.text)));
    for (role, client) in &mut clients {
        let answer = client.ask();
        let wanted = if *role == server::NOD { load::ALLOWED } else { review.answer };
        assert!(answer.contains(wanted), "{} is answered with {answer}", review.name);
        client.ask_times(WARM_UP);
    }
    let [(base, asking_base), (other, asking_other)] = &mut clients;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // Each goes first every other round.
        rounds.push(if round % 2 == 0 {
            let first = server.cpu_of(base, || asking_base.ask_times(REQUESTS));
            (first, server.cpu_of(other, || asking_other.ask_times(REQUESTS)))
        } else {
            let second = server.cpu_of(other, || asking_other.ask_times(REQUESTS));
            (server.cpu_of(base, || asking_base.ask_times(REQUESTS)), second)
        });
    }
    let per_request = |cpu: f64| cpu / REQUESTS as f64;
    let base = median(rounds.iter().map(|(base, _)| per_request(base.answering)));
    let other = median(rounds.iter().map(|(_, other)| per_request(other.answering)));
    let keeping = median(rounds.iter().map(|(_, other)| per_request(other.keeping)));
    let ratio = median(rounds.iter().map(|(base, other)| other.answering / base.answering));
    println!(
        "{:<44} {:>8} {base:>6.1} us {other:>6.1} us {ratio:>6.2} {keeping:>6.1} us (at most {bar}{})",
        review.name,
        review.text.len(),
        if ratio > bar { ": missed" } else { "" }
    );
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
