//! The certificate that replicas share: stores it, and reports whether it is known yet.
//!
//! Entry points: [`Certifying::new`] before the readiness endpoint opens, [`Certifying::start`] once there is
//! a cluster.

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::lifetime;
use super::parts::Parts;
use kubemoor_cluster::client::certificate_secret::CertificateSecret;
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_declare::model::ObjectId;
use kubemoor_guard::admin::{Condition, Readiness};
use kubemoor_guard::webhook::registration::renewal::Renewal;
use kubemoor_ledger::Ledger;
use kubemoor_ledger::row::{Act, ReviewedEdit, Row};
use kubemoor_runtime::config;
use kubemoor_runtime::tls::{Certificates, Pace, Source};

/// The services that store a shared certificate.
#[derive(Clone)]
pub(super) struct Certifying {
    secret: CertificateSecret,
    names: Vec<String>,
    pace: Pace,
    certificates: Certificates,
    known: Condition,
    /// Where each step is kept.
    ledger: Ledger,
}

impl Certifying {
    /// None where the certificate is not shared by a Secret.
    pub(super) fn new(
        tls: &config::Tls,
        certificates: &Certificates,
        readiness: &Readiness,
        ledger: &Ledger,
    ) -> Option<Self> {
        let config::Tls::Shared { namespace, secret, names, life } = tls else { return None };
        let known = readiness.condition("certificate");
        known.unmet("the certificate that replicas share is not there yet");
        Some(Self {
            secret: CertificateSecret { namespace: namespace.clone(), name: secret.clone() },
            names: names.clone(),
            pace: Pace::of(*life),
            certificates: certificates.clone(),
            known,
            ledger: ledger.clone(),
        })
    }

    /// Keeps the certificate until `stop`.
    pub(super) fn start(
        self,
        client: kube::Client,
        (leadership, open): (Leadership, watch::Receiver<Option<bool>>),
        parts: &mut Parts,
        stop: &CancellationToken,
    ) {
        let Self { secret, names, pace, certificates, known, ledger } = self;
        let (mut told, waiting) = (certificates.ca_bundle(), stop.clone());
        parts.spawn("waiting for the certificate", async move {
            let is_told = tokio::select! {
                () = waiting.cancelled() => false,
                told = told.wait_for(Option::is_some) => told.is_ok(),
            };
            if is_told {
                known.met();
            }
            waiting.cancelled().await;
        });
        let renewed = Box::new(keep(ledger));
        let renewal = Renewal { secret, names, pace, certificates, leadership, open, renewed };
        parts.spawn("keeping the certificate", renewal.run(client, stop.clone()));
    }
}

/// Returns the source of the certificate.
pub(super) fn source(tls: &config::Tls) -> Source {
    match tls {
        config::Tls::Made { dir, names } => Source::SelfMade { directory: dir.clone(), names: names.clone() },
        config::Tls::Shared { names, life, .. } => {
            Source::Shared { names: names.clone(), pace: Pace::of(*life) }
        }
        config::Tls::Given { cert, key } => Source::Given { certificate: cert.clone(), key: key.clone() },
    }
}

/// Keeps in the ledger that this guard serves another certificate, from files.
pub(super) fn keep_files(ledger: Ledger) -> impl Fn(Timestamp) + Send {
    move |until| {
        let edit = ReviewedEdit::watched(lifetime::guard(), None);
        let row = Row::act(Timestamp::now(), edit, None, Act::RenewCertificate);
        ledger.record(Row { detail: format!("from files: valid until {until}"), ..row });
    }
}

/// Keeps each step in the ledger.
fn keep(ledger: Ledger) -> impl Fn(&CertificateSecret, &'static str) + Send + Sync {
    move |CertificateSecret { namespace, name }, step| {
        let object = ObjectId {
            group: "".into(),
            kind: "Secret".into(),
            namespace: Some(namespace.clone().into()),
            name: name.clone().into(),
        };
        let edit = ReviewedEdit::watched(object, None);
        let row = Row::act(Timestamp::now(), edit, None, Act::RenewCertificate);
        ledger.record(Row { detail: step.to_owned(), ..row });
    }
}
