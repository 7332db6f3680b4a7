use super::*;

#[test]
fn a_file_holds_one_token_or_two_and_nothing_else() {
    let (one, two) = ("a1".repeat(16), "b2".repeat(32));
    let seen = |text: &str| {
        let exposed = |token: CallerToken| token.expose().to_owned();
        parse(text).map(|(first, second)| (exposed(first), second.map(exposed)))
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
    let said = read(file.path()).unwrap_err().to_string();
    assert!(said.contains(file.path().to_str().unwrap()) && !said.contains("hunter2"), "{said}");
    assert!(read(Path::new("/nowhere/token")).unwrap_err().to_string().contains("/nowhere/token"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_counts_and_a_broken_one_does_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (one, two) = ("a1".repeat(16), "b2".repeat(32));
    std::fs::write(file.path(), &one).unwrap();
    let (callers, stop) = (Callers::default(), CancellationToken::new());
    let opened = TokenFile::open(file.path().to_owned(), &callers).unwrap();
    let mut changes = callers.changes();
    let kept = tokio::spawn(opened.keep(callers.clone(), stop.clone()));
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
