use super::*;

#[test]
fn webhook_url_requires_https_and_host_without_user_or_query() {
    let check = |text: &str, expected: Option<(&str, &str)>| {
        let url = text.parse::<WebhookUrl>().ok();
        let seen = url.as_ref().map(|url| (url.at("/validate"), url.host.clone()));
        assert_eq!(seen, expected.map(|(url, host)| (url.to_owned(), host.to_owned())), "{text}");
    };
    check("https://127.0.0.1:9443", Some(("https://127.0.0.1:9443/validate", "127.0.0.1")));
    check("https://[::1]:9443/", Some(("https://[::1]:9443/validate", "::1")));
    check(
        "https://guard.example/kubemoor",
        Some(("https://guard.example/kubemoor/validate", "guard.example")),
    );
    check("http://guard.example", None);
    check("https://", None);
    check("https://user@guard.example", None);
    check("https://guard.example/?a=b", None);
    check("https://guard.example/#part", None);
    check("guard.example:9443", None);
    check("", None);
}

#[test]
fn service_reference_requires_namespace_and_name_with_optional_port() {
    let check = |text: &str, expected: Option<(&str, &str, u16)>| {
        let service = text.parse::<ServiceRef>().ok();
        let seen = service.as_ref().map(|it| (it.namespace.as_str(), it.name.as_str(), it.port));
        assert_eq!(seen, expected, "{text}");
    };
    check("kubemoor-system/kubemoor", Some(("kubemoor-system", "kubemoor", 443)));
    check("a/b:9443", Some(("a", "b", 9443)));
    check("a/b:0", None);
    check("a/b:65536", None);
    check("a/b:", None);
    check("kubemoor", None);
    check("/kubemoor", None);
    check("a/", None);
    check("A/b", None);
    check("a/b/c", None);
    check("a/-b", None);
}

#[test]
fn a_log_filter_is_checked_before_anything_runs() {
    assert!("info,kubemoor=debug".parse::<LogFilter>().is_ok());
    let error = "kubemoor=loud".parse::<LogFilter>().unwrap_err();
    assert!(error.to_string().contains("info,kubemoor=debug"), "{error}");
}

#[test]
fn certificate_names_match_the_webhook_service_or_url() {
    let service = Endpoint::Service("kubemoor-system/kubemoor".parse().unwrap());
    assert!(service.names().contains(&"kubemoor.kubemoor-system.svc".to_owned()));
    let url = Endpoint::Url("https://127.0.0.1:9443".parse().unwrap());
    assert_eq!(url.names(), ["127.0.0.1"]);
}

#[test]
fn a_ledger_is_a_file_or_a_postgresql_database() {
    let read = |text: &str| text.parse::<LedgerUrl>();
    assert_eq!(read("sqlite:ledger.db"), Ok(LedgerUrl::Sqlite("ledger.db".into())));
    assert_eq!(read("sqlite:/var/ledger.db"), Ok(LedgerUrl::Sqlite("/var/ledger.db".into())));
    assert_eq!(read("sqlite:///var/ledger.db"), Ok(LedgerUrl::Sqlite("/var/ledger.db".into())));
    let postgres = "postgres://moor@db/ledger";
    assert_eq!(read(postgres), Ok(LedgerUrl::Postgres(postgres.to_owned())));
    for text in ["", "ledger.db", "sqlite:", "sqlite://", "postgres:", "postgres://", "mysql://db/x"] {
        assert_eq!(read(text), Err(SettingError::ReadLedger), "{text}");
    }
}

#[test]
fn a_password_is_never_shown() {
    for text in [
        "postgres://moor:hunter2@db:5432/ledger",
        "postgresql://moor:hun@ter2@db/ledger?password=hunter2",
        "postgres://db/ledger?user=moor&password=hunter2",
    ] {
        let url: LedgerUrl = text.parse().unwrap();
        let shown = format!("{url} {url:?}");
        assert!(shown.contains("db") && !shown.contains("ter2"), "{shown}");
    }
}

#[test]
fn collector_is_a_url_without_credentials() {
    for (text, traces) in [
        ("http://collector:4318", Some("http://collector:4318/v1/traces")),
        ("https://otel.example/in/", Some("https://otel.example/in/v1/traces")),
        ("collector:4317", None),
        ("grpc://collector:4317", None),
        ("https://user:hunter2@collector", None),
        ("https://collector?key=hunter2", None),
    ] {
        let read = text.parse::<CollectorUrl>();
        assert_eq!(read.as_ref().ok().map(CollectorUrl::traces).as_deref(), traces, "{text}");
        assert!(!format!("{:?}", read.err()).contains("hunter2"), "{text}");
    }
}
