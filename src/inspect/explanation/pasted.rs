//! A message of Kubemoor as people paste it: a denial, a warning, or a line of a log.
//!
//! Entry point: [`Denial::parse`]. Invariant: total on any text; understands
//! everything that [`crate::verdict::message`] says about an object, with whatever
//! stands around it. A message names itself how it is explained; where that part
//! was not pasted, its first sentence is read.

use crate::declaration::path::Path;
use crate::model::ReleaseId;

/// The command that messages end with.
const COMMANDS: [&str; 2] = ["kubectl moor explain ", "kubemoor explain "];

/// What stands behind the object in the sentences of messages.
const CLAIMS: [&str; 6] = [
    " is managed by ",
    " (Helm release ",
    " is the record of ",
    " is a Helm release record",
    " is not allowed",
    " has no effect here",
];

/// What stands before the release's name.
const RELEASE: &str = "Helm release ";

/// What stands before the first field of a sentence.
const FIELD: [&str; 4] = ["): ", "manages: ", "; ", "allowed: "];

/// The most fields that are read of sentences.
const FIELDS: usize = 64;

/// What a denial is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The object as the command line takes it.
    pub(crate) object: String,
    pub(crate) namespace: Option<String>,
    /// None where the message names no release, or not that of the object.
    pub(crate) release: Option<ReleaseId>,
    pub(crate) paths: Vec<String>,
}

impl Denial {
    /// Reads a message; none if it is something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = Self::of_command(&text);
        let claim = Self::of_claim(&text);
        match (command, claim) {
            (Some(command), claim) => {
                let (release, paths) = claim.map(|it| (it.release, it.paths)).unwrap_or_default();
                let paths = if command.paths.is_empty() { paths } else { command.paths };
                Some(Self { release, paths, ..command })
            }
            (None, claim) => claim,
        }
    }

    /// What the command says with which a message ends.
    fn of_command(text: &str) -> Option<Self> {
        let (_, arguments) = COMMANDS.iter().find_map(|command| text.split_once(command))?;
        let mut words = words(arguments).into_iter();
        let object = words.next().filter(|object| is_object(object))?;
        let mut denial = Self { object, namespace: None, release: None, paths: Vec::new() };
        while let Some(word) = words.next() {
            match word.as_str() {
                "-n" => denial.namespace = words.next(),
                "--path" => denial.paths.extend(words.next()),
                _ => break,
            }
        }
        Some(denial)
    }

    /// What the first sentence of a message says.
    fn of_claim(text: &str) -> Option<Self> {
        let (before, after) = CLAIMS.iter().find_map(|claim| text.split_once(claim))?;
        let (before, namespace) = match before.rsplit_once(" in namespace \"") {
            Some((before, namespace)) if namespace.ends_with('"') => {
                (before, Some(namespace.trim_end_matches('"').to_owned()))
            }
            _ => (before, None),
        };
        let (before, name) = before.strip_suffix('"')?.rsplit_once(" \"")?;
        let kind = before.rsplit(' ').next()?;
        let object = format!("{}/{name}", kind.to_lowercase());
        // What lies in its release's namespace does not name it twice.
        let release = [text.get(before.len()..)?, after].into_iter().find_map(|text| {
            let (_, named) = text.split_once(RELEASE)?;
            let (name, rest) = named.strip_prefix('"')?.split_once('"')?;
            let storage = rest.strip_prefix(" in namespace \"").and_then(|it| it.split_once('"'));
            let storage = storage.map(|(storage, _)| storage.to_owned()).or_else(|| namespace.clone())?;
            Some(ReleaseId { namespace: storage, name: name.to_owned() })
        });
        is_object(&object).then(|| Self { object, namespace, release, paths: paths(after) })
    }
}

/// The paths that stand in sentences, each before a colon. A word alone is one only
/// where a field is expected.
fn paths(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (end, _) in text.match_indices(": ") {
        let before = text.get(..end).unwrap_or_default();
        // The line of a long text is no part of its path.
        let before = match before.rsplit_once(" line ") {
            Some((before, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => before,
            _ => before,
        };
        let start = before.rfind(' ').map_or(0, |space| space + 1);
        let (above, word) = before.split_at_checked(start).unwrap_or_default();
        let is_field = word.contains(['.', '[']) || FIELD.iter().any(|mark| above.ends_with(mark));
        let path = Path::from_plain(word).filter(|_| is_field).map(|path| path.to_string());
        found.extend(path.filter(|path| !found.contains(path)));
        if found.len() == FIELDS {
            break;
        }
    }
    found
}

fn is_object(text: &str) -> bool {
    text.split_once('/').is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty())
}

/// The words of a command as a shell takes them apart.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => {
                word.get_or_insert_default().push(c);
                escaped = false;
            }
            '\\' if !quoted => escaped = true,
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests;
