use std::io::Write as _;

use super::*;

fn read_text(text: &str) -> Result<Vec<Notifier>, NotifierError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    read(file.path())
}

#[test]
fn a_file_names_its_notifiers() {
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"Bearer hunter2\n").unwrap();
    let text = format!(
        "notifiers:\n- name: oncall\n  url: https://hooks.example/a?token=hunter2\n  headerFiles: {{Authorization: {}}}\n  timeout: 5s\n- {{name: log, url: \"http://127.0.0.1:1\"}}\n",
        token.path().display()
    );
    let notifiers = read_text(&text).unwrap();
    assert_eq!(notifiers.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["oncall", "log"]);
    assert_eq!(notifiers[0].headers["authorization"], "Bearer hunter2");
    assert_eq!((notifiers[0].timeout, notifiers[1].timeout), (Duration::from_secs(5), TIMEOUT));
    assert!(!format!("{notifiers:?}").contains("hunter2"), "{notifiers:?}");
}

#[test]
fn what_cannot_be_used_is_refused_without_being_shown() {
    for (text, said) in [
        ("notifiers:\n- {name: a, url: hunter2}", "its url is none"),
        ("notifiers:\n- {name: a, url: \"ftp://hunter2\"}", "begins with http"),
        ("notifiers:\n- {name: a, url: \"http://h\", timeout: 2h}", "its timeout"),
        ("notifiers:\n- {name: a, url: \"http://h\", headers: {\"a b\": hunter2}}", "no header's name"),
        (
            "notifiers:\n- {name: a, url: \"http://h\", headers: {a: \"hunter2\\u0001\"}}",
            "the value of the header a",
        ),
        ("notifiers:\n- {name: a, url: \"http://h\"}\n- {name: a, url: \"http://h\"}", "twice"),
        ("notifiers:\n- {name: a, url: \"http://h\", password: hunter2}", "line"),
        ("notifiers: hunter2", "line"),
        ("notifiers:\n- {name: a, url: \"http://h\", headerFiles: {a: /nowhere/at/all}}", "/nowhere/at/all"),
    ] {
        let error = read_text(text).unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains("hunter2"), "{text}: {error}");
    }
    assert!(matches!(read(Path::new("/nowhere/at/all")), Err(NotifierError::Read { .. })));
}
