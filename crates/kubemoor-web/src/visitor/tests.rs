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

#[tokio::test]
async fn visitor_opens_so_many_streams_until_one_is_closed() {
    let forms = SigningKey::new([1; 32]);
    let visitor = Arc::new(Visitor::new(Vec::new(), LoginMethod::Proxy, None, forms));
    let open = || change_stream(Extension(Arc::clone(&visitor)), PageQuery::default());
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(open().await.ok().unwrap());
    }
    assert_eq!(open().await.err().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    streams.pop();
    assert!(open().await.is_ok());
}
