use jiff::SignedDuration;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn token(letter: char) -> CallerToken {
    CallerToken::parse(&letter.to_string().repeat(64)).unwrap()
}

#[test]
fn only_a_whole_known_token_is_admitted() {
    let callers = CallerSecrets::default();
    for nobody in ["", "a", &"a".repeat(64)] {
        assert!(!callers.admits(nobody.as_bytes()), "{nobody:?}");
    }
    callers.accept(token('a'), Some(token('b')));
    for (shown, admitted) in [
        ("a".repeat(64), true),
        ("b".repeat(64), true),
        ("a".repeat(63), false),
        ("a".repeat(65), false),
        ("A".repeat(64), false),
        (format!("{}b", "a".repeat(63)), false),
        (String::new(), false),
    ] {
        assert_eq!(callers.admits(shown.as_bytes()), admitted, "{shown:?}");
    }
    callers.accept(token('b'), None);
    assert!(!callers.admits("a".repeat(64).as_bytes()));
}

#[test]
fn a_token_is_of_letters_that_an_address_may_have() {
    let random = CallerToken::random().unwrap();
    assert_eq!(CallerToken::parse(random.expose()), Some(random.clone()));
    assert_eq!(random.expose().len(), 64);
    assert_ne!(CallerToken::random().unwrap(), random);
    for text in ["", &"a".repeat(31), &"a".repeat(129), &"A".repeat(64), &"a/".repeat(32), &"é".repeat(32)] {
        assert_eq!(CallerToken::parse(text), None, "{text:?}");
    }
}

#[test]
fn no_debug_output_holds_a_secret() {
    let kept = SharedCallerSecret::random(NOW).unwrap().announced(NOW).unwrap();
    let callers = CallerSecrets::default();
    kept.apply_tokens(&callers);
    kept.apply_signing_key(&callers);
    let secret = callers.secret();
    let hidden = secret.registered().unwrap().expose();
    let bytes = format!("{:?}", secret.signing().unwrap().as_bytes());
    for shown in [format!("{secret:?}"), format!("{callers:?}"), format!("{kept:?}")] {
        assert!(!shown.contains(hidden) && !shown.contains(&bytes), "{shown}");
    }
}

#[test]
fn token_follows_another_with_an_overlap() {
    let first = SharedCallerSecret::random(NOW).unwrap();
    let day = SignedDuration::from_hours(24);
    let life = day.unsigned_abs();
    assert!(!first.is_due(NOW + SignedDuration::from_hours(23), life) && first.is_due(NOW + day, life));
    assert!(first.is_due(NOW - SignedDuration::from_secs(1), life), "a token from the future");
    let registered = |kept: &SharedCallerSecret| {
        let callers = CallerSecrets::default();
        kept.apply_tokens(&callers);
        callers.secret().registered().unwrap().clone()
    };
    let old = registered(&first);

    let announced = first.announced(NOW + day).unwrap();
    let TokenRotation::Announced(next) = announced.rotation().clone() else { panic!("{announced:?}") };
    assert_eq!(registered(&announced), old);
    assert!(announced.announced(NOW).unwrap().has_same_tokens(&announced), "two on their way");
    let replaced = announced.advanced(NOW + day);
    assert_eq!(registered(&replaced), next);
    assert_eq!(replaced.rotation(), &TokenRotation::Replaced(old.clone()));
    let done = replaced.advanced(NOW + day);
    assert_eq!((registered(&done), done.rotation()), (next.clone(), &TokenRotation::None));
    assert!(!done.is_due(NOW + day + day / 2, life));

    // Who is admitted at each step, also by what was stored and read again.
    for (kept, by_old, by_next) in
        [(&first, true, false), (&announced, true, true), (&replaced, true, true), (&done, false, true)]
    {
        let read = SharedCallerSecret::parse(&kept.text()).unwrap();
        assert!(read.has_same_tokens(kept));
        let callers = CallerSecrets::default();
        read.apply_tokens(&callers);
        assert_eq!(
            (callers.admits(old.expose().as_bytes()), callers.admits(next.expose().as_bytes())),
            (by_old, by_next)
        );
    }
}

#[test]
fn the_key_stays_when_tokens_change() {
    let first = SharedCallerSecret::random(NOW).unwrap();
    let later =
        SharedCallerSecret::parse(&first.announced(NOW).unwrap().advanced(NOW).advanced(NOW).text()).unwrap();
    let key = |kept: &SharedCallerSecret| {
        let callers = CallerSecrets::default();
        kept.apply_signing_key(&callers);
        *callers.secret().signing().unwrap().as_bytes()
    };
    assert_eq!(key(&first), key(&later));
}

#[test]
fn invalid_stored_caller_tokens_are_rejected() {
    let kept = SharedCallerSecret::random(NOW).unwrap().text();
    let whole: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let with = |key: &str, value: &str| {
        let mut changed = whole.clone();
        changed[key] = value.into();
        changed.to_string()
    };
    let both = {
        let mut changed = whole.clone();
        changed["next"] = "a".repeat(64).into();
        changed["previous"] = "b".repeat(64).into();
        changed.to_string()
    };
    for text in [
        "",
        "{}",
        &with("registered", "short"),
        &with("next", ""),
        &with("signing", "AAAA"),
        &with("since", "x"),
        &both,
    ] {
        assert!(SharedCallerSecret::parse(text).is_none(), "{text}");
    }
}

#[test]
fn a_file_holds_one_token_or_two_and_nothing_else() {
    let (one, two) = ("a1".repeat(16), "b2".repeat(32));
    let seen = |text: &str| {
        let exposed = |token: CallerToken| token.expose().to_owned();
        parse_tokens(text).map(|(first, second)| (exposed(first), second.map(exposed)))
    };
    assert_eq!(seen(&one), Some((one.clone(), None)));
    assert_eq!(seen(&format!("\n {one} \r\n\n{two}\n")), Some((one.clone(), Some(two.clone()))));
    for text in
        ["", "\n", "short", &one.to_uppercase(), &format!("{one}\n{two}\n{one}"), &format!("{one} {two}")]
    {
        assert_eq!(seen(text), None, "{text:?}");
    }
    assert_eq!(seen(&format!("{one}\nshort")), None);
}

#[test]
fn an_error_names_the_file_and_quotes_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hunter2").unwrap();
    let said = read_tokens(file.path()).unwrap_err().to_string();
    assert!(said.contains(file.path().to_str().unwrap()) && !said.contains("hunter2"), "{said}");
    assert!(read_tokens(Path::new("/nowhere/token")).unwrap_err().to_string().contains("/nowhere/token"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_counts_and_a_broken_one_does_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (one, two) = ("a1".repeat(16), "b2".repeat(32));
    std::fs::write(file.path(), &one).unwrap();
    let (callers, stop) = (CallerSecrets::default(), CancellationToken::new());
    let (registered, other) = read_tokens(file.path()).unwrap();
    callers.accept(registered, other);
    let mut changes = callers.changes();
    let kept = tokio::spawn(follow_tokens(file.path().to_owned(), callers.clone(), stop.clone()));
    assert!(callers.admits(one.as_bytes()) && !callers.admits(two.as_bytes()));
    std::fs::write(file.path(), format!("{one}\n{two}")).unwrap();
    changes.changed().await.unwrap();
    assert!(callers.admits(one.as_bytes()) && callers.admits(two.as_bytes()));
    std::fs::write(file.path(), "broken").unwrap();
    tokio::time::sleep(CHECK_EVERY * 3).await;
    assert!(callers.admits(one.as_bytes()) && callers.admits(two.as_bytes()));
    std::fs::write(file.path(), &two).unwrap();
    changes.changed().await.unwrap();
    assert!(!callers.admits(one.as_bytes()) && callers.admits(two.as_bytes()));
    stop.cancel();
    kept.await.unwrap();
}
