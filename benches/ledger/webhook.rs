//! How long the webhook's answers take while its ledger is written to all the
//! time, beside how long they take without that.
//!
//! One server, one client that sends a review, waits for the answer and keeps to
//! a pace. Rounds alternate between both, so that what else the machine does
//! falls on both. The rows are made in both, since in production it is the webhook that makes them.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::verdict::client::BenchClient;
use crate::verdict::load::{self, BenchReview};
use crate::verdict::server::{self, BenchServer};

/// Rows a second beside those of the verdicts.
const ROWS: u64 = 10_000;

/// Reviews a second.
const REVIEWS: u32 = 300;

/// What p99 may grow by.
const BAR: f64 = 1.1;

const ROUND: Duration = Duration::from_secs(4);

/// What a round's first moments leave out: the ledger is written to or at rest by then.
const SETTLING: Duration = Duration::from_millis(500);

/// Milliseconds of one round.
#[derive(Clone, Copy)]
struct Taken {
    median: f64,
    p99: f64,
}

/// Prints both, by the median of so many rounds of each.
pub(crate) fn measure(rounds: u64) {
    let folder = tempfile::tempdir().unwrap();
    load::write_store(folder.path());
    let awake = keep_processors_awake();
    if awake.is_none() {
        println!(
            "/dev/cpu_dma_latency is not writable: each p99 includes the time that processors take to wake up"
        );
    }
    let mut server = BenchServer::start(folder.path(), server::JUDGE);
    println!(
        "{REVIEWS} reviews a second beside {ROWS} rows a second into SQLite, median of {rounds} rounds of {} s each",
        ROUND.as_secs()
    );
    for review in [load::annotated(), load::scaled_up()] {
        compare(&mut server, &review, rounds);
    }
}

/// Keeps idle processors from sleeping until the file is dropped, by the kernel's interface for quality of service: a
/// virtual processor that sleeps can take milliseconds to wake up, more than a ledger adds.
fn keep_processors_awake() -> Option<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
    let microseconds = 0_i32;
    file.write_all(&microseconds.to_ne_bytes()).ok()?;
    Some(file)
}

fn compare(server: &mut BenchServer, review: &BenchReview, rounds: u64) {
    let mut client = BenchClient::connect(server, &review.text);
    assert!(client.ask().contains(review.answer), "{}", review.name);
    client.ask_times(1000);
    let (mut without, mut with, mut written) = (Vec::new(), Vec::new(), Vec::new());
    let (_, before) = server.make_others(ROWS, false);
    let mut elsewhere = before;
    for _ in 0..rounds {
        without.push(round(&mut client));
        let (before_round, _) = server.make_others(ROWS, true);
        let begin = Instant::now();
        with.push(round(&mut client));
        let (after, beyond) = server.make_others(ROWS, false);
        elsewhere = beyond;
        written.push((after - before_round) as f64 / begin.elapsed().as_secs_f64());
    }
    server.make_others(0, false);
    let of = |rounds: &[Taken], it: fn(&Taken) -> f64| median(rounds.iter().map(it));
    let ratio = median(with.iter().zip(&without).map(|(with, without)| with.p99 / without.p99));
    println!(
        "  {:<40} p50 {:.2} ms without, {:.2} ms with; p99 {:.2} ms without, {:.2} ms with: {ratio:.2} times \
         (at most {BAR}{}); {:.0} rows/s, {} rows found no place in the database",
        review.name,
        of(&without, |it| it.median),
        of(&with, |it| it.median),
        of(&without, |it| it.p99),
        of(&with, |it| it.p99),
        if ratio > BAR { ": missed" } else { "" },
        median(written.into_iter()),
        elsewhere - before
    );
}

/// Sends reviews at their pace for a while.
fn round(client: &mut BenchClient) -> Taken {
    let begin = Instant::now();
    let mut times = Vec::new();
    for number in 0.. {
        let due = begin + Duration::from_secs(1) / REVIEWS * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if due > begin + ROUND {
            break;
        }
        let start = Instant::now();
        client.ask_times(1);
        if due > begin + SETTLING {
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
    }
    times.sort_by(f64::total_cmp);
    Taken { median: times[times.len() / 2], p99: times[times.len() * 99 / 100] }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
