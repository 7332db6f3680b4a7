//! The commands of the documentation, as the program and its chart take them.

use std::collections::BTreeMap;

use clap::Parser;
use clap::error::ErrorKind;
use kubemoor::cli::Cli;

use crate::support::{Document, HelmLine, documents, simple_commands};

/// The arguments of every call of the program in a shell line, also as a plugin of kubectl.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = line.replace("cargo run -- ", "kubemoor ");
    let called = |mut words: Vec<String>| {
        if words[0] == "$" {
            words.remove(0);
        }
        if words.starts_with(&["kubectl".to_owned(), "moor".to_owned()]) {
            words.splice(..2, ["kubemoor".to_owned()]);
        }
        words.first().is_some_and(|word| word == "kubemoor").then_some(words)
    };
    simple_commands(&line).into_iter().filter_map(called).collect()
}

/// The commands that messages of the program name, as pages show them.
fn told(document: &Document) -> Vec<Vec<String>> {
    let texts = document.fences("text");
    let lines = texts.iter().flat_map(|text| text.lines());
    let named = lines.flat_map(|line| line.split("kubectl moor ").skip(1));
    named.flat_map(|rest| calls(&format!("kubemoor {rest}"))).collect()
}

#[test]
fn every_command_is_one_that_the_program_takes() {
    let (mut seen, mut as_plugin) = (0, 0);
    for document in documents() {
        let check = |words: &[String], may_lack: &[ErrorKind]| {
            if let Err(error) = Cli::try_parse_from(words) {
                let place = document.path.display();
                assert!(may_lack.contains(&error.kind()), "{place}: {}: {error}", words.join(" "));
            }
        };
        for words in document.commands().iter().flat_map(|statement| calls(&statement.line)) {
            seen += 1;
            check(&words, &[]);
        }
        for words in told(&document) {
            as_plugin += 1;
            check(&words, &[]);
        }
        // Within a sentence a command may be named without all of its arguments.
        let lacking = [
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ErrorKind::MissingSubcommand,
            ErrorKind::MissingRequiredArgument,
        ];
        for words in document.code().iter().flat_map(|span| calls(span)) {
            check(&words, &lacking);
        }
    }
    assert!(seen > 40, "only {seen} commands were found");
    assert!(as_plugin > 3, "only {as_plugin} commands of messages were found");
}

#[test]
fn every_helm_command_about_the_chart_can_be_read() {
    let mut seen = 0;
    for document in documents() {
        let files = document.files();
        for words in document.commands().iter().flat_map(|statement| simple_commands(&statement.line)) {
            if words[0] == "helm" && words.iter().any(|word| word == "deploy/chart") {
                let line = HelmLine::read(&words, &files);
                let line =
                    line.unwrap_or_else(|error| panic!("{}: {words:?}: {error}", document.path.display()));
                assert!(["install", "upgrade"].contains(&line.operation.as_str()), "{words:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 3, "only {seen} commands were found");
    let wrong = simple_commands("helm upgrade kubemoor deploy/chart --reuse-value");
    HelmLine::read(&wrong[0], &BTreeMap::new()).unwrap_err();
}
