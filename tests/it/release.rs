//! A release: one version everywhere, files that are complete and the same each time, pipelines that run what is pinned, and
//! what other tools read of the project.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{Document, documents, folder, root, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The pipelines, each with its name.
fn workflows() -> Vec<(String, String)> {
    let folder = root().join(".github/workflows");
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found.into_iter().map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// What follows `mark` in a text, each time, up to the next letter that belongs to no version.
fn versions_after<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let version = |rest: &'a str| rest.split(|it: char| !it.is_ascii_digit() && it != '.').next().unwrap();
    text.split(mark).skip(1).map(|rest| version(rest).trim_end_matches('.')).collect()
}

#[test]
fn every_file_names_the_version_of_the_program() {
    assert_eq!(run(&["--version"], "").out.trim(), format!("kubemoor {VERSION}"));
    let mut texts: Vec<_> =
        documents().into_iter().map(|it| (it.path.display().to_string(), it.text)).collect();
    let files = ["deploy/workload.yaml", "certs/workload.yaml", "deploy/chart/Chart.yaml"];
    texts.extend(files.map(|file| (file.to_owned(), read(file))));
    let mut seen = 0;
    for (file, text) in &texts {
        let marks = ["kubemoor:", "kubemoor-", "kubectl-moor-v", "refs/tags/v", "VERSION="];
        for version in marks.iter().flat_map(|mark| versions_after(text, mark)) {
            if version.contains('.') {
                assert_eq!(version, VERSION, "{file}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} versions were found");
    assert_eq!(yaml(&read("deploy/helm-plugin/plugin.yaml"))["version"], VERSION);
    let changes = read("CHANGELOG.md");
    let newest = changes.lines().find(|line| line.starts_with("## [")).unwrap();
    assert!(newest.starts_with(&format!("## [{VERSION}]")), "{newest}");
    for file in ["examples/flux.yaml", "examples/argocd.yaml"] {
        assert!(read(file).contains(&format!(": {VERSION}\n")), "{file}");
    }
}

/// `tests/it/chart_installed.rs` upgrades from that chart, and rolls back to it.
#[test]
fn upgrades_are_tested_from_the_release_before() {
    let chart = yaml(&read("tests/it/chart/previous/Chart.yaml"));
    let changes = read("CHANGELOG.md");
    let mut released = changes.lines().filter_map(|line| line.strip_prefix("## [")?.split(']').next());
    assert_eq!(released.next(), Some(VERSION));
    // An earlier build stands for a release before the first one.
    assert_eq!(
        chart["version"],
        released.next().unwrap_or("0.0.1"),
        "docs/releases.md says how to replace it"
    );
    assert_eq!(chart["version"], chart["appVersion"]);
}

#[test]
fn pipelines_use_pinned_actions_and_the_toolchain_of_the_project() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.split("channel = \"").nth(1).unwrap().split('"').next().unwrap();
    let (mut seen, mut images) = (0, BTreeSet::new());
    for (file, text) in workflows() {
        assert_eq!(yaml(&text)["permissions"], json!({}), "{file}: jobs ask for their rights");
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("- uses: ")) {
            let (action, version) = line.split_once(" # v").unwrap_or_else(|| panic!("{file}: {line}"));
            let commit = action.split_once('@').unwrap().1;
            let is_commit = commit.len() == 40 && commit.chars().all(|it| it.is_ascii_hexdigit());
            assert!(is_commit && version.starts_with(|it: char| it.is_ascii_digit()), "{file}: {line}");
            seen += 1;
        }
        for image in text.lines().filter_map(|line| line.trim().strip_prefix("container: ")) {
            let digest = image.strip_prefix(&format!("rust:{channel}-bookworm@sha256:"));
            let digest = digest.unwrap_or_else(|| panic!("{file}: {image}"));
            assert!(digest.len() == 64 && digest.chars().all(|it| it.is_ascii_hexdigit()), "{file}: {image}");
            images.insert(image.to_owned());
        }
    }
    assert!(seen > 8, "only {seen} actions were found");
    assert_eq!(images.len(), 1, "all jobs run in one image: {images:?}");
}

/// What needs the forge, a registry or a network is a step with a name.
#[test]
fn steps_of_pipelines_without_a_name_call_make() {
    let makefile = read("Makefile");
    let mut seen = 0;
    for (file, text) in workflows() {
        let workflow = yaml(&text);
        for (job, steps) in workflow["jobs"].as_object().unwrap() {
            for step in steps["steps"].as_array().unwrap() {
                let Some(line) = step["run"].as_str().filter(|_| step["name"].is_null()) else { continue };
                let target = line.strip_prefix("make ").unwrap_or_else(|| panic!("{file}: {job}: {line}"));
                let target = target.split_whitespace().next().unwrap();
                assert!(makefile.contains(&format!("\n{target}:")), "{file}: {job}: {line}");
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "only {seen} steps were found");
}

#[test]
fn chart_metadata_names_the_definitions_and_the_image() {
    let chart = yaml(&read("deploy/chart/Chart.yaml"));
    let annotation = |name: &str| yaml(chart["annotations"][name].as_str().unwrap());
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&read("deploy/crds.yaml")).unwrap();
    let real: BTreeSet<_> = definitions
        .iter()
        .filter(|it| it.is_object())
        .map(|it| {
            let spec = &it["spec"];
            (
                it["metadata"]["name"].clone(),
                spec["names"]["kind"].clone(),
                spec["versions"][0]["name"].clone(),
            )
        })
        .map(|it| format!("{it:?}"))
        .collect();
    let listed = annotation("artifacthub.io/crds");
    let listed: BTreeSet<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{:?}", (it["name"].clone(), it["kind"].clone(), it["version"].clone())))
        .collect();
    assert_eq!(listed, real);
    assert_eq!(annotation("artifacthub.io/images")[0]["image"], format!("kubemoor:{VERSION}"));
    assert!(annotation("artifacthub.io/changes")[0]["kind"].is_string());
}

#[test]
fn security_insights_name_files_that_exist() {
    let text = read("SECURITY-INSIGHTS.yml");
    let insights = yaml(&text);
    assert_eq!(insights["header"]["schema-version"], "2.0.0");
    for part in ["project", "repository"] {
        assert!(insights[part].is_object(), "{part}");
    }
    let address = insights["header"]["url"].as_str().unwrap();
    let files: Vec<&str> =
        text.split(&format!("{address}/blob/main/")).skip(1).map(|it| it.lines().next().unwrap()).collect();
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        assert!(root().join(file).exists(), "{file}");
    }
}

#[test]
fn every_page_is_in_the_summary_of_the_site() {
    let summary = Document::named("docs/SUMMARY.md").text;
    for document in documents() {
        let path = document.path.to_str().unwrap();
        let target = path.strip_prefix("docs/").map_or(format!("../{path}"), str::to_owned);
        let is_listed = summary.contains(&format!("]({target})"));
        assert!(is_listed || path == "docs/SUMMARY.md", "docs/SUMMARY.md does not name {target}");
    }
}

/// A program that says what it is called with, and whose help is that of the real one.
fn stand_in(place: &Path) {
    let script = format!(
        "#!/bin/sh\ncase $* in *--help*) exec '{}' \"$@\" ;; esac\necho \"$@\"\n",
        env!("CARGO_BIN_EXE_kubemoor")
    );
    write_program(&place.join("kubemoor"), &script);
}

fn write_program(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn helm_plugin_passes_helms_namespace_and_context() {
    let place = folder("helm-plugin");
    stand_in(&place);
    let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap());
    let plugin = yaml(&read("deploy/helm-plugin/plugin.yaml"));
    let program = plugin["command"].as_str().unwrap().replace("$HELM_PLUGIN_DIR", "deploy/helm-plugin");
    for (given, called) in [
        ("diff shop", "diff shop --namespace prod --context west"),
        ("diff -A", "diff -A --context west"),
        ("get releases", "get releases --namespace prod --context west"),
        ("version", "version --context west"),
        // Its namespace is a filter of a database.
        ("fleet", "fleet"),
        ("policy test policies/tests", "policy test policies/tests"),
    ] {
        let ran = Command::new(root().join(&program))
            .args(given.split(' '))
            .envs([("PATH", path.as_str()), ("HELM_NAMESPACE", "prod"), ("HELM_KUBECONTEXT", "west")])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), called, "{ran:?}");
    }
}

/// A copy of the checkout as the only commit of a repository.
fn copied_checkout() -> PathBuf {
    let copy = folder("checkout");
    let script = r#"
        cd "$1"
        git ls-files -z --cached --others --exclude-standard -- ':!tests/it' |
          tar --create --null --ignore-failed-read --files-from - | tar --extract --directory "$2"
        cd "$2"
        git init --quiet
        git add --all
        git -c user.name=A -c user.email=a@a.example commit --quiet --message release --date '2026-01-01T00:00:00Z'
    "#;
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script, "copy"]).args([root(), &copy]);
    let copied = command.env("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z").output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    copy
}

/// Makes a release of programs that stand in for real ones; what is packed is small.
fn release(checkout: &Path, version: &str, tools: &Path, mask: &str) -> Output {
    let program = tools.join("program");
    let mut command = release_command(checkout, version, tools, mask);
    command.envs([("BINARY_AMD64", &program), ("BINARY_ARM64", &program)]).output().unwrap()
}

fn release_command(checkout: &Path, version: &str, tools: &Path, mask: &str) -> Command {
    let mut command = Command::new("bash");
    command
        .args(["-c", "umask \"$0\"; exec deploy/release \"$@\"", mask, version, "target/release"])
        .arg(tools.join("cyclonedx"))
        .current_dir(checkout)
        .envs([
            ("SOURCE", "https://git.example/kubemoor"),
            ("REGISTRY", "registry.example"),
            ("BUILDER", "https://git.example/builder"),
        ]);
    command
}

/// A program that the release packs, and a cargo-cyclonedx that writes beside each Cargo.toml as the real one does.
fn release_tools() -> PathBuf {
    let tools = folder("tools");
    write_program(
        &tools.join("program"),
        "#!/bin/sh\ncase $1 in man) mkdir -p \"$2\"; echo page >\"$2/kubemoor.1\" ;; *) echo \"$@\" ;; esac\n",
    );
    write_program(
        &tools.join("cyclonedx"),
        r#"#!/bin/sh
for word; do
  case $last in --override-filename) name=$word ;; --manifest-path) root=${word%/*} ;; esac
  last=$word
done
for manifest in "$root"/Cargo.toml "$root"/*/Cargo.toml "$root"/crates/*/Cargo.toml; do
  echo {} >"${manifest%/*}/$name.json"
done
"#,
    );
    tools
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "slow: make test-all"]
fn release_is_complete_and_the_same_each_time() {
    let (checkout, tools) = (copied_checkout(), release_tools());
    let made = release(&checkout, VERSION, &tools, "022");
    assert!(made.status.success(), "{}", told(&made));
    let out = checkout.join("target/release");
    let files = || {
        let mut files: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect::<Vec<_>>()
    };
    let first = files();
    let again = release(&checkout, VERSION, &tools, "077");
    assert!(again.status.success(), "{}", told(&again));
    assert!(first == files(), "two releases of one commit differ");

    let named: BTreeSet<_> =
        first.iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let rows = Document::named("docs/releases.md").table("## What a release holds");
    for row in rows.iter().filter(|row| !row[0].contains("sigstore")) {
        for name in row[0].split('`').skip(1).step_by(2).filter(|name| !name.starts_with('-')) {
            assert!(named.contains(name), "{name} is none of {named:?}");
        }
    }
    let statement: Value = serde_json::from_slice(&fs::read(out.join("provenance.json")).unwrap()).unwrap();
    let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    for subject in statement["subject"].as_array().unwrap() {
        let (name, digest) =
            (subject["name"].as_str().unwrap(), subject["digest"]["sha256"].as_str().unwrap());
        let is_image = name == "registry.example/kubemoor" && digest.len() == 64;
        assert!(is_image || sums.contains(&format!("{digest}  {name}\n")), "{subject}");
    }
    assert_eq!(statement["subject"].as_array().unwrap().len(), named.len() - 1);

    let other = release(&checkout, "9.9.9", &tools, "022");
    let said = told(&other);
    assert!(!other.status.success() && said.contains("not 9.9.9"), "{said}");
    fs::write(checkout.join("README.md"), "changed").unwrap();
    let changed = release(&checkout, VERSION, &tools, "022");
    let said = told(&changed);
    assert!(!changed.status.success() && said.contains("commit these changes"), "{said}");
}

#[test]
#[ignore = "slow: make test-all"]
fn release_leaves_out_no_platform_that_was_not_named() {
    let (checkout, tools) = (copied_checkout(), release_tools());
    // A toolchain that has no standard library for anything.
    write_program(&tools.join("rustc"), "#!/bin/sh\necho /nonexistent\n");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let program = tools.join("program");
    let mut both = release_command(&checkout, VERSION, &tools, "022");
    let refused = both.env("BINARY_AMD64", &program).env("PATH", path).output().unwrap();
    let said = told(&refused);
    assert!(!refused.status.success() && said.contains("cannot build for arm64"), "{said}");
    assert!(said.contains("rustup target add aarch64-unknown-linux-gnu"), "{said}");
    assert!(said.contains("platforms=amd64"), "{said}");
    let out = checkout.join("target/release");
    assert!(!out.exists(), "it found out before it built");

    let mut unknown = release_command(&checkout, VERSION, &tools, "022");
    let refused = unknown.env("PLATFORMS", "amd64 riscv64").output().unwrap();
    assert!(!refused.status.success() && told(&refused).contains("riscv64"), "{}", told(&refused));

    let (host, other) = if cfg!(target_arch = "aarch64") { ("arm64", "amd64") } else { ("amd64", "arm64") };
    let mut one = release_command(&checkout, VERSION, &tools, "022");
    one.env("PLATFORMS", host).env(format!("BINARY_{}", host.to_uppercase()), &program);
    let made = one.output().unwrap();
    assert!(made.status.success(), "{}", told(&made));
    let named = |folder: &Path| -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    };
    let files = named(&out);
    assert!(files.iter().any(|name| name.contains(host)), "{files:?}");
    assert!(files.iter().all(|name| !name.contains(other)), "{files:?}");
    let unpack = |archive: &str| {
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(out.join(archive)).arg("--directory").arg(&out);
        assert!(tar.status().unwrap().success(), "{archive}");
    };
    unpack(&format!("kubemoor-{VERSION}.tgz"));
    let chart = fs::read_to_string(out.join("kubemoor/Chart.yaml")).unwrap();
    assert!(chart.contains(&format!("platforms: [linux/{host}]")), "{chart}");
    let plugin = fs::read_to_string(out.join("moor.yaml")).unwrap();
    assert_eq!(yaml(&plugin)["spec"]["platforms"].as_array().unwrap().len(), 1, "{plugin}");
    let statement: Value = serde_json::from_slice(&fs::read(out.join("provenance.json")).unwrap()).unwrap();
    let definition = &statement["predicate"]["buildDefinition"];
    assert_eq!(definition["externalParameters"]["platforms"], json!([host]));
    assert_eq!(definition["internalParameters"]["targets"].as_array().unwrap().len(), 1);
}
