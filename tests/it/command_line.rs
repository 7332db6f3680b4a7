//! The command line itself: the plugin's name, completions, certificates, pipes.

use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::run;

#[test]
fn program_names_itself_kubectl_moor_when_run_as_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-moor");
    symlink(env!("CARGO_BIN_EXE_kubemoor"), &plugin).unwrap();
    let said = |arguments: &[&str]| {
        let output = Command::new(&plugin).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, help) = said(&["diff", "--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("kubectl moor diff"), "{help}");
    let (_, script) = said(&["completions", "bash"]);
    assert!(script.contains("kubectl-moor"), "{script}");
    let (_, version) = said(&["version"]);
    assert_eq!(version, concat!("kubemoor ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(run(&["diff", "--help"], "").out.contains("kubemoor diff"));
}

#[test]
fn every_shell_that_can_complete_gets_what_it_needs() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&["completions", shell], "");
        assert!(
            ran.code == 0 && ran.out.contains("KUBEMOOR_COMPLETE") && ran.error.is_empty(),
            "{shell}: {ran:?}"
        );
    }
    assert_eq!(run(&["completions", "tcl"], "").code, 2);
    // What is printed is a script that the shell takes.
    let script = run(&["completions", "bash"], "").out;
    let read = Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
    assert!(read.status.success(), "{read:?}");
}

#[test]
fn certificates_are_made_once_and_shown_without_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("tls");
    let certs = |flags: &[&str]| run(&[&["certs", "--tls-dir", dir.to_str().unwrap()], flags].concat(), "");
    let made = certs(&["--service", "guard/moor"]);
    assert!(
        made.code == 0 && made.out.contains("created") && made.out.contains("moor.guard.svc"),
        "{made:?}"
    );
    let kept = certs(&["--service", "guard/moor", "-o", "json"]);
    assert_eq!(kept.json()["done"], json!("Kept"));
    assert!(!made.out.contains("PRIVATE") && !kept.out.contains("PRIVATE"));
    std::fs::write(dir.join("ca.crt"), "nothing").unwrap();
    certs(&["--service", "guard/moor"]).assert_failed(&["ca.crt"]);
    assert_eq!(certs(&["--service", "guard/moor", "--webhook-url", "https://x"]).code, 2);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
    command.args(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!((child.wait().unwrap().code(), error.as_str()), (Some(0), ""));
}
