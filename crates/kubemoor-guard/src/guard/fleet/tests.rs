//! What is to be written, step by step.

use super::*;

/// What happens to the machine, at a second.
enum Step {
    Note(&'static [&'static str]),
    /// What is due is this, and is taken by the database: these of it stand so.
    Takes(Expected, &'static [(&'static str, u64)]),
    /// What is due is this, and the database fails.
    Fails(Expected),
    /// Nothing is due before this second.
    Rests(u64),
}

/// Whether the guard says that it is there, whether rows are looked through, and which releases are looked at.
type Expected = (bool, bool, &'static [&'static str]);

use Step::{Fails, Note, Rests, Takes};

fn release(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: name.into() }
}

fn state(name: &str, drifted: u64) -> FleetReleaseState {
    FleetReleaseState {
        release: release(name),
        revision: 1,
        declared: 5,
        drifted,
        oldest_drift: None,
        ready: "True",
        reason: "InSync",
        status: "deployed",
        chart: None,
        values: None,
        edits: "Deny".to_owned(),
        drift: "Repair".to_owned(),
        message: String::new(),
    }
}

fn releases(names: &[&str]) -> Vec<ReleaseId> {
    names.iter().map(|name| release(name)).collect()
}

#[track_caller]
fn check(known: &[&str], steps: &[(u64, Step)]) {
    let begin = Instant::now();
    let mut pending = PendingRows::new(releases(known), begin);
    for (number, (second, step)) in steps.iter().enumerate() {
        let now = begin + Duration::from_secs(*second);
        let work = |(beats, rereads, names): &Expected| DueRows {
            beats: *beats,
            rereads: *rereads,
            releases: releases(names),
        };
        match step {
            Note(names) => pending.note(releases(names), now),
            Takes(expected, states) => {
                assert!(pending.due() <= now, "step {number}: nothing is due");
                assert_eq!(pending.take(now), work(expected), "step {number}");
                let states: Vec<_> = states.iter().map(|(name, drifted)| state(name, *drifted)).collect();
                assert!(states.iter().all(|state| pending.is_news(state)), "step {number}");
                pending.written(&states, &[]);
                assert!(!states.iter().any(|state| pending.is_news(state)), "step {number}");
            }
            Fails(expected) => {
                let taken = pending.take(now);
                assert_eq!(taken, work(expected), "step {number}");
                pending.fail(taken, now);
            }
            Rests(until) => {
                assert_eq!(pending.due().duration_since(begin).as_secs(), *until, "step {number}");
                assert!(until <= second || pending.take(now) == DueRows::default());
            }
        }
    }
}

#[test]
fn changes_that_follow_each_other_are_written_together_and_once() {
    check(
        &[],
        &[
            (0, Takes((true, true, &[]), &[])),
            (5, Note(&["a"])),
            (5, Takes((false, false, &["a"]), &[("a", 1)])),
            (5, Note(&["a", "b"])),
            (5, Note(&["a"])),
            (5, Rests(6)),
            (6, Takes((false, false, &["a", "b"]), &[("a", 2), ("b", 0)])),
            (6, Rests(30)),
            (30, Takes((true, false, &[]), &[])),
            (30, Rests(60)),
        ],
    );
}

#[test]
fn failed_database_write_is_retried_with_growing_delays() {
    check(
        &["a"],
        &[
            (0, Fails((true, true, &["a"]))),
            (0, Note(&["b"])),
            (0, Rests(1)),
            (1, Fails((true, true, &["a", "b"]))),
            (1, Rests(3)),
            (3, Fails((true, true, &["a", "b"]))),
            (3, Rests(7)),
            (7, Takes((true, true, &["a", "b"]), &[("a", 0), ("b", 0)])),
            (7, Rests(37)),
            (37, Fails((true, false, &[]))),
            (37, Rests(38)),
            // Another database may answer, which lacks the last rows.
            (38, Takes((true, false, &["a", "b"]), &[("a", 0), ("b", 0)])),
        ],
    );
}

#[test]
fn many_releases_are_written_some_at_a_time() {
    let names: Vec<String> = (0..MOST + 3).map(|number| format!("r{number:04}")).collect();
    let now = Instant::now();
    let mut pending = PendingRows::new(names.iter().map(|name| release(name)).collect(), now);
    assert_eq!(pending.take(now).releases.len(), MOST);
    pending.written(&[], &[]);
    assert_eq!(pending.due(), now + PAUSE);
    assert_eq!(pending.take(now + PAUSE).releases.len(), 3);
    pending.written(&[], &[]);
    assert_eq!(pending.due(), now + BEAT);
}

#[test]
fn returning_release_is_news_after_its_removal() {
    let mut pending = PendingRows::new(Vec::new(), Instant::now());
    let state = state("a", 0);
    pending.written(std::slice::from_ref(&state), &[]);
    assert!(!pending.is_news(&state));
    pending.written(&[], &[release("a")]);
    assert!(pending.is_news(&state));
}
