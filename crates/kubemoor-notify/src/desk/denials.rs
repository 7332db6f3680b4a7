//! Counts denied changes, so that one message reports many.
//!
//! Entry points: [`Denials::add`], [`Denials::due`]. Invariant: one message for each release, user and
//! window, however often a client tries. The number of entries is bounded, and further ones are counted
//! together. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Denial, later};
use crate::message::{Message, Subject};
use kubemoor_declare::model::{ObjectId, ReleaseId};

/// Windows that are open at once.
const WINDOWS: usize = 1024;

/// Objects that one message names.
const OBJECTS: usize = 5;

/// Denials with the same key are counted together.
type Key = (Option<ReleaseId>, String);

/// Denied changes that are not reported yet.
#[derive(Debug)]
pub(super) struct Denials {
    window: SignedDuration,
    open: BTreeMap<Key, Window>,
}

#[derive(Debug)]
struct Window {
    since: Timestamp,
    last: Timestamp,
    count: u64,
    revision: Option<u64>,
    /// The first ones.
    objects: Vec<ObjectId>,
    /// Whether there were others.
    others: bool,
    names: Vec<String>,
}

impl Denials {
    pub(super) fn new(window: SignedDuration) -> Self {
        Self { window, open: BTreeMap::new() }
    }

    /// Counts one.
    pub(super) fn add(&mut self, denial: Denial, names: Vec<String>, now: Timestamp) {
        let Denial { release, object, user } = denial;
        let (release, revision) = release.unzip();
        let mut key = (release, user);
        let is_full = self.open.len() >= WINDOWS && !self.open.contains_key(&key);
        let (revision, names) = if is_full { (None, Vec::new()) } else { (revision, names) };
        if is_full {
            key = (None, String::new());
        }
        let window = self.open.entry(key).or_insert_with(|| Window {
            since: now,
            last: now,
            count: 0,
            revision,
            objects: Vec::new(),
            others: false,
            names,
        });
        window.last = now;
        window.count = window.count.saturating_add(1);
        window.revision = revision;
        if !window.objects.contains(&object) {
            if window.objects.len() < OBJECTS {
                window.objects.push(object);
            } else {
                window.others = true;
            }
        }
    }

    /// Those whose window is over.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(Message, Vec<String>)> {
        let window = self.window;
        let due = self.open.extract_if(.., |_, it| later(it.since, window) <= now);
        due.map(|(key, window)| told(key, window)).collect()
    }

    /// All of them.
    pub(super) fn all(&mut self) -> Vec<(Message, Vec<String>)> {
        std::mem::take(&mut self.open).into_iter().map(|(key, window)| told(key, window)).collect()
    }

    /// When the first window is over.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.open.values().map(|it| it.since).min().map(|since| later(since, self.window))
    }
}

fn told((release, user): Key, window: Window) -> (Message, Vec<String>) {
    let Window { since, last, count, revision, objects, others, names } = window;
    let mut listed: Vec<_> = objects.iter().map(ToString::to_string).collect();
    listed.extend(others.then(|| "others".to_owned()));
    let namespace = match (&release, objects.first()) {
        (None, Some(object)) if objects.len() == 1 => object.namespace.as_deref().map(str::to_owned),
        _ => None,
    };
    let object = objects.into_iter().next().filter(|_| listed.len() == 1);
    let message = Message {
        since,
        release,
        revision,
        object,
        namespace,
        // Two users may be denied the same in one moment.
        key: user.clone(),
        by: Some(user).filter(|user| !user.is_empty()),
        detail: Some(listed.join(", ")),
        count,
        ..Message::new(Subject::Denied, last)
    };
    (message, names)
}
