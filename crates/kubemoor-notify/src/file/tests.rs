use std::io::Write as _;
use std::time::Duration;

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
}

#[test]
fn invalid_notifier_settings_are_rejected_without_showing_secrets() {
    for (text, said) in [
        ("notifiers:\n- {name: a, url: hunter2}", "its url is not a URL"),
        ("notifiers:\n- {name: a, url: \"ftp://hunter2\"}", "must begin with http"),
        ("notifiers:\n- {name: a, url: \"http://h\", timeout: 2h}", "its timeout"),
        (
            "notifiers:\n- {name: a, url: \"http://h\", headers: {\"a b\": hunter2}}",
            "is not the name of a header",
        ),
        (
            "notifiers:\n- {name: a, url: \"http://h\", headers: {a: \"hunter2\\u0001\"}}",
            "the value of the header a",
        ),
        ("notifiers:\n- {name: a, url: \"http://h\"}\n- {name: a, url: \"http://h\"}", "twice"),
        ("notifiers:\n- {name: a, url: \"http://h\", password: hunter2}", "line"),
        ("notifiers: hunter2", "line"),
        ("notifiers:\n- {name: a, url: \"http://h\", headerFiles: {a: /nowhere/at/all}}", "/nowhere/at/all"),
        ("notifiers:\n- {name: a}", "neither url nor urlFile"),
        ("notifiers:\n- {name: a, url: \"http://hunter2\", urlFile: /nowhere}", "both url and urlFile"),
        ("notifiers:\n- {name: a, format: slack, urlFile: /nowhere/at/all}", "/nowhere/at/all"),
        ("notifiers:\n- {name: a, format: email, url: \"http://h\"}", "line"),
        ("notifiers:\n- {name: a, format: pagerduty}", "no routingKeyFile"),
        ("notifiers:\n- {name: a, format: pagerduty, routingKeyFile: /nowhere/at/all}", "/nowhere/at/all"),
        (
            "notifiers:\n- {name: a, url: \"http://h\", routingKeyFile: /nowhere}",
            "is only for the format pagerduty",
        ),
        ("notifiers:\n- {name: a, format: template, url: \"http://h\"}", "neither template nor"),
        ("notifiers:\n- {name: a, url: \"http://h\", template: hunter2}", "are only for the format template"),
        ("notifiers:\n- {name: a, format: template, url: \"http://h\", template: hunter2}", "not JSON"),
    ] {
        let error = read_text(text).err().unwrap().to_string();
        assert!(error.contains(said) && !error.contains("hunter2"), "{text}: {error}");
    }
    assert!(matches!(read(Path::new("/nowhere/at/all")), Err(NotifierError::Read { .. })));
}

#[test]
fn each_format_is_sent_to_where_its_service_takes_it() {
    let mut key = tempfile::NamedTempFile::new().unwrap();
    key.write_all(b"0123456789abcdef0123456789abcdef\n").unwrap();
    let pagerduty = format!("format: pagerduty, routingKeyFile: {}", key.path().display());
    let template = "format: template, url: \"http://h/hook\", template: '[{{ title }}]'".to_owned();
    for (fields, url) in [
        (pagerduty.clone(), "https://events.pagerduty.com/v2/enqueue"),
        (
            format!("{pagerduty}, url: \"https://events.eu.pagerduty.com/v2/enqueue\""),
            "https://events.eu.pagerduty.com/v2/enqueue",
        ),
        ("format: alertmanager, url: \"http://h:9093\"".to_owned(), "http://h:9093/api/v2/alerts"),
        ("format: alertmanager, url: \"http://h/prefix/\"".to_owned(), "http://h/prefix/api/v2/alerts"),
        ("format: alertmanager, url: \"http://h/api/v2/alerts\"".to_owned(), "http://h/api/v2/alerts"),
        ("format: slack, url: \"https://hooks/a\"".to_owned(), "https://hooks/a"),
        ("format: teams, url: \"https://hooks/a?sig=b\"".to_owned(), "https://hooks/a?sig=b"),
        ("format: cloudevents, url: \"http://h\"".to_owned(), "http://h/"),
        (template, "http://h/hook"),
    ] {
        let notifiers = read_text(&format!("notifiers:\n- {{name: a, {fields}}}")).unwrap();
        assert_eq!(notifiers[0].url.as_str(), url, "{fields}");
    }
}

#[test]
fn receiver_answers_are_logged_without_credentials() {
    let fields = "url: \"https://user:passw0rd@hooks.example:8443/services/T0token/B0token?sig=signature\", headers: {Authorization: Bearer bearer0}";
    let notifiers = read_text(&format!("notifiers:\n- {{name: a, {fields}}}")).unwrap();
    let notifier = &notifiers[0];
    let text = "no T0token, B0token, signature, bearer0 or passw0rd here";
    let said = notifier.without_secrets(text);
    for secret in ["T0token", "B0token", "signature", "bearer0", "passw0rd"] {
        assert!(!said.contains(secret), "{said}");
    }
    assert_eq!(notifier.host(), "https://hooks.example:8443");
}
