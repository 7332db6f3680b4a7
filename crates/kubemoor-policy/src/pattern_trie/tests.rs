use proptest::prelude::*;

use super::*;

fn segment() -> impl Strategy<Value = String> {
    let texts = ["spec", "a", "80", "*", "[name=a]", "[name=b]", "[port=80]", "[port=\"80\"]"];
    let more = ["[port=80,name=a]", "[name=a,port=80]", "[=80]", "[=\"80\"]", "[=a]", "0"];
    proptest::sample::select(texts.into_iter().chain(more).map(str::to_owned).collect::<Vec<_>>())
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(segment(), 1..5).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #[test]
    fn no_pattern_that_says_something_of_a_path_is_missed(
        rules in proptest::collection::vec(proptest::collection::vec(text(), 0..4), 0..8),
        path in text(),
        everything in proptest::option::of(0..8_usize),
    ) {
        let path: Path = path.parse().unwrap();
        let mut rules: Vec<Vec<Pattern>> =
            rules.iter().map(|rule| rule.iter().map(|it| Pattern::parse(it).unwrap()).collect()).collect();
        if let Some(rule) = everything.and_then(|rule| rules.get_mut(rule)) {
            rule.push(Pattern::parse("*").unwrap());
        }
        let mut trie = PatternTrie::default();
        for (number, rule) in rules.iter().enumerate() {
            rule.iter().for_each(|pattern| trie.add(pattern, number));
        }
        let found = trie.at(&path);
        prop_assert!(found.is_sorted());
        for (number, rule) in rules.iter().enumerate() {
            if rule.iter().any(|pattern| pattern.covers(&path) || pattern.reaches_below(&path)) {
                prop_assert!(found.contains(&number), "{number} of {rules:?}");
            }
        }
    }
}

#[test]
fn rules_about_other_fields_are_not_found() {
    let mut trie = PatternTrie::default();
    let texts = ["/spec/replicas", "/spec/template/spec/containers/[name=app]/image", "/spec/*/spec", "*"];
    for (number, text) in texts.iter().enumerate() {
        trie.add(&Pattern::parse(text).unwrap(), number);
    }
    let at = |path: &str| trie.at(&path.parse().unwrap());
    assert_eq!(at("/spec/replicas"), [0, 2, 3]);
    assert_eq!(at("/spec/paused"), [2, 3]);
    assert_eq!(at("/spec/template/spec/containers/[name=app]/image"), [1, 2, 3]);
    assert_eq!(at("/spec/template/spec/containers/[name=proxy]/image"), [2, 3]);
    assert_eq!(at("/metadata/labels/a"), [3]);
    assert_eq!(at("/spec"), [0, 1, 2, 3]);
    assert!(PatternTrie::default().at(&"/spec".parse().unwrap()).is_empty());
}
