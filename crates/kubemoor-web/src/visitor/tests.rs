use super::*;

#[test]
fn form_token_counts_for_its_visitor_alone() {
    let visitor = |byte| Visitor::new(Vec::new(), LoginMethod::Owner, None, SigningKey::new([byte; 32]));
    let (alice, bob) = (visitor(1), visitor(2));
    let token = alice.form_token();
    assert!(alice.is_form_token(&token) && visitor(1).is_form_token(&token));
    assert!(!bob.is_form_token(&token));
    assert_ne!(alice.form_token(), token, "no two pages have the same");
    let (number, mark) = token.split_once('.').unwrap();
    for wrong in ["", ".", number, mark, &format!("{number}."), &format!("{mark}.{number}"), "é.é"] {
        assert!(!alice.is_form_token(wrong), "{wrong}");
    }
}
