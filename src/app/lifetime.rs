//! That a guard starts and stops, in the ledger, with the settings that decide what it enforces.
//!
//! Entry points: [`settings`], [`Lifetime::begin`], [`Lifetime::end`]. Invariant: no row holds a token, a password or a
//! path of a secret file. A guard that is killed leaves no row about its end: the next start shows that it was gone.

use jiff::Timestamp;

use crate::config::{self, Proof, Registration, Serve, Source, Tls};
use crate::ledger::Ledger;
use crate::ledger::row::{Act, ReviewedEdit, Row};
use crate::mirror::policies::files::Folder;
use crate::model::{ObjectId, build};

/// A guard between its start and its end.
pub(super) struct Lifetime {
    ledger: Ledger,
}

impl Lifetime {
    /// Keeps the start of a guard with these `settings`, and the policy files that it read.
    pub(super) fn begin(ledger: &Ledger, mut settings: Vec<String>, folder: Option<&Folder>) -> Self {
        let files = folder.map(Folder::digests).unwrap_or_default();
        let files: Vec<_> = files.iter().map(|(file, digest)| format!("{file} ({digest})")).collect();
        settings.extend((!files.is_empty()).then(|| format!("policy files {}", files.join(", "))));
        record(ledger, Act::Start, settings.join("; "));
        Self { ledger: ledger.clone() }
    }

    /// Keeps the end of the guard, and why it ends.
    pub(super) fn end(&self, why: &str) {
        record(&self.ledger, Act::Stop, why.to_owned());
    }
}

/// The settings that decide what is enforced, those without bound last.
pub(super) fn settings(config: &Serve) -> Vec<String> {
    let Serve { source, tls, callers, edits, drift, policies, cluster_labels, operation_timeout, .. } =
        config;
    let config::Ledger { url, retention, .. } = &config.ledger;
    let mut settings = vec![
        format!("version {}", build::VERSION),
        format!("edits {edits:?}"),
        format!("drift {drift:?}"),
        format!("operation timeout {} s", operation_timeout.as_secs()),
        format!("ledger {url}, {} h, {} rows", retention.age.as_secs() / 3600, retention.rows),
        format!("certificate {}", certificate(tls)),
        format!("callers {}", proof(callers)),
        format!("notifiers {}", if config.notifiers.is_some() { "yes" } else { "no" }),
    ];
    match source {
        Source::Directory(path) => settings.push(format!("releases of the directory {}", path.display())),
        Source::Cluster(cluster) => settings.extend(of_cluster(cluster)),
    }
    settings.extend(policies.as_ref().map(|path| format!("policies {}", path.display())));
    let labels: Vec<_> = cluster_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    settings.extend((!labels.is_empty()).then(|| format!("cluster labels {}", labels.join(", "))));
    settings
}

/// The guard of this process, as an object of rows.
pub(super) fn guard() -> ObjectId {
    let name = hostname::get().unwrap_or_default().to_string_lossy().into_owned();
    ObjectId { group: String::new(), kind: "Guard".to_owned(), namespace: None, name }
}

fn record(ledger: &Ledger, act: Act, detail: String) {
    let row = Row::act(Timestamp::now(), ReviewedEdit::watched(guard(), None), None, act);
    ledger.record(Row { detail, ..row });
}

fn of_cluster(cluster: &config::Cluster) -> Vec<String> {
    let config::Cluster { namespaces, record_driver, read_only, own_service, registration, .. } = cluster;
    let mut settings = vec![format!("record driver {record_driver:?}").to_lowercase()];
    settings.extend(read_only.then(|| "read-only".to_owned()));
    settings.extend(own_service.as_ref().map(|it| format!("service {}/{}", it.namespace, it.name)));
    settings.push(match registration {
        None => "webhooks registered by others".to_owned(),
        Some(Registration { select_all: true, .. }) => "registers webhooks for all objects".to_owned(),
        Some(_) => "registers webhooks for objects with Helm's label".to_owned(),
    });
    settings.push(match namespaces.as_slice() {
        [] => "all namespaces".to_owned(),
        names => format!("namespaces {}", names.join(", ")),
    });
    settings
}

fn certificate(tls: &Tls) -> &'static str {
    match tls {
        Tls::Made { .. } => "made in a directory",
        Tls::Shared { .. } => "shared by a Secret",
        Tls::Given { .. } => "from files",
    }
}

fn proof(callers: &config::Callers) -> &'static str {
    match (&callers.proof, &callers.client_ca) {
        (Proof::Certificate, _) => "by certificate",
        (Proof::File(_), None) => "by a token from a file",
        (Proof::File(_), Some(_)) => "by a token from a file and a certificate",
        (Proof::Kept { .. }, None) => "by a token of the guard",
        (Proof::Kept { .. }, Some(_)) => "by a token of the guard and a certificate",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Callers, Cluster, Endpoint, RecordDriver, Retention};
    use crate::model::{DriftMode, EditsMode};

    #[test]
    fn settings_name_what_is_enforced_and_no_password() {
        let cluster = Cluster {
            kubeconfig: None,
            namespaces: vec!["shop".to_owned()],
            record_driver: RecordDriver::Configmap,
            read_only: true,
            own_namespace: None,
            own_service: None,
            registration: Some(Registration {
                endpoint: Endpoint::Url("https://guard:9443".parse().unwrap()),
                select_all: true,
            }),
        };
        let config = Serve {
            source: Source::Cluster(cluster),
            listen: "0.0.0.0:9443".parse().unwrap(),
            admin_listen: "0.0.0.0:9080".parse().unwrap(),
            tls: Tls::Given { cert: "tls.crt".into(), key: "tls.key".into() },
            callers: Callers { proof: Proof::File("token".into()), client_ca: None },
            edits: EditsMode::Deny,
            drift: DriftMode::Repair,
            policies: Some("policies".into()),
            cluster_labels: [("env".to_owned(), "prod".to_owned())].into(),
            operation_timeout: Duration::from_secs(3600),
            ledger: config::Ledger {
                url: "postgres://moor:hunter2@db/ledger?password=hunter2".parse().unwrap(),
                cluster_name: None,
                retention: Retention { age: Duration::from_secs(7200), rows: 9 },
            },
            notifiers: None,
            release_metrics: true,
            collector: None,
            log: "info".parse().unwrap(),
        };
        let text = settings(&config).join("; ");
        for part in [
            "edits Deny; drift Repair; operation timeout 3600 s",
            "ledger postgres://db/ledger, 2 h, 9 rows",
            "certificate from files; callers by a token from a file; notifiers no",
            "record driver configmap; read-only; registers webhooks for all objects; namespaces shop",
            "policies policies; cluster labels env=prod",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("hunter2"), "{text}");
    }
}
