//! The rules of the source tree, each as a test: who may import whom, what the
//! pure half must not call, and that no file is forgotten or overgrown.

mod circles;
mod functions;
mod imports;
mod order;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules by rank. A file imports only modules of a lower rank, beside
/// its own; modules of one rank never import each other.
const RANKS: [&[&str]; 13] = [
    &["model", "sweep"],
    &["config"],
    &["declaration"],
    &["helm"],
    &["policy"],
    &["verdict"],
    &["reconcile"],
    &["callers", "tls", "telemetry", "metrics"],
    &["client", "ledger", "notify", "server"],
    &["mirror"],
    &["inspect"],
    &["webhook", "guard", "admin", "web"],
    &["app"],
];

/// The modules above all ranks, lowest first.
const TOP: [&str; 3] = ["cli", "main", "lib"];

/// The modules that know neither I/O nor clock nor task.
const PURE: [&str; 5] = ["declaration", "helm", "policy", "verdict", "reconcile"];
const PURITY: &str = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]";

/// The most lines that a file of the program may have.
const LINES: usize = 400;

/// Where the tests of a file begin.
const TESTS: &str = "#[cfg(test)]\nmod tests";

struct Source {
    /// From the package's root, such as `src/helm/record.rs`.
    path: PathBuf,
    text: String,
}

impl Source {
    /// The names of the modules from the crate's root to this file.
    fn module(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.path.with_extension("").iter().skip(1).map(|it| it.to_string_lossy().into_owned()).collect();
        if names.last().is_some_and(|last| last == "mod") {
            names.pop();
        }
        names
    }

    fn is_test(&self) -> bool {
        self.path.starts_with("tests") || self.module().iter().any(|name| name == "tests")
    }

    /// The text without the module of tests at its end. Other code that only tests see is held to the rules.
    fn program(&self) -> &str {
        self.text.split(TESTS).next().unwrap_or_default()
    }

    /// The text without comments. A `//` inside a string ends a line early,
    /// which hides no import.
    fn code(&self) -> String {
        self.text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<Source>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push(Source { path: path.strip_prefix(root()).unwrap().to_owned(), text });
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(!found.is_empty(), "{folder} is empty");
    found
}

fn rank(module: &str) -> Option<usize> {
    let top = TOP.iter().position(|name| *name == module).map(|place| RANKS.len() + place);
    RANKS.iter().position(|rank| rank.contains(&module)).or(top)
}

/// The top-level modules that a file names, its own among them.
fn imports(source: &Source) -> BTreeSet<String> {
    imports::named(source).into_iter().filter_map(|path| path.into_iter().next()).collect()
}

/// The files that `mod` lines reach from `start`.
fn reached(start: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![PathBuf::from(start)];
    while let Some(path) = open.pop() {
        let source = Source { text: fs::read_to_string(root().join(&path)).unwrap(), path: path.clone() };
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let parent = path.parent().unwrap();
        let folder = match stem.as_str() {
            "main" | "lib" | "mod" => parent.to_owned(),
            _ => parent.join(stem),
        };
        for line in source.code().lines() {
            let Some(name) = line.trim().strip_suffix(';').and_then(|line| line.rsplit_once("mod ")) else {
                continue;
            };
            let visibility = name.0.trim();
            if visibility.is_empty() || visibility.starts_with("pub") || visibility.starts_with('#') {
                let candidates = [folder.join(format!("{}.rs", name.1)), folder.join(name.1).join("mod.rs")];
                open.extend(candidates.into_iter().filter(|file| root().join(file).is_file()));
            }
        }
        found.insert(path);
    }
    found
}

#[test]
fn a_file_imports_only_what_stands_below_it() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let own = source.module().first().cloned().unwrap();
        let Some(own_rank) = rank(&own) else {
            wrong.push(format!("{}: {own} has no rank: add it to RANKS", source.path.display()));
            continue;
        };
        for import in imports(&source).into_iter().filter(|import| *import != own) {
            if rank(&import).is_some_and(|rank| rank >= own_rank) {
                wrong.push(format!("{} imports {import}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_import_rule_sees_every_way_to_name_a_module() {
    let check = |path: &str, text: &str, expected: &[&str]| {
        let source = Source { path: PathBuf::from(path), text: text.to_owned() };
        let expected: BTreeSet<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(imports(&source), expected, "{path}: {text}");
    };
    check("src/helm/record.rs", "use crate::model::Gvk;", &["model"]);
    check("src/helm/record.rs", "use crate::{config::{Tls, Source}, model::Gvk};", &["config", "model"]);
    check("src/helm/record.rs", "use crate::{\n    app, cli::{self},\n};", &["app", "cli"]);
    check("src/helm/record.rs", "fn f() { crate::app::serve(); }", &["app"]);
    check("src/helm/record.rs", "use super::super::app;", &["app"]);
    check("src/helm/mod.rs", "use super::app;", &["app"]);
    check("src/helm/record.rs", "use super::yaml;", &["helm"]);
    check("src/helm/record.rs", "// crate::app\n//! [`crate::app`]", &[]);
    check("src/helm/record.rs", "use my_crate::app;", &[]);
}

#[test]
fn the_pure_half_is_held_to_it_by_lint() {
    for module in PURE {
        let head = fs::read_to_string(root().join("src").join(module).join("mod.rs")).unwrap();
        assert!(head.lines().any(|line| line == PURITY), "src/{module}/mod.rs lacks {PURITY}");
    }
    for source in sources("src").iter().filter(|source| PURE.contains(&source.module()[0].as_str())) {
        let code = source.code();
        // A derive makes a type a resource; it brings no client along.
        let code = code.replace("use kube::CustomResource;", "");
        for escape in ["clippy::disallowed", "async fn", ".await", "tracing::", "kube::"] {
            let count =
                code.matches(escape).count() - code.matches(PURITY).count() * PURITY.matches(escape).count();
            assert_eq!(count, 0, "{} has {escape}", source.path.display());
        }
    }
}

#[test]
fn decisions_hold_no_lock_and_share_no_state() {
    // The simulated cluster keeps what it has read.
    let is_held = |source: &&Source| match source.module().iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        ["reconcile", "simulation", ..] => false,
        ["reconcile" | "verdict", ..] => true,
        _ => false,
    };
    for source in sources("src").iter().filter(is_held) {
        let code = source.code();
        for lock in ["Mutex", "RwLock", "Atomic", "RefCell"] {
            assert!(!code.contains(lock), "{} has {lock}", source.path.display());
        }
    }
}

#[test]
fn no_file_is_forgotten() {
    let check = |folder: &str, starts: &[&str]| {
        let reached: BTreeSet<_> = starts.iter().flat_map(|start| reached(start)).collect();
        let present: BTreeSet<_> = sources(folder).into_iter().map(|source| source.path).collect();
        let forgotten: Vec<_> = present.difference(&reached).collect();
        assert!(forgotten.is_empty(), "no mod line leads to {forgotten:?}");
    };
    check("src", &["src/lib.rs", "src/main.rs"]);
    check("tests/it", &["tests/it/main.rs"]);
}

#[test]
fn no_file_is_overgrown() {
    let mut long = BTreeMap::new();
    for source in sources("src") {
        let limit = if source.path == Path::new("src/main.rs") { 25 } else { LINES };
        let lines = source.text.lines().count();
        if lines > limit {
            long.insert(source.path.clone(), lines);
        }
    }
    assert!(long.is_empty(), "too long: {long:?}");
}

#[test]
fn every_module_says_what_it_is_for() {
    for source in sources("src").iter().filter(|source| !source.is_test()) {
        let head = source.text.lines().next().unwrap_or_default();
        assert!(head.starts_with("//! "), "{} begins with {head:?}", source.path.display());
        assert!(
            !head.contains("Work in progress"),
            "{} is empty: write it or leave it out",
            source.path.display()
        );
    }
}

#[test]
fn every_module_header_names_entry_point_invariant_and_prohibitions() {
    let mut silent = Vec::new();
    for source in sources("src").iter().filter(|source| source.module().len() == 1 && !source.is_test()) {
        if TOP.contains(&source.module()[0].as_str()) && source.module()[0] != "cli" {
            continue;
        }
        let lines = source.text.lines().take_while(|line| line.starts_with("//!"));
        let head = lines.map(|line| line.trim_start_matches("//!").trim()).collect::<Vec<_>>().join(" ");
        for part in ["Entry point", "Invariant", "Must not "] {
            if !head.contains(part) {
                silent.push(format!("{} says no {part:?}", source.path.display()));
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn no_module_is_a_drawer_for_everything() {
    for source in sources("src").iter().chain(&sources("tests")) {
        for name in source.module() {
            let drawer = ["util", "utils", "common", "helper", "helpers", "misc"].contains(&name.as_str());
            assert!(!drawer, "{}", source.path.display());
        }
    }
}
