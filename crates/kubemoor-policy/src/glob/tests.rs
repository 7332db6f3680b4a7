use super::*;

#[test]
fn globs_match_whole_names() {
    let check = |texts: &[&str], name: &str, expected: bool| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let mut flaws = Flaws::default();
        let globs = Globs::compile(&texts, "at", &mut flaws);
        assert_eq!(flaws.or(globs).unwrap().matches(name), expected, "{texts:?} and {name}");
    };
    check(&[], "anything", true);
    check(&["shop"], "shop", true);
    check(&["shop"], "shop-web", false);
    check(&["shop-*"], "shop-web", true);
    check(&["shop-*"], "shop", false);
    check(&["shop-*"], "my-shop-web", false);
    check(&["*"], "x", true);
    check(&["a?c"], "abc", true);
    check(&["a?c"], "abbc", false);
    check(&["a.c"], "abc", false);
    check(&["shop", "prod-*"], "prod-eu", true);
}

#[test]
fn a_glob_that_can_match_no_name_is_named() {
    for text in ["", "Shop", "a b", "[ab]", "a/b", "{a,b}"] {
        let mut flaws = Flaws::default();
        Globs::compile(&[text.to_owned()], "at", &mut flaws);
        let flaws = flaws.or(()).unwrap_err();
        assert_eq!(
            (flaws[0].field.as_str(), flaws[0].reason),
            ("at[0]", FlawReason::InvalidGlob),
            "{text:?}"
        );
    }
}
