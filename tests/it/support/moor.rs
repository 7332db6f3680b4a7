//! The client commands of `kubemoor`, as a person runs them.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::control_plane::ControlPlane;
use super::identity::Identity;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

/// Runs `kubemoor` with these arguments as a user of the control plane.
pub(crate) fn moor(control_plane: &ControlPlane, identity: Identity, arguments: &[&str]) -> Ran {
    let kubeconfig = format!("--kubeconfig={}", control_plane.kubeconfig(identity).display());
    run(&[arguments, &[kubeconfig.as_str()]].concat(), "")
}

/// Runs `kubemoor` with these arguments and this standard input.
pub(crate) fn run(arguments: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubemoor"));
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap().into()
}

impl Ran {
    /// What it printed, read as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The items of the list that it printed as JSON.
    pub(crate) fn items(&self) -> Vec<Value> {
        items(&self.out)
    }

    /// Asserts that it could not be carried out, and said so in one sentence with these parts.
    pub(crate) fn assert_failed(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{self:?}");
        assert_eq!(self.error.trim().lines().count(), 1, "{self:?}");
        for part in parts {
            assert!(self.error.contains(part), "{part} is not in {self:?}");
        }
    }
}

/// The items of a list in JSON.
pub(crate) fn items(text: &str) -> Vec<Value> {
    let mut list: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!((list["apiVersion"].as_str(), list["kind"].as_str()), (Some("v1"), Some("List")), "{list}");
    serde_json::from_value(list["items"].take()).unwrap()
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            error: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
