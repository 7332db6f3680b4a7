//! Parses a denial or a warning of Kubemoor that a user pasted, with any text around it. A message ends with the
//! command that explains it; if that part is missing, its first sentence is parsed. Any input is safe.

use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::path::Path;

/// The commands that messages end with.
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

/// The text before the release's name.
const RELEASE: &str = "Helm release ";

/// The texts before the first field of a sentence.
const FIELD: [&str; 4] = ["): ", "manages: ", "; ", "allowed: "];

/// Maximum number of fields that are read from sentences.
const FIELDS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainQuery {
    /// The object as the command line takes it.
    pub object: String,
    /// `None` for the default namespace.
    pub namespace: Option<String>,
    /// `None` if the message does not name the object's release.
    pub release: Option<ReleaseId>,
    pub paths: Vec<String>,
}

impl ExplainQuery {
    /// Parses a denial or a warning; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let claim = Self::of_claim(&text);
        // The end of a message is the command that explains it.
        let command = COMMANDS.iter().find_map(|command| Self::of_arguments(text.split_once(command)?.1));
        let Some(command) = command else { return claim };
        let (release, paths) = claim.map(|it| (it.release, it.paths)).unwrap_or_default();
        let paths = if command.paths.is_empty() { paths } else { command.paths };
        Some(Self { release, paths, ..command })
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

    /// The object in the first sentence of a message.
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

/// The paths in sentences, each before a colon. A single word is a path only where a field is expected.
fn paths(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (end, _) in text.match_indices(": ") {
        let before = text.get(..end).unwrap_or_default();
        // The line number of a long text is not part of its path.
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
            false => Path::from_plain(word).filter(|_| is_field && !word.starts_with(char::is_uppercase)),
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

/// The words of a command, split as a shell does.
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
