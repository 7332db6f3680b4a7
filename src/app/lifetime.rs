//! That a guard starts and stops, in the ledger, with the settings that decide what it enforces.
//!
//! Entry points: [`settings`], [`Lifetime::begin`], [`Lifetime::end`]. Invariant: no row holds a token, a password or a
//! path of a secret file. A guard that is killed leaves no row about its end: the next start shows that it was gone.

use jiff::Timestamp;

use kubemoor_cluster::mirror::policies::files::Folder;
use kubemoor_declare::model::{ObjectId, build};
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Act, ReviewedEdit, Row};
use kubemoor_runtime::config::{self, Proof, Registration, Serve, Source};
use kubemoor_runtime::tls::CertificateSource;

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
    ObjectId { group: "".into(), kind: "Guard".into(), namespace: None, name: name.into() }
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

fn certificate(source: &CertificateSource) -> &'static str {
    match source {
        CertificateSource::SelfMade { .. } => "made in a directory",
        CertificateSource::Shared { .. } => "shared by a Secret",
        CertificateSource::Given { .. } => "from files",
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
mod tests;
