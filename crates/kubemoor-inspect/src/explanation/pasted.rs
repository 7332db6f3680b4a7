//! A message of Kubemoor as people paste it: a denial, a warning, a line of a log, a condition or a notification.
//!
//! Entry points: [`Denial::parse`]; [`advice`] for a message that names no object. Invariant: total on any text;
//! understands everything that the program says about an object, with whatever stands around it. A message names
//! itself how it is explained; where that part was not pasted, its first sentence is read.

use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::path::Path;

/// The command that messages end with.
const COMMANDS: [&str; 3] = ["kubectl moor explain ", "kubemoor explain ", "kubectl moor revoke "];

/// The texts after the object in the sentences of messages.
const CLAIMS: [&str; 7] = [
    " is managed by ",
    " (Helm release ",
    " is the record of ",
    " is a Helm release record",
    " is not allowed",
    " has no effect here",
    " stay open without ",
];

/// What stands in the other sentences of the program: lines of the log, conditions and notifications. They name an
/// object as `Deployment/web in namespace shop`.
const SENTENCES: [&str; 11] = [
    "Helm release ",
    " revision ",
    "xception ",
    "kubemoor ",
    " drift",
    "change was denied",
    " match",
    " deleted: ",
    " differ: ",
    " created: ",
    " looked at: ",
];

/// Commands that name a release: what stands before its name.
const OF_RELEASE: [&str; 10] = [
    "kubemoor reconcile ",
    "kubemoor resume ",
    "kubemoor diff ",
    "kubectl moor reconcile ",
    "kubectl moor resume ",
    "kubectl moor diff ",
    "helm upgrade --install ",
    "helm upgrade ",
    "helm rollback ",
    "helm history ",
];

/// What stands around the kind of an object that has no name yet.
const NAMELESS: (&str, &str) = ("An object of kind ", " is ");

/// The text before the release's name.
const RELEASE: &str = "Helm release ";

/// The texts before the first field of a sentence.
const FIELD: [&str; 4] = ["): ", "manages: ", "; ", "allowed: "];

/// The most fields that are read of sentences.
const FIELDS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The object as the command line takes it.
    pub object: String,
    pub namespace: Option<String>,
    /// None where the message names no release, or not that of the object.
    pub release: Option<ReleaseId>,
    pub paths: Vec<String>,
}

impl Denial {
    /// Parses a message; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = Self::of_command(&text);
        let claim = Self::of_claim(&text);
        match (command, claim) {
            (Some(command), claim) => {
                let (release, paths) = claim.map(|it| (it.release, it.paths)).unwrap_or_default();
                let paths = if command.paths.is_empty() { paths } else { command.paths };
                Some(Self { release, paths, ..command })
            }
            (None, claim) => claim.or_else(|| Self::of_sentence(&text)),
        }
    }

    /// The subject in the command at the end of a message.
    fn of_command(text: &str) -> Option<Self> {
        COMMANDS.iter().find_map(|command| Self::of_arguments(text.split_once(command)?.1))
    }

    fn of_arguments(arguments: &str) -> Option<Self> {
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

    /// What another sentence says that names an object.
    fn of_sentence(text: &str) -> Option<Self> {
        if !SENTENCES.iter().any(|mark| text.contains(mark)) {
            return None;
        }
        let place = text.split(' ').find(|word| is_named(bare(word)))?;
        let (_, after) = text.split_once(place)?;
        let (kind, name) = bare(place).split_once('/')?;
        let object = format!("{}/{name}", kind.to_lowercase());
        let namespace = Some(after).filter(|_| place == bare(place));
        let namespace = namespace.and_then(|after| after.strip_prefix(" in namespace "));
        let namespace = namespace.and_then(|after| after.split(' ').next()).map(|it| bare(it).to_owned());
        Some(Self { object, namespace, release: release(text), paths: paths(after) })
    }

    /// The subject in the first sentence of a message.
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
        // An object in its release's namespace does not repeat the namespace.
        let release = [text.get(before.len()..)?, after].into_iter().find_map(|text| {
            let (_, named) = text.split_once(RELEASE)?;
            let (name, rest) = named.strip_prefix('"')?.split_once('"')?;
            let storage = rest.strip_prefix(" in namespace \"").and_then(|it| it.split_once('"'));
            let storage = storage.map(|(storage, _)| storage.to_owned()).or_else(|| namespace.clone())?;
            Some(ReleaseId { namespace: storage.into(), name: name.into() })
        });
        is_object(&object).then(|| Self { object, namespace, release, paths: paths(after) })
    }
}

/// What to do with a message that names no object; none for a text that is no message of the program.
pub fn advice(text: &str) -> Option<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let nameless = text.split_once(NAMELESS.0).and_then(|(_, rest)| Some(rest.split_once(NAMELESS.1)?.0));
    if let Some(kind) = nameless {
        let kind = kind.to_lowercase();
        return Some(format!(
            "the object of the message had no name yet: find it with `kubectl get {kind}`, then run `kubectl moor explain {kind}/NAME`"
        ));
    }
    if text.contains("mergency") {
        return Some(
            "the message is about the emergency, and names no object: `kubectl moor emergency status` shows it".to_owned(),
        );
    }
    let of_command = || {
        let (_, arguments) = OF_RELEASE.iter().find_map(|command| text.split_once(command))?;
        let words: Vec<&str> = arguments.split(' ').map(bare).collect();
        let namespace = words.iter().skip_while(|word| **word != "-n").nth(1)?;
        let is_name = |name: &str| !name.is_empty() && !name.starts_with(char::is_uppercase);
        let name = words.first().filter(|name| is_name(name))?;
        Some(ReleaseId { namespace: (*namespace).into(), name: (*name).into() })
    };
    if let Some(ReleaseId { namespace, name }) = of_command().or_else(|| release(&text)) {
        return Some(format!(
            "the message is about Helm release {name:?}, and names no object: `kubectl moor diff {name} -n {namespace}` shows its objects"
        ));
    }
    let is_ours = SENTENCES.iter().any(|mark| text.contains(mark)) || text.contains("epairs ");
    is_ours.then(|| {
        "the message names no object: `kubectl moor get releases -A` lists the releases and how they stand".to_owned()
    })
}

/// The first release that a sentence names as `shop/web`.
fn release(text: &str) -> Option<ReleaseId> {
    text.match_indices(RELEASE).find_map(|(at, _)| {
        let word = text.get(at + RELEASE.len()..)?.split(' ').next()?;
        let (namespace, name) = bare(word).split_once('/')?;
        Some(ReleaseId { namespace: namespace.into(), name: name.into() })
    })
}

/// A word without what stands around it in a sentence.
fn bare(word: &str) -> &str {
    word.trim_matches([',', '.', ':', ';', '`', '(', ')'])
}

/// Whether a word is an object as sentences name it: `Deployment/web`.
fn is_named(word: &str) -> bool {
    word.split_once('/').is_some_and(|(kind, name)| {
        kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte))
    })
}

/// The paths in sentences, each before a colon. A single word counts only where a field is expected.
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
        let is_pointer = word.starts_with('/');
        let path = match is_pointer {
            true => word.parse().ok(),
            false => Path::from_plain(word).filter(|_| is_field && !is_named(word)),
        };
        let path = path.map(|path| path.to_string());
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
