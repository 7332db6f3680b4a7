//! Commands of the documentation: split as a shell splits them, and run by bash.

use std::env;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use super::control_plane::{ControlPlane, assets};
use super::document::root;
use super::identity::Identity;
use super::moor::Ran;
use super::process::folder;

/// What ends the text below a command.
const END: &str = "END";

/// A command as a page has it, and what stands below it in place of a file (`<<'END'`).
pub(crate) struct Statement {
    /// On one line.
    pub(crate) line: String,
    pub(crate) input: Option<String>,
}

/// The commands of a console fence.
pub(crate) fn statements(text: &str) -> Vec<Statement> {
    let text = text.replace("\\\n", " ");
    let mut lines = text.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let marker = line.split_once("<<").and_then(|(_, rest)| rest.split_whitespace().next());
        let input = marker.map(|marker| {
            assert_eq!(marker.trim_matches(['\'', '"']), END, "{line}");
            lines.by_ref().take_while(|line| *line != END).map(|line| format!("{line}\n")).collect()
        });
        if !line.trim().is_empty() {
            found.push(Statement { line: line.trim().to_owned(), input });
        }
    }
    found
}

/// The words of each simple command of a line. Pipes, lists and redirections end one, and a comment ends the line.
pub(crate) fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                word.extend(letters.by_ref().take_while(|it| *it != letter));
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            '#' if word.is_none() => break,
            _ if letter.is_whitespace() || "|;&<>()".contains(letter) => {
                commands.last_mut().unwrap().extend(word.take());
                if !letter.is_whitespace() {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands.retain(|words| !words.is_empty());
    commands
}

/// Where statements run: a folder in which `kubemoor` and its plugin are programs, and `policies/` those that are shipped.
pub(crate) struct Shell<'a> {
    control_plane: &'a ControlPlane,
    pub(crate) folder: PathBuf,
    path: String,
}

impl<'a> Shell<'a> {
    pub(crate) fn new(control_plane: &'a ControlPlane) -> Self {
        let programs = folder("programs");
        for name in ["kubemoor", "kubectl-moor"] {
            symlink(env!("CARGO_BIN_EXE_kubemoor"), programs.join(name)).unwrap();
        }
        let path = format!("{}:{}:{}", programs.display(), assets().display(), env::var("PATH").unwrap());
        let folder = folder("shell");
        symlink(root().join("policies"), folder.join("policies")).unwrap();
        Self { control_plane, folder, path }
    }

    /// Runs a statement by bash, with the real `kubectl` and `kubemoor`, as this user.
    pub(crate) fn run(&self, identity: Identity, statement: &Statement) -> Ran {
        let script = match &statement.input {
            Some(input) => format!("{}\n{input}{END}\n", statement.line),
            None => statement.line.clone(),
        };
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &script]).current_dir(&self.folder).env("PATH", &self.path);
        command.env("HOME", &self.folder).env("KUBECONFIG", self.control_plane.kubeconfig(identity));
        command.output().unwrap().into()
    }
}
