//! The container image: what it holds, and that packing it twice gives the same bytes.
//!
//! The program that is packed here is the one of the tests; `make test-image` builds the real one twice.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::root;

#[test]
#[ignore = "slow: make test-all"]
fn image_contains_only_program_and_certificates_and_runs_unprivileged() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    pack(&archive, folder.path(), "022");
    let layout = folder.path().join("layout");
    unpack(&archive, &layout);

    let index = read(&layout.join("index.json"));
    let manifest = blob(&layout, &index["manifests"][0]);
    let config = blob(&layout, &manifest["config"]);
    assert_eq!(config["os"], "linux");
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], json!(["/kubemoor"]));

    let mut held = BTreeMap::new();
    for layer in manifest["layers"].as_array().unwrap() {
        let listing = Command::new("tar")
            .args(["--list", "--gzip", "--verbose", "--numeric-owner", "--file"])
            .arg(blob_path(&layout, layer))
            .output()
            .unwrap();
        assert!(listing.status.success(), "{}", String::from_utf8_lossy(&listing.stderr));
        for line in String::from_utf8(listing.stdout).unwrap().lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            held.insert(words[5].to_owned(), format!("{} {}", words[0], words[1]));
        }
    }
    let folders = ["etc/", "etc/ssl/", "etc/ssl/certs/"].map(|path| (path, "dr-xr-xr-x 0/0"));
    let files = [("etc/ssl/certs/ca-certificates.crt", "-r--r--r-- 0/0"), ("kubemoor", "-r-xr-xr-x 0/0")];
    let expected = folders.into_iter().chain(files);
    assert_eq!(held, expected.map(|(path, mode)| (path.to_owned(), mode.to_owned())).collect());
}

#[test]
#[ignore = "slow: make test-all"]
fn image_is_reproducible_in_any_folder_with_any_umask() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archives = [(one.path(), "022"), (other.path(), "077")].map(|(folder, mask)| {
        let archive = folder.join("image.tar");
        pack(&archive, folder, mask);
        fs::read(archive).unwrap()
    });
    assert!(archives[0] == archives[1], "the archives differ");
}

#[test]
#[ignore = "slow: make test-all"]
fn image_is_for_the_architecture_of_its_target() {
    let folder = tempfile::tempdir().unwrap();
    let host = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let cases: [(&[&str], &str); 3] = [
        (&[], host),
        (&["--target", "x86_64-unknown-linux-gnu"], "amd64"),
        (&["--target", "aarch64-unknown-linux-gnu"], "arm64"),
    ];
    let program = folder.path().join("program");
    fs::write(&program, "no program").unwrap();
    for (place, (flags, architecture)) in cases.into_iter().enumerate() {
        let archive = folder.path().join(format!("{place}.tar"));
        let packed = build(flags, (&archive, &program), folder.path(), "022");
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let layout = folder.path().join(place.to_string());
        unpack(&archive, &layout);
        let manifest = blob(&layout, &read(&layout.join("index.json"))["manifests"][0]);
        assert_eq!(blob(&layout, &manifest["config"])["architecture"], architecture, "{flags:?}");
    }
    let refused = build(
        &["--target", "wasm32-wasip1"],
        (&folder.path().join("no.tar"), &program),
        folder.path(),
        "022",
    );
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("wasm32-wasip1 is no target of an image"), "{said}");
}

#[test]
#[ignore = "slow: make test-all"]
fn no_path_of_the_machine_gets_into_the_program() {
    let folder = tempfile::tempdir().unwrap();
    // In place of cargo: notes what it is told, and builds nothing.
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let cargo = tools.join("cargo");
    fs::write(&cargo, "#!/bin/sh\nprintf '%s\\n' \"$RUSTFLAGS\" \"$CFLAGS\" \"$@\" > \"$TOLD\"\nexit 1\n")
        .unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let (target, told) = (folder.path().join("target"), folder.path().join("told"));
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let built = Command::new(root().join("deploy/image/build"))
        .arg(folder.path().join("image.tar"))
        .current_dir(root())
        .envs([("CARGO_TARGET_DIR", &target), ("TOLD", &told), ("TMPDIR", &folder.path().to_owned())])
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(!built.status.success());
    let told = fs::read_to_string(&told).unwrap_or_else(|error| panic!("{error}: {built:?}"));
    let lines: Vec<_> = told.lines().collect();
    let built_in = lines[lines.iter().position(|line| *line == "--target-dir").unwrap() + 1];
    assert_eq!(Path::new(built_in), target.join("image"));
    for (flags, flag) in [(lines[0], "--remap-path-prefix="), (lines[1], "-ffile-prefix-map=")] {
        let mapped: Vec<_> = flags.split_whitespace().filter_map(|word| word.strip_prefix(flag)).collect();
        // What is generated while building lies in the target folder: the last one that fits counts.
        let last = mapped.iter().rev().find(|map| built_in.starts_with(map.split('=').next().unwrap()));
        assert_eq!(last.unwrap(), &format!("{built_in}=/target"), "{flags}");
        assert_eq!(mapped.len(), 3, "{flags}");
    }
}

/// Packs the program of the tests, with `folder` for what is temporary.
fn pack(archive: &Path, folder: &Path, mask: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_kubemoor"));
    let output = build(&[], (archive, program), folder, mask);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn build(flags: &[&str], (archive, program): (&Path, &Path), folder: &Path, mask: &str) -> Output {
    Command::new("bash")
        .args(["-c", "umask \"$0\"; exec deploy/image/build \"$@\"", mask])
        .args(flags)
        .args([archive, program])
        .current_dir(root())
        .env("TMPDIR", folder)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap()
}

fn unpack(archive: &Path, layout: &Path) {
    fs::create_dir(layout).unwrap();
    let status = Command::new("tar")
        .args([Path::new("--extract"), Path::new("--file"), archive, Path::new("--directory"), layout])
        .status();
    assert!(status.unwrap().success());
}

fn blob(layout: &Path, descriptor: &Value) -> Value {
    read(&blob_path(layout, descriptor))
}

fn blob_path(layout: &Path, descriptor: &Value) -> std::path::PathBuf {
    layout.join("blobs").join(descriptor["digest"].as_str().unwrap().replace(':', "/"))
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
