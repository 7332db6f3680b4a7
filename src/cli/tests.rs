use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::*;
use crate::app::settings::ConflictError;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_runtime::config::{CallerProof, Endpoint, RecordDriver};
use kubemoor_runtime::tls::CertificateSource;

/// Knows callers by their certificate unless the flags say otherwise.
fn serve(args: &[&str]) -> Result<Settings, ConflictError> {
    let known = args.iter().any(|arg| arg.starts_with("--register") || arg.starts_with("--caller-token"));
    let otherwise: &[&str] = if known { &[] } else { &["--client-ca=ca.crt"] };
    settings(&[args, otherwise].concat())
}

fn settings(args: &[&str]) -> Result<Settings, ConflictError> {
    let line = ["kubemoor", "serve"].iter().chain(args);
    match Cli::try_parse_from(line).unwrap().command {
        Command::Serve(settings) => settings.check().map(|()| *settings),
        other => panic!("not serve: {other:?}"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn serve_alone_takes_its_flags_from_the_environment() {
    fn check(command: &clap::Command, serves: bool) {
        for arg in command.get_arguments() {
            let long = arg.get_long().unwrap_or_default();
            if matches!(long, "help" | "version") {
                continue;
            }
            let variable = format!("KUBEMOOR_{}", long.to_uppercase().replace('-', "_"));
            // One address for all commands of a shell; whatever else is set for a server in the
            // same shell must not move a command.
            let expected = (serves || long == "server").then_some(variable);
            let found = arg.get_env().map(|env| env.to_string_lossy().into_owned());
            assert_eq!(found, expected, "{} --{long}", command.get_name());
        }
        command.get_subcommands().for_each(|below| check(below, serves || below.get_name() == "serve"));
    }
    check(&Cli::command(), false);
}

#[test]
fn the_defaults_of_serve_warn_and_report() {
    let settings = serve(&[]).unwrap();
    assert_eq!((settings.edits, settings.drift), (EditsMode::Warn, DriftMode::Report));
    assert_eq!(settings.operation_timeout, Duration::from_secs(3600));
    assert_eq!((settings.listen.port(), settings.admin_listen.port()), (9443, 9080));
    let CertificateSource::SelfMade { directory: dir, names } = settings.certificate() else {
        panic!("{settings:?}")
    };
    assert_eq!((dir.to_str(), names.first().map(String::as_str)), (Some("certs"), Some("localhost")));
    assert_eq!(settings.record_driver(), RecordDriver::Secret);
    assert!(!settings.register && settings.namespace.is_empty() && !settings.read_only);
}

#[test]
fn service_flag_sets_endpoint_certificate_name_and_own_namespace() {
    let settings = serve(&["--register", "--service", "guard/moor", "--select-all"]).unwrap();
    let CertificateSource::SelfMade { names, .. } = settings.certificate() else { panic!("{settings:?}") };
    assert!(names.contains(&"moor.guard.svc".to_owned()), "{names:?}");
    assert_eq!(settings.own_namespace(), Some("guard"));
    assert!(matches!(settings.endpoint(), Some(Endpoint::Service(service)) if service.port == 443));
}

#[test]
fn guard_that_is_routed_to_answers_for_five_seconds_after_the_stop_signal() {
    let url = ["--register", "--webhook-url", "https://127.0.0.1:9443"];
    let service = ["--service", "guard/moor"];
    for (args, seconds) in [
        (vec![], 0),
        (url.to_vec(), 5),
        (service.to_vec(), 5),
        ([&["--register"], &service[..]].concat(), 5),
        ([&url[..], &["--shutdown-delay", "0s"]].concat(), 0),
        ([&service[..], &["--shutdown-delay", "1m"]].concat(), 60),
    ] {
        assert_eq!(serve(&args).unwrap().shutdown_delay().as_secs(), seconds, "{args:?}");
    }
    assert!(Cli::try_parse_from(["kubemoor", "serve", "--shutdown-delay=-1s"]).is_err());
}

#[test]
fn a_guard_that_would_answer_anybody_does_not_start() {
    for args in [&[][..], &["--read-only"], &["--store", "dir:x"]] {
        assert_eq!(settings(args).unwrap_err(), ConflictError::Unauthenticated, "{args:?}");
    }
    let check = |args: &[&str], proof: CallerProof, client_ca: Option<&str>| {
        let settings = settings(args).unwrap();
        assert_eq!(settings.caller_proof(), proof, "{args:?}");
        assert_eq!(settings.client_ca, client_ca.map(PathBuf::from), "{args:?}");
    };
    let (register, kept) = (["--register", "--service", "a/b"], |hours: u64| CallerProof::Kept {
        life: Duration::from_secs(hours * 3600),
    });
    check(&register, kept(24), None);
    check(&[&register[..], &["--caller-token-age", "2h"]].concat(), kept(2), None);
    check(&[&register[..], &["--client-ca", "ca"]].concat(), kept(24), Some("ca"));
    let file = || CallerProof::File("f".into());
    check(&[&register[..], &["--caller-token-file", "f"]].concat(), file(), None);
    check(&["--store", "dir:x", "--caller-token-file", "f"], file(), None);
    check(&["--client-ca", "ca"], CallerProof::Certificate, Some("ca"));
    check(&["--client-ca", "ca", "--caller-token-file", "f"], file(), Some("ca"));
}

#[test]
fn flags_that_contradict_each_other_are_an_error() {
    use ConflictError::{Exclude, InvalidNamespace, InvalidSecretName, Needs};
    let url = ["--webhook-url", "https://127.0.0.1:9443"];
    let check = |args: &[&str], expected: ConflictError| {
        assert_eq!(serve(args).unwrap_err(), expected, "{args:?}");
    };
    check(&["--register"], Needs("--register", "--webhook-url or --service"));
    check(&[&["--register", "--read-only"], &url[..]].concat(), Exclude("--register", "--read-only"));
    check(&[&["--register", "--store", "dir:x"], &url[..]].concat(), Exclude("--register", "--store"));
    check(&[&["--service", "a/b"], &url[..]].concat(), Exclude("--webhook-url", "--service"));
    check(&["--drift", "Repair", "--read-only"], Exclude("--drift Repair", "--read-only"));
    check(&["--drift", "Repair", "--store", "dir:x"], Exclude("--drift Repair", "--store"));
    check(&["--kubeconfig", "f", "--store", "dir:x"], Exclude("--kubeconfig", "--store"));
    check(&["--namespace", "a", "--store", "dir:x"], Exclude("--namespace", "--store"));
    check(&["--record-driver", "secret", "--store", "dir:x"], Exclude("--record-driver", "--store"));
    check(&["--tls-dir", "d", "--tls-cert", "c", "--tls-key", "k"], Exclude("--tls-dir", "--tls-cert"));
    let shared = ["--tls-secret=s", "--register", "--service=a/b"];
    check(&[&shared[..], &["--tls-dir=d"]].concat(), Exclude("--tls-secret", "--tls-dir"));
    let given = ["--tls-cert=c", "--tls-key=k"];
    check(&[&shared[..], &given].concat(), Exclude("--tls-secret", "--tls-cert"));
    check(&["--tls-secret=s", "--service=a/b"], Needs("--tls-secret", "--register and --service"));
    check(
        &[&["--tls-secret=s", "--register"], &url[..]].concat(),
        Needs("--tls-secret", "--register and --service"),
    );
    check(&[&["--tls-age=1h", "--register"], &url[..]].concat(), Needs("--tls-age", "--tls-secret"));
    check(&["--tls-secret=A b", "--register", "--service=a/b"], InvalidSecretName("A b".to_owned()));
    check(&["--tls-cert", "c"], Needs("--tls-cert", "--tls-key"));
    check(&["--tls-key", "k"], Needs("--tls-key", "--tls-cert"));
    check(&["--caller-token-age", "1h"], Needs("--caller-token-age", "--register"));
    check(
        &["--caller-token-age=1h", "--caller-token-file=f", "--register"],
        Exclude("--caller-token-age", "--caller-token-file"),
    );
    check(
        &[&["--register", "--tls-cert=c", "--tls-key=k"], &url[..]].concat(),
        Needs("--tls-cert of a guard that registers without --service", "--caller-token-file"),
    );
    check(&["--select-all"], Needs("--select-all", "--register"));
    check(&["--namespace", "a", "--namespace", "B c"], InvalidNamespace("B c".to_owned()));
}

#[test]
fn invalid_flag_value_exits_with_2_and_describes_valid_values() {
    let check = |args: &[&str], wanted: &str| {
        let line = ["kubemoor", "serve"].iter().chain(args);
        let error = Cli::try_parse_from(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{args:?}");
        assert!(error.to_string().contains(wanted), "{args:?}: {error}");
    };
    check(&["--operation-timeout", "0s"], "a positive time");
    check(&["--operation-timeout=-1h"], "a positive time");
    check(&["--operation-timeout", "soon"], "such as 1h");
    check(&["--caller-token-age", "9s"], "at least 10s");
    check(&["--store", "sql:x"], "dir:PATH");
    check(&["--listen", "9443"], "--listen");
    check(&["--edits", "Refuse"], "Deny");
    check(&["--log", "kubemoor=loud"], "info,kubemoor=debug");
    check(&["--webhook-url", "http://x"], "https://HOST");
    check(&["--nonsense"], "--nonsense");
}

#[test]
fn heading_of_the_cluster_has_only_flags_that_choose_and_reach_it() {
    const CHOOSE: [&str; 14] = [
        "all-namespaces",
        "as",
        "as-group",
        "cluster",
        "cluster-label",
        "context",
        "contexts",
        "kubeconfig",
        "namespace",
        "record-driver",
        "request-timeout",
        "token",
        "user",
        "v",
    ];
    fn check(command: &clap::Command) {
        for arg in command.get_arguments().filter(|arg| arg.get_help_heading() == Some("Cluster")) {
            let name = arg.get_long().unwrap_or_default();
            assert!(CHOOSE.contains(&name), "{}: --{name}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}
