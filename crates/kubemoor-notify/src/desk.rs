//! Decides which messages each receiver gets and when, as one value: events in, posts out.
//!
//! Entry points: [`NotificationScheduler::take`] for events, [`NotificationScheduler::tick`] for timed work, [`NotificationScheduler::next`] for the time of the
//! next tick. Invariant: all state is bounded, and dropped messages are counted. The same message is sent
//! once within [`AGAIN`]. Denials are sent once for each release, user and window, with their count. Pure:
//! `now` is an argument, and so is whether this replica leads.

mod denials;
pub(super) mod quiet;
pub(super) mod route;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use self::denials::Denials;
use self::quiet::QuietHours;
use self::route::Routes;
use super::message::{Condition, Message, Phase, Subject, Topic};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_runtime::metrics::NotificationFate;

/// The time within which the same message is not sent again.
const AGAIN: SignedDuration = SignedDuration::from_mins(10);

/// Messages that are remembered for that, and things that last.
const REMEMBERED: usize = 4096;

/// Messages that quiet hours hold back for one receiver.
const HELD: usize = 256;

/// The time between reminders of a lasting state, where a receiver wants them.
const REMINDER: SignedDuration = SignedDuration::from_mins(2);

/// How long before its end an exception is announced; for a short one, a quarter of its time.
const ENDING: SignedDuration = SignedDuration::from_hours(1);

/// The pause between checks whether quiet hours are over.
const LOOK: SignedDuration = SignedDuration::from_secs(30);

/// The rules that select a receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) name: String,
    pub(super) routes: Routes,
    pub(super) quiet: QuietHours,
    /// Whether reminders of lasting states are sent.
    pub(super) reminders: bool,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Something that every replica sees, for these receivers, or for all if none is named.
    Told(Box<Message>, Vec<String>),
    /// A change was denied, by this replica.
    Denied(Denial, Vec<String>),
}

/// A denied change.
#[derive(Clone, Debug)]
pub struct Denial {
    /// The release and its revision, where one is concerned.
    pub release: Option<(ReleaseId, u64)>,
    /// The object.
    pub object: ObjectId,
    /// The user who wanted to change it.
    pub user: String,
}

/// The action to take.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Output {
    /// To hand these messages to the receiver of this number.
    Send(usize, Vec<Arc<Message>>),
    /// To count messages that were not sent.
    Count(NotificationFate, usize),
}

/// The state of all receivers.
#[derive(Debug)]
pub(super) struct NotificationScheduler {
    receivers: Vec<Rules>,
    told: HashMap<u64, Timestamp>,
    lasting: BTreeMap<Condition, Lasting>,
    denials: Denials,
    /// The messages that quiet hours hold back, for each receiver.
    held: Vec<VecDeque<Arc<Message>>>,
    reminded: Timestamp,
    /// When it was looked last whether quiet hours are over.
    looked: Timestamp,
}

/// Something that began and has not ended.
#[derive(Debug)]
struct Lasting {
    message: Arc<Message>,
    names: Vec<String>,
}

impl NotificationScheduler {
    /// A desk for these receivers, which tells of denials after `window`.
    pub(super) fn new(receivers: Vec<Rules>, window: SignedDuration) -> Self {
        Self {
            held: receivers.iter().map(|_| VecDeque::new()).collect(),
            receivers,
            told: HashMap::new(),
            lasting: BTreeMap::new(),
            denials: Denials::new(window),
            reminded: Timestamp::MIN,
            looked: Timestamp::MIN,
        }
    }

    /// Handles an event. Only the leader reports events that all replicas see.
    pub(super) fn take(&mut self, event: Event, leads: bool, now: Timestamp) -> Vec<Output> {
        match event {
            Event::Denied(denial, names) => {
                self.denials.add(denial, names, now);
                Vec::new()
            }
            Event::Told(mut message, names) => {
                let condition = message.condition();
                let message = match message.subject.phase() {
                    Phase::Ends => {
                        self.lasting.remove(&condition);
                        message.remaining = self.remaining(&condition);
                        Arc::from(message)
                    }
                    Phase::Begins => {
                        let message: Arc<Message> = Arc::from(message);
                        if self.lasting.len() < REMEMBERED || self.lasting.contains_key(&condition) {
                            let lasting = Lasting { message: Arc::clone(&message), names: names.clone() };
                            self.lasting.insert(condition, lasting);
                        }
                        message
                    }
                    Phase::Once => Arc::from(message),
                };
                // A process that starts finds exceptions that others told of.
                let is_old =
                    message.subject == Subject::ExceptionOpened && now.duration_since(message.at) > AGAIN;
                if leads && !is_old { self.tell(message, &names, now) } else { Vec::new() }
            }
        }
    }

    /// The timed messages: denials whose window is over, exceptions that end soon, the end of quiet hours,
    /// reminders.
    pub(super) fn tick(&mut self, leads: bool, now: Timestamp) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.looked = now;
        for (message, names) in self.denials.due(now) {
            outputs.extend(self.tell(Arc::new(message), &names, now));
        }
        for (message, names) in self.ending(now) {
            if leads {
                outputs.extend(self.tell(message, &names, now));
            }
        }
        for (number, (rules, held)) in self.receivers.iter().zip(&mut self.held).enumerate() {
            if !held.is_empty() && !rules.quiet.holds(now) {
                outputs.push(Output::Send(number, held.drain(..).collect()));
            }
        }
        if self.wants_reminders() && now >= self.reminder() {
            self.reminded = now;
            outputs.extend(if leads { self.remind() } else { Vec::new() });
        }
        outputs
    }

    /// The messages before the process ends: denials, whose window ends too. Messages that quiet hours hold
    /// back are lost.
    pub(super) fn close(&mut self, now: Timestamp) -> Vec<Output> {
        let mut outputs = Vec::new();
        for (message, names) in self.denials.all() {
            outputs.extend(self.tell(Arc::new(message), &names, now));
        }
        let lost = self.held.iter_mut().map(|held| held.drain(..).count()).sum();
        outputs.extend((lost > 0).then_some(Output::Count(NotificationFate::Dropped, lost)));
        outputs
    }

    /// When [`NotificationScheduler::tick`] has something to do at the earliest.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let denials = self.denials.next();
        let exceptions = self.lasting.values().filter_map(|it| told_at(&it.message)).min();
        let is_holding = self.held.iter().any(|held| !held.is_empty());
        let quiet = is_holding.then(|| later(self.looked, LOOK));
        let reminder = self.wants_reminders().then(|| self.reminder());
        [denials, exceptions, quiet, reminder].into_iter().flatten().min()
    }

    /// How many conditions of the same topic and release still last.
    fn remaining(&self, of: &Condition) -> usize {
        let is_beside = |it: &&Condition| {
            it.topic == of.topic
                && it.release == of.release
                && it.namespace == of.namespace
                && (of.topic != Topic::Exception || it.key == of.key)
        };
        self.lasting.keys().filter(is_beside).count()
    }

    /// Exceptions that end soon and are not announced yet.
    fn ending(&mut self, now: Timestamp) -> Vec<(Arc<Message>, Vec<String>)> {
        let due = self.lasting.values_mut().filter(|it| told_at(&it.message).is_some_and(|at| at <= now));
        due.map(|it| {
            let message =
                Message { subject: Subject::ExceptionEnding, at: now, ..Message::clone(&it.message) };
            it.message = Arc::new(message);
            (Arc::clone(&it.message), it.names.clone())
        })
        .collect()
    }

    fn wants_reminders(&self) -> bool {
        !self.lasting.is_empty() && self.receivers.iter().any(|rules| rules.reminders)
    }

    fn reminder(&self) -> Timestamp {
        later(self.reminded, REMINDER)
    }

    /// Reminders of lasting states for the receivers that want them, except for those in quiet hours.
    fn remind(&self) -> Vec<Output> {
        let wanting = self.receivers.iter().zip(&self.held).enumerate().filter(|(_, (it, _))| it.reminders);
        let posts = wanting.map(|(number, (rules, held))| {
            let lasting = self.lasting.iter().filter(|(condition, it)| {
                rules.routes.take(&it.message)
                    && is_named(rules, &it.names)
                    && !held.iter().any(|held| held.condition() == **condition)
            });
            Output::Send(number, lasting.map(|(_, it)| Arc::clone(&it.message)).collect())
        });
        posts.filter(|post| !matches!(post, Output::Send(_, messages) if messages.is_empty())).collect()
    }

    /// Tells each receiver that is to know.
    fn tell(&mut self, message: Arc<Message>, names: &[String], now: Timestamp) -> Vec<Output> {
        let chosen: Vec<_> = self
            .receivers
            .iter()
            .enumerate()
            .filter(|(_, rules)| is_named(rules, names) && rules.routes.take(&message))
            .map(|(number, rules)| (number, rules.quiet.holds(now) && !is_urgent(message.subject.topic())))
            .collect();
        if chosen.is_empty() {
            return Vec::new();
        }
        if self.note_told(&message, now) {
            return vec![Output::Count(NotificationFate::Repeated, 1)];
        }
        let mut outputs = Vec::new();
        for (number, waits) in chosen {
            if waits {
                outputs.extend(self.hold(number, Arc::clone(&message)));
            } else {
                outputs.push(Output::Send(number, vec![Arc::clone(&message)]));
            }
        }
        outputs
    }

    /// Keeps a message until quiet hours are over. A condition that began and ended meanwhile is not
    /// reported.
    fn hold(&mut self, number: usize, message: Arc<Message>) -> Option<Output> {
        let held = self.held.get_mut(number)?;
        if message.subject.phase() == Phase::Ends {
            let condition = message.condition();
            let before = held.len();
            held.retain(|it| it.subject.phase() != Phase::Begins || it.condition() != condition);
            if let settled @ 1.. = before - held.len() {
                return Some(Output::Count(NotificationFate::Settled, settled + 1));
            }
        }
        held.push_back(message);
        if held.len() <= HELD {
            return None;
        }
        held.pop_front();
        Some(Output::Count(NotificationFate::Dropped, 1))
    }

    /// Notes that this is sent. Returns whether it was already sent a moment ago.
    fn note_told(&mut self, message: &Message, now: Timestamp) -> bool {
        // A clock that went back makes nothing be forgotten.
        self.told.retain(|_, at| now.duration_since(*at) < AGAIN);
        if self.told.len() >= REMEMBERED {
            let oldest = self.told.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.told.remove(&oldest));
        }
        self.told.insert(message.fingerprint(), now).is_some()
    }
}

/// Whether the policies name this receiver, or name none.
fn is_named(rules: &Rules, names: &[String]) -> bool {
    names.is_empty() || names.contains(&rules.name)
}

/// Whether the topic passes quiet hours.
fn is_urgent(topic: Topic) -> bool {
    matches!(topic, Topic::Emergency | Topic::Brake)
}

/// When the end of an exception is announced; `None` for other messages, and for exceptions without an end.
fn told_at(message: &Message) -> Option<Timestamp> {
    let until = message.until.filter(|_| message.subject == Subject::ExceptionOpened)?;
    let lead = (until.duration_since(message.since) / 4).clamp(SignedDuration::ZERO, ENDING);
    Some(until.checked_sub(lead).unwrap_or(until))
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
