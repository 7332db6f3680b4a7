use super::*;

#[test]
fn flag_is_read_in_every_spelling() {
    for (line, expected) in [
        ("diff -n shop", Some("shop")),
        ("diff -nshop web", Some("shop")),
        ("diff -n=shop web", Some("shop")),
        ("diff --namespace shop", Some("shop")),
        ("diff --namespace=shop", Some("shop")),
        ("diff --namespaces=shop", None),
        ("diff -n", None),
        ("diff web", None),
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(flag(&words, "--namespace", Some("-n")).as_deref(), expected, "{line}");
    }
}
