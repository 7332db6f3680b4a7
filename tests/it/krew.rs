//! The plugin for krew: its manifest follows the rules by which krew accepts one, and its archives hold what it names.
//!
//! krew itself is no part of the tests. The rules are those that it documents for plugin manifests and checks before it
//! installs one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::root;

const URI: &str = "https://downloads.example/kubemoor";

/// Packs the program of the tests for two platforms.
fn build(out: &Path, uri: &str, platforms: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_kubemoor");
    Command::new("deploy/krew/build")
        .args([uri, out.to_str().unwrap()])
        .args(platforms.iter().map(|platform| format!("{platform}={program}")))
        .current_dir(root())
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap()
}

fn manifest(out: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(out.join("moor.yaml")).unwrap()).unwrap()
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// The first rule that a manifest in a file of this name breaks.
fn broken(name: &str, manifest: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is = |broken: bool, rule: &str| broken.then(|| rule.to_owned());
    let spec = &manifest["spec"];
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '-'))
    };
    let reserved = ["con", "prn", "aux", "nul"];
    let short = text(&spec["shortDescription"]);
    let platforms = spec["platforms"].as_array().cloned().unwrap_or_default();
    is(manifest["apiVersion"] != "krew.googlecontainertools.github.com/v1alpha2", "apiVersion")
        .or_else(|| is(manifest["kind"] != "Plugin", "kind"))
        .or_else(|| is(!is_word(name) || reserved.contains(&&*name.to_lowercase()), "name of the file"))
        .or_else(|| is(manifest["metadata"]["name"] != name, "metadata.name"))
        .or_else(|| {
            is(short.is_empty() || short.contains(['\r', '\n']) || short.len() > 50, "shortDescription")
        })
        .or_else(|| is(text(&spec["description"]).is_empty(), "description"))
        .or_else(|| is(!is_version(&text(&spec["version"])), "version"))
        .or_else(|| is(platforms.is_empty(), "platforms"))
        .or_else(|| platforms.iter().find_map(broken_platform))
}

/// `v` and a semantic version.
fn is_version(text: &str) -> bool {
    let Some(version) = text.strip_prefix('v') else { return false };
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number = |text: &&str| {
        !text.is_empty()
            && text.chars().all(|it| it.is_ascii_digit())
            && (*text == "0" || !text.starts_with('0'))
    };
    numbers.len() == 3 && numbers.iter().all(is_number)
}

fn broken_platform(platform: &Value) -> Option<String> {
    let text = |field: &str| platform[field].as_str().unwrap_or_default().to_owned();
    let is = |broken: bool, rule: &str| broken.then(|| rule.to_owned());
    let is_hex = |text: &str| {
        text.len() == 64 && text.chars().all(|it| it.is_ascii_digit() || ('a'..='f').contains(&it))
    };
    let labels = platform["selector"]["matchLabels"].as_object();
    let keys: Vec<&String> = labels.into_iter().flatten().map(|(key, _)| key).collect();
    let files = platform["files"].as_array().cloned().unwrap_or_default();
    let is_relative = |path: &str| !path.is_empty() && !path.starts_with('/') && !path.contains("..");
    let is_file = |file: &Value| {
        ["from", "to"].iter().all(|field| is_relative(file[*field].as_str().unwrap_or_default()))
    };
    is(!text("uri").starts_with("https://"), "uri")
        .or_else(|| is(!is_hex(&text("sha256")), "sha256"))
        .or_else(|| is(!is_relative(&text("bin")), "bin"))
        .or_else(|| is(files.is_empty() || !files.iter().all(is_file), "files"))
        .or_else(|| {
            is(keys.is_empty() || keys.iter().any(|key| !["os", "arch"].contains(&key.as_str())), "selector")
        })
}

#[test]
#[ignore = "slow: make test-all"]
fn manifest_follows_krews_rules_and_names_its_archives() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(folder.path(), URI, &["linux/amd64", "linux/arm64"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let manifest = manifest(folder.path());
    assert_eq!(broken("moor", &manifest), None, "{manifest}");
    assert_eq!(manifest["spec"]["version"], json!(format!("v{}", env!("CARGO_PKG_VERSION"))));
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for platform in platforms {
        let name = platform["uri"].as_str().unwrap().strip_prefix(&format!("{URI}/")).unwrap();
        let archive = folder.path().join(name);
        assert_eq!(platform["sha256"], json!(sha256(&archive)));
        let unpacked = folder.path().join("unpacked");
        fs::create_dir_all(&unpacked).unwrap();
        let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&unpacked).status();
        assert!(status.unwrap().success());
        for file in platform["files"].as_array().unwrap() {
            assert!(unpacked.join(file["from"].as_str().unwrap()).is_file(), "{file}");
        }
        // krew links the program under the name by which kubectl finds it.
        let program = unpacked.join(platform["bin"].as_str().unwrap());
        let ran = Command::new(program).arg("--help").output().unwrap();
        assert!(String::from_utf8_lossy(&ran.stdout).contains("kubectl moor"), "{ran:?}");
    }
}

#[test]
#[ignore = "slow: make test-all"]
fn krew_packing_is_reproducible_and_refuses_invalid_address_or_platform() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let built = [one.path(), other.path()].map(|folder| {
        assert!(build(folder, URI, &["linux/amd64"]).status.success());
        fs::read_to_string(folder.join("moor.yaml")).unwrap()
    });
    assert_eq!(built[0], built[1]);
    for (uri, platform, says) in [
        ("http://downloads.example", "linux/amd64", "must begin with https://"),
        (URI, "plan9/amd64", "plan9/amd64 is no platform of the program"),
    ] {
        let refused = build(one.path(), uri, &[platform]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(says), "{said}");
    }
}
