use crate::pattern::*;

fn covers(pattern: &str, path: &str) -> bool {
    Pattern::parse(pattern).unwrap().covers(&path.parse().unwrap())
}

#[test]
fn a_pattern_covers_its_path_and_what_lies_below() {
    let check = |pattern: &str, path: &str, expected: bool| {
        assert_eq!(covers(pattern, path), expected, "{pattern} over {path}");
    };
    check("/spec/replicas", "/spec/replicas", true);
    check("/spec/replicas", "/spec/replicasets", false);
    check("/spec", "/spec/replicas", true);
    check("/spec/replicas", "/spec", false);
    check("*", "/spec/replicas", true);
    check("*", "", true);
    check("/spec", "", false);
    check("/metadata/annotations/*", "/metadata/annotations/a~1b", true);
    check("/metadata/annotations/*", "/metadata/annotations", false);
    check("/metadata/annotations/a~1b", "/metadata/annotations/a~1b", true);
    check("/spec/containers/*/image", "/spec/containers/[name=app]/image", true);
    check("/spec/containers/*/image", "/spec/containers/[name=app]/args", false);
    check("/spec/containers/[name=app]/image", "/spec/containers/[name=app]/image", true);
    check("/spec/containers/[name=app]/image", "/spec/containers/[name=web]/image", false);
    check("/spec/ports/[port=80]", "/spec/ports/[port=80,protocol=TCP]/nodePort", true);
    check("/spec/ports/[port=80]", "/spec/ports/[port=\"80\"]", true);
    check("/spec/ports/[port=80,protocol=UDP]", "/spec/ports/[port=80]", false);
    check("/metadata/finalizers/[=a]", "/metadata/finalizers/[=a]", true);
    check("/metadata/finalizers/[=a]", "/metadata/finalizers/[=b]", false);
    check("/metadata/finalizers/*", "/metadata/finalizers/[=b]", true);
    check("/data/[a", "/data/~2a", true);
}

#[test]
fn a_text_that_is_no_pointer_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = Pattern::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    };
    check("", "empty segment");
    check("spec/replicas", "does not begin with `/`");
    check("/", "empty segment");
    check("/spec/", "empty segment");
    check("/spec//image", "empty segment");
    check("/a~", "lone `~`");
    check("/a~9b", "lone `~`");
    check("/a/[name]", "not a list key");
    check("/a/[name=]", "not a list key");
    check(&format!("/{}", "a".repeat(MAX_LENGTH)), "longer");
    check(&"/a".repeat(65), "longer");
}

#[test]
fn a_pattern_displays_as_it_parses() {
    for text in ["*", "/spec/*/image", "/a~1b/[name=app]", "/a/[port=80,protocol=TCP]/*", "/f/[=x]", "/~2a"] {
        let pattern = Pattern::parse(text).unwrap();
        assert_eq!(pattern.to_string(), text);
        assert_eq!(Pattern::parse(&pattern.to_string()).unwrap(), pattern);
    }
}

#[test]
fn pattern_reaches_below_only_its_own_parent_paths() {
    let check = |pattern: &str, path: &str, expected: bool| {
        let reached = Pattern::parse(pattern).unwrap().reaches_below(&path.parse().unwrap());
        assert_eq!(reached, expected, "{pattern} from {path}");
    };
    check("/spec/rules/[host=a]/x", "/spec/rules", true);
    check("/spec/rules", "/spec/rules", false);
    check("/spec", "/spec/rules", false);
    check("/status", "/spec", false);
    check("*", "/spec", false);
}

mod pattern_trie {
    use proptest::prelude::*;

    use crate::pattern::*;

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
            let numbered = rules.iter().enumerate();
            let numbered = numbered.flat_map(|(number, rule)| rule.iter().map(move |it| (number, it)));
            let found = numbered.collect::<PatternTrie>().at(&path);
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
        let texts =
            ["/spec/replicas", "/spec/template/spec/containers/[name=app]/image", "/spec/*/spec", "*"];
        let patterns = texts.map(|text| Pattern::parse(text).unwrap());
        let trie: PatternTrie = patterns.iter().enumerate().collect();
        let at = |path: &str| trie.at(&path.parse().unwrap());
        assert_eq!(at("/spec/replicas"), [0, 2, 3]);
        assert_eq!(at("/spec/paused"), [2, 3]);
        assert_eq!(at("/spec/template/spec/containers/[name=app]/image"), [1, 2, 3]);
        assert_eq!(at("/spec/template/spec/containers/[name=proxy]/image"), [2, 3]);
        assert_eq!(at("/metadata/labels/a"), [3]);
        assert_eq!(at("/spec"), [0, 1, 2, 3]);
        assert!(PatternTrie::default().at(&"/spec".parse().unwrap()).is_empty());
    }
}
