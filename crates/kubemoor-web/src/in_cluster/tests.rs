use super::*;

#[test]
fn cookie_opens_only_with_its_key_unchanged_and_within_its_time() {
    let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
    let until = now + LOGIN;
    let sealer = |byte| Sealer::new(&SigningKey::new([byte; 32])).unwrap();
    let token = SecretString::from("a.b.c");
    let text = sealer(1).seal(&token, until).unwrap();
    let open =
        |byte, text: &str, now| sealer(byte).open(text, now).map(|token| token.expose_secret().to_owned());
    let whole = Some("a.b.c".to_owned());
    assert_eq!(open(1, &text, now), whole);
    assert_eq!(open(1, &text, until - SignedDuration::from_secs(1)), whole);
    assert_eq!(open(1, &text, until), None, "too old");
    assert_eq!(open(2, &text, now), None, "another key");
    for place in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(open(1, &changed, now), None, "byte {place} is another");
        assert_eq!(open(1, text.get(..place).unwrap(), now), None, "cut at {place}");
    }
    assert!(!text.contains("a.b.c"));
    assert_ne!(sealer(1).seal(&token, until).unwrap(), text, "no two look the same");
}

#[test]
fn longest_token_fits_into_a_cookie() {
    let token = "x".repeat(LONGEST_TOKEN).into();
    let text = Sealer::new(&SigningKey::new([1; 32])).unwrap().seal(&token, Timestamp::now()).unwrap();
    assert!(text.len() + COOKIE.len() < 4096, "{}", text.len());
}

#[test]
fn newcomer_takes_the_place_of_the_longest_absent_visitor() {
    let known = memory(4);
    let visitor = || {
        let forms = SigningKey::new([1; 32]);
        Arc::new(Visitor::new(Vec::new(), LoginMethod::Proxy, None, forms))
    };
    let come = |place: u8| {
        let _ = known.get_with([place; 32], visitor);
        known.run_pending_tasks();
    };
    (0..4).for_each(come);
    // All come often, the third one not of late.
    for _ in 0..20 {
        [2, 0, 1, 3].into_iter().for_each(come);
    }
    come(4);
    let remembered: Vec<_> = (0..5).filter(|place| known.contains_key(&[*place; 32])).collect();
    assert_eq!(remembered, [0, 1, 3, 4]);
}

#[test]
fn bearer_tokens_alone_are_read() {
    let read = |text: &str| bearer(&HeaderValue::from_str(text).unwrap());
    for text in ["Bearer a.b-c", "bearer a.b-c", "BEARER  a.b-c "] {
        assert_eq!(read(text).unwrap().expose_secret(), "a.b-c", "{text}");
    }
    for text in ["", "Bearer", "Bearer ", "Basic YTpi", "a.b-c", "Bearer a b", "Bearer a\tb"] {
        assert!(read(text).is_none(), "{text}");
    }
    assert!(read(&format!("Bearer {}", "a".repeat(LONGEST_PROXY_TOKEN + 1))).is_none());
}
