//! Nothing but `client` writes to a cluster.

use std::path::PathBuf;

use super::{Source, TESTS, sources};

/// What may be named of kube outside `client`: a handle to pass on, what kinds are made of, and
/// the words of a watch. Nothing of it forms a request.
const NAMED: [&str; 5] = ["Client", "CustomResource", "CustomResourceExt", "Resource", "runtime::watcher"];

/// What forms a request that may write.
const FORMED: [&str; 7] = [
    "Request::post(",
    "Request::put(",
    "Request::patch(",
    "Request::delete(",
    "Request::builder(",
    ".request_text(",
    ".request_status(",
];

/// What a file outside `client` holds that could write.
fn writes(source: &Source) -> Vec<String> {
    let code = source.code();
    let program = code.split(TESTS).next().unwrap_or_default();
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_named = |rest: &str| {
        NAMED.iter().any(|name| rest.strip_prefix(name).is_some_and(|more| !more.starts_with(is_of_word)))
    };
    let kubes = program.match_indices("kube::").filter_map(|(place, kube)| {
        let rest = &program[place + kube.len()..];
        let is_whole = !program[..place].ends_with(|letter| is_of_word(letter) || letter == ':');
        (is_whole && !is_named(rest)).then(|| rest.lines().next().unwrap_or_default())
    });
    let formed = FORMED.into_iter().filter(|formed| program.contains(formed));
    kubes.chain(formed).map(|found| format!("{}: {found}", source.path.display())).collect()
}

#[test]
fn nothing_but_the_client_writes_to_a_cluster() {
    let mut program = sources("src");
    program.retain(|source| source.module()[0] != "client" && !source.is_test());
    let found: Vec<String> = program.iter().flat_map(writes).collect();
    assert!(found.is_empty(), "move it into src/client: {found:#?}");
}

#[test]
fn the_rule_of_writes_sees_every_way_to_form_one() {
    let check = |text: &str, expected: bool| {
        let source = Source { path: PathBuf::from("src/webhook/a.rs"), text: text.to_owned() };
        assert_eq!(!writes(&source).is_empty(), expected, "{text}");
    };
    check("use kube::api::{Api, PostParams};", true);
    check("use kube::{Api, Client};", true);
    check("fn f() { kube::Api::<Pod>::all(client); }", true);
    check("use kube::core::params::Patch;", true);
    check("use kube::Clients;", true);
    check("let request = http::Request::patch(path);", true);
    check("fn f(client: &kube::Client) {}", false);
    check("use kube::runtime::watcher::Event;", false);
    check("use my_kube::Api; // kube::Api", false);
    check("#[cfg(test)]\nmod tests {\n    use kube::Api;\n}", false);
    check("#[cfg(test)]\nfn f() {}\nuse kube::Api;", true);
}
