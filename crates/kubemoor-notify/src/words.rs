//! A message in words, for people.
//!
//! Entry point: [`Words::of`]. Invariant: text from the cluster is a separate piece ([`Piece::Named`]), so
//! that each format can keep it from being parsed as anything but text. It is short and holds no control
//! character, nor one that changes the direction of text. Pure.

use super::message::{Message, Subject};
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::model::text::is_unprintable;
use kubemoor_verdict::edit::Finding;

/// The most characters of one piece that comes from the cluster.
const LONG: usize = 200;

/// The most fields that are listed.
const FIELDS: usize = 8;

/// A part of a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    /// The program's own words.
    Said(String),
    /// A name or value from the cluster, which any user may have chosen.
    Named(String),
}

/// One line.
pub(super) type Line = Vec<Piece>;

/// A message in words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Words {
    /// The event.
    pub(super) title: Line,
    /// More about it.
    pub(super) lines: Vec<Line>,
}

/// A text of at most so many characters, without unprintable ones.
pub(super) fn tame(text: &str, most: usize) -> String {
    let mut kept: String = text.chars().take(most).map(|c| if is_unprintable(c) { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        kept.push('…');
    }
    kept
}

/// A line as plain text.
pub(super) fn plain(line: &[Piece]) -> String {
    line.iter()
        .map(|piece| match piece {
            Piece::Said(text) | Piece::Named(text) => text.as_str(),
        })
        .collect()
}

/// Text of the program's own.
fn said(text: impl Into<String>) -> Piece {
    Piece::Said(text.into())
}

/// Text from the cluster.
fn named(text: impl ToString) -> Piece {
    Piece::Named(tame(&text.to_string(), LONG))
}

impl Words {
    /// The words of a message.
    pub(super) fn of(message: &Message) -> Self {
        let title = title(message);
        let mut lines: Vec<Line> = message.fields.iter().take(FIELDS).map(field).collect();
        if let more @ 1.. = message.fields.len().saturating_sub(FIELDS) {
            lines.push(vec![said(format!("and {more} more"))]);
        }
        if let Some(by) = message.by.as_deref().filter(|by| !by.is_empty()) {
            lines.push(vec![said(by_whom(message.subject)), named(by)]);
        }
        if let Some(detail) = message.detail.as_deref().filter(|detail| !detail.is_empty()) {
            lines.push(vec![said(why(message.subject)), named(detail)]);
        }
        lines.extend(advice(message));
        Self { title, lines }
    }

    /// Title and lines as plain text.
    pub(super) fn text(&self) -> String {
        std::iter::once(&self.title).chain(&self.lines).map(|line| plain(line)).collect::<Vec<_>>().join("\n")
    }
}

fn title(message: &Message) -> Line {
    let object = || message.object.as_ref().map_or_else(|| said("an object"), named);
    let until = || message.until.map_or_else(String::new, |until| format!("{until:.0}"));
    match message.subject {
        Subject::Drifted
        | Subject::Repaired
        | Subject::NotRepaired
        | Subject::DriftEnded
        | Subject::Contested
        | Subject::ContestEnded => of_drift(message),
        Subject::Braked => match &message.namespace {
            Some(namespace) => vec![
                said("Repairs of the releases in namespace "),
                named(namespace),
                said(" have stopped, because too many of their objects drift at once"),
            ],
            None => vec![said("All repairs have stopped, because too many objects drift at once")],
        },
        Subject::BrakeReleased => match &message.namespace {
            Some(namespace) => {
                vec![said("Repairs of the releases in namespace "), named(namespace), said(" go on")]
            }
            None => vec![said("Repairs go on")],
        },
        Subject::EmergencyOpened => {
            vec![said("Emergency: no change is checked and nothing is repaired until a person closes it")]
        }
        Subject::EmergencyClosed => {
            vec![said("The emergency is over: changes are checked and drift is repaired again")]
        }
        Subject::ExceptionOpened => {
            vec![said("An exception allows changes of "), object(), said(format!(" until {}", until()))]
        }
        Subject::ExceptionEnding => {
            vec![said("The exception for "), object(), said(format!(" ends at {}", until()))]
        }
        Subject::ExceptionClosed => vec![said("The exception for "), object(), said(" has ended")],
        Subject::Denied => {
            let what = match message.count {
                1 => "A change was denied".to_owned(),
                count => format!("{count} changes were denied"),
            };
            joined([said(what)], of_release(message, " in Helm release "), "")
        }
        Subject::OperationStuck => {
            joined([said("A Helm operation is stuck,")], of_release(message, " of release "), "")
        }
        Subject::OperationEnded => {
            joined([said("The Helm operation is no longer stuck,")], of_release(message, " of release "), "")
        }
        Subject::Test => vec![said("This is a test message: Kubemoor can reach this receiver")],
    }
}

/// What is said of an object and its release.
fn of_drift(message: &Message) -> Line {
    let object = message.object.as_ref().map_or_else(|| said("An object"), named);
    let release = |words| of_release(message, words);
    match message.subject {
        Subject::Drifted if message.drift == Some("missing") => {
            joined([object, said(" is missing, which")], release(" Helm release "), " declares")
        }
        Subject::Repaired => joined([said("The guard repaired "), object], release(" of Helm release "), ""),
        Subject::NotRepaired => {
            joined([said("The guard could not repair "), object], release(" of Helm release "), "")
        }
        Subject::DriftEnded => joined([object, said(" matches")], release(" Helm release "), " again"),
        Subject::Contested => joined(
            [said("Somebody changes "), object, said(" back each time the guard repairs it,")],
            release(" for Helm release "),
            "",
        ),
        Subject::ContestEnded => joined(
            [said("Nobody changes "), object, said(" back any more,")],
            release(" in Helm release "),
            "",
        ),
        _ => joined([object, said(" does not match")], release(" Helm release "), ""),
    }
}

fn joined<const N: usize>(front: [Piece; N], middle: Line, end: &str) -> Line {
    let end = (!end.is_empty()).then(|| said(end));
    front.into_iter().chain(middle).chain(end).collect()
}

/// The release and its revision after these words; empty without a release.
fn of_release(message: &Message, words: &str) -> Line {
    let Some(release) = &message.release else { return Line::new() };
    let revision = message.revision.map(|revision| said(format!(" (revision {revision})")));
    [said(words), named(release)].into_iter().chain(revision).collect()
}

fn field(finding: &Finding) -> Line {
    let value = |shown: &Option<kubemoor_verdict::shown::Shown>| match shown {
        Some(shown) => named(shown),
        None => said("nothing"),
    };
    vec![
        named(&finding.path),
        said(": release "),
        value(&finding.declared),
        said(", live "),
        value(&finding.new),
    ]
}

fn by_whom(subject: Subject) -> &'static str {
    match subject {
        Subject::ExceptionOpened | Subject::ExceptionEnding | Subject::ExceptionClosed => "Requested by: ",
        Subject::EmergencyOpened => "Opened by: ",
        Subject::EmergencyClosed => "Closed by: ",
        Subject::Denied => "User: ",
        _ => "Changed by: ",
    }
}

fn why(subject: Subject) -> &'static str {
    match subject {
        Subject::Denied => "Objects: ",
        _ => "Reason: ",
    }
}

/// The advice, as a command.
fn advice(message: &Message) -> Option<Line> {
    let of = |command: &str, ReleaseId { namespace, name }: &ReleaseId| {
        vec![said(format!("Details: kubemoor {command} ")), named(name), said(" -n "), named(namespace)]
    };
    let release = message.release.as_ref();
    match message.subject {
        Subject::Drifted | Subject::NotRepaired | Subject::Contested => Some(of("diff", release?)),
        Subject::Braked => {
            Some(vec![said("Look at the drift, then run: kubemoor reconcile RELEASE -n NAMESPACE")])
        }
        Subject::EmergencyOpened => Some(vec![said("To close it: kubemoor emergency close")]),
        Subject::OperationStuck => {
            let ReleaseId { namespace, name } = release?;
            Some(vec![said("Details: helm history "), named(name), said(" -n "), named(namespace)])
        }
        Subject::Denied => {
            let ReleaseId { namespace, name } = release?;
            Some(vec![
                said("Details: kubemoor audit --verdict Deny --release "),
                named(name),
                said(" -n "),
                named(namespace),
            ])
        }
        _ => None,
    }
}
