//! No two files beside each other know each other, however far around.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::imports::{Module, named};
use super::{Source, sources};

/// What each file or folder of one folder imports of those beside it.
type Beside = BTreeMap<String, BTreeSet<String>>;

/// What the files of each folder import of those beside them.
fn beside(sources: &[Source]) -> BTreeMap<Module, Beside> {
    let modules: BTreeSet<Module> = sources.iter().map(Source::module).collect();
    let mut folders: BTreeMap<Module, Beside> = BTreeMap::new();
    for source in sources {
        let own = source.module();
        for mut path in named(source) {
            while !path.is_empty() && !modules.contains(&path) {
                path.pop();
            }
            let shared = own.iter().zip(&path).take_while(|(own, other)| own == other).count();
            if let (Some(own), Some(other)) = (own.get(shared), path.get(shared)) {
                let folder = folders.entry(path[..shared].to_vec()).or_default();
                folder.entry(own.clone()).or_default().insert(other.clone());
            }
        }
    }
    folders
}

/// What can be reached from `start`.
fn reached(from: &Beside, start: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![start];
    while let Some(name) = open.pop() {
        for next in from.get(name).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    found
}

fn circles(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, beside) in beside(sources) {
        let in_circle: Vec<&str> =
            beside.keys().filter(|name| reached(&beside, name).contains(*name)).map(String::as_str).collect();
        if !in_circle.is_empty() {
            found.push(format!("src/{}: {}", folder.join("/"), in_circle.join(", ")));
        }
    }
    found
}

#[test]
fn no_files_of_one_module_import_each_other() {
    let mut program = sources("src");
    program.retain(|source| !source.is_test());
    let found = circles(&program);
    assert!(found.is_empty(), "in a circle: {found:#?}");
}

#[test]
fn import_cycle_is_found_for_every_form_of_import_path() {
    let check = |first: &str, second: &str, expected: &[&str]| {
        let files = [
            ("src/helm/mod.rs", "mod a; mod b;"),
            ("src/helm/a.rs", first),
            ("src/helm/b/mod.rs", "mod inner;"),
            ("src/helm/b/inner.rs", second),
        ];
        let source = |(path, text): (&str, &str)| Source { path: PathBuf::from(path), text: text.to_owned() };
        assert_eq!(circles(&files.map(source)), expected, "{first} {second}");
    };
    let circle = &["src/helm: a, b"];
    check("use super::b::inner::Thing;", "use super::super::a::Other;", circle);
    check("use crate::helm::b;", "fn f() { crate::helm::a::call(); }", circle);
    check("use crate::helm::{self, b::{self, inner::Thing}};", "use crate::{\n    helm::a,\n};", circle);
    check("use super::b::Thing;", "use super::Thing;", &[]);
    check("use super::b::Thing;", "// super::super::a\nuse other::a;", &[]);
    check("", "use super::super::a::Other;", &[]);
}
