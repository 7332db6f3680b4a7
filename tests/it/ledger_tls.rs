//! A ledger in a PostgreSQL that takes connections over TLS alone, with a CA of its own.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::ledger_outages::{guard, kept, refused};
use crate::support::{Postgres, SOON, eventually, folder, run};

const PASSWORD: &str = "hunter2-of-the-ledger";

/// A CA with the file of its certificate.
struct LedgerCa {
    params: CertificateParams,
    key: KeyPair,
    file: PathBuf,
}

impl LedgerCa {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let file = folder("database-ca").join("ca.crt");
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { params, key, file }
    }

    /// A server with a certificate for `localhost`.
    async fn server(&self) -> Postgres {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key)).unwrap();
        Postgres::start_over_tls(&certificate.pem(), &key.serialize_pem()).await
    }
}

/// The URL of a new database at this host, with a password.
fn url(server: &Postgres, host: &str, parameters: &str) -> String {
    let url = server.database().replace("moor@127.0.0.1", &format!("moor:{PASSWORD}@{host}"));
    format!("{url}?{parameters}")
}

#[tokio::test(flavor = "multi_thread")]
async fn ledger_is_kept_over_tls_with_a_ca_of_its_own() {
    let authority = LedgerCa::new();
    let server = authority.server().await;
    let ledger =
        url(&server, "localhost", &format!("sslmode=verify-full&sslrootcert={}", authority.file.display()));
    let guard = guard(&ledger).await;
    refused(&guard, "b").await;
    eventually("the row is kept", SOON, || async { kept(&ledger) == ["\"b\""] }).await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND datname LIKE 'ledger%'";
    assert_ne!(server.psql("postgres", encrypted).unwrap().trim(), "0");
    assert!(!guard.log().contains(PASSWORD), "{}", guard.log());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn database_with_a_wrong_certificate_is_refused_in_one_sentence() {
    let (authority, other) = (LedgerCa::new(), LedgerCa::new());
    let server = authority.server().await;
    let verified = |ca: &LedgerCa| format!("sslmode=verify-full&sslrootcert={}", ca.file.display());
    let unsigned = "the certificate of the database is not signed by a trusted CA: name the file of its CA as `sslrootcert` in the URL";
    for (host, parameters, reason) in [
        ("localhost", verified(&other), unsigned),
        ("localhost", "sslmode=verify-full".to_owned(), unsigned),
        (
            "127.0.0.1",
            verified(&authority),
            "the certificate of the database is for another host name than the one in the URL",
        ),
        ("localhost", "sslmode=disable".to_owned(), "no pg_hba.conf entry for host"),
    ] {
        assert_refused(&url(&server, host, &parameters), reason).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: make test-all"]
async fn missing_file_of_a_certificate_or_key_is_named_with_what_to_do() {
    let authority = LedgerCa::new();
    let server = authority.server().await;
    let trusted = format!("sslmode=verify-full&sslrootcert={}", authority.file.display());
    let folder = authority.file.parent().unwrap().display();
    for (parameters, reason) in [
        (
            "sslmode=verify-full&sslrootcert=/nowhere/ca.crt".to_owned(),
            "`sslrootcert` names the file `/nowhere/ca.crt`, which does not exist: mount the file there, or correct the \
             path in the URL"
                .to_owned(),
        ),
        // The mount instead of the file in it.
        (
            format!("sslmode=verify-full&sslrootcert={folder}"),
            format!("`sslrootcert` names the directory `{folder}`: correct the path in the URL"),
        ),
        (
            format!("{trusted}&sslcert=/nowhere/tls.crt&sslkey=/nowhere/tls.key"),
            "`sslcert` names the file `/nowhere/tls.crt`, which does not exist".to_owned(),
        ),
        // A password that a mistyped URL has behind the file.
        (
            format!("sslmode=verify-full&sslrootcert=/nowhere/ca.crt?password={PASSWORD}"),
            "`sslrootcert` names the file `/nowhere/ca.crt?...`, which does not exist".to_owned(),
        ),
    ] {
        assert_refused(&url(&server, "localhost", &parameters), &reason).await;
    }
}

/// Asserts that the guard and `kubemoor audit` say in one sentence, and without the password, why they do not use this
/// ledger.
async fn assert_refused(ledger: &str, reason: &str) {
    let guard = guard(ledger).await;
    guard.wait_for_log("the ledger is unavailable").await;
    // It judges meanwhile.
    refused(&guard, "b").await;
    let log = guard.log();
    let line = log.lines().find(|line| line.contains("the ledger is unavailable")).unwrap();
    assert!(line.contains(reason), "{line}");
    let ran = run(&["audit", "--ledger", ledger, "-A"], "");
    assert_eq!((ran.code, ran.error.trim().lines().count()), (2, 1), "{ran:?}");
    assert!(ran.error.contains(reason), "{ran:?}");
    assert!(!log.contains(PASSWORD) && !ran.error.contains(PASSWORD), "{log}\n{ran:?}");
}
