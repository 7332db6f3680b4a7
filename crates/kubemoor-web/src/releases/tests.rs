use super::*;

#[test]
fn first_sixteen_words_of_a_search_count() {
    let release = ReleaseId { namespace: "shop".into(), name: "web".into() };
    let row = ListedRelease::unread(release, "not read".to_owned());
    let is_found = |words: usize| {
        let text = format!("{} absent", "web ".repeat(words));
        wanted(&PageQuery::new(vec![("q".to_owned(), text)]), Vec::new())(&row)
    };
    assert!(!is_found(15));
    assert!(is_found(16));
}
