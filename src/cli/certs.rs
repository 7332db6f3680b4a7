//! `kubemoor certs`: creates, renews and shows the certificates that `serve` would make for itself. The CA's key is
//! never replaced, and no private key is printed.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;

use super::CommandOutcome;
use super::output::{self, OutputArgs, StyledText, Table};
use crate::app::settings;
use kubemoor_runtime::config::{Endpoint, ServiceRef, WebhookUrl};
use kubemoor_runtime::tls::{CertificateSource, Certificates};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Directory of the CA and the certificate, which are created if missing
    #[arg(long, value_name = "DIR", default_value = "certs")]
    tls_dir: PathBuf,

    /// The webhook's URL for the API server, if the webhook is not a Service of the cluster
    #[arg(long, value_name = "https://HOST[:PORT][/PATH]", conflicts_with = "service")]
    webhook_url: Option<WebhookUrl>,

    /// The webhook's Service
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]")]
    service: Option<ServiceRef>,

    #[command(flatten)]
    output: OutputArgs,
}

/// The certificate of the guard.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertsReport {
    directory: PathBuf,
    done: CertificateResult,
    names: Vec<String>,
    not_before: Timestamp,
    not_after: Timestamp,
    /// The value for `caBundle` in a webhook configuration.
    ca_bundle: String,
}

/// What was done with the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
enum CertificateResult {
    /// There was no certificate, so one was created.
    Created,
    /// The certificate was due for renewal or had other names, so it was replaced.
    Renewed,
    /// The certificate is still valid, so it was kept.
    Kept,
}

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { tls_dir, webhook_url, service, output } = args;
    let endpoint = webhook_url.map(Endpoint::Url).or(service.map(Endpoint::Service));
    let report = report(tls_dir, settings::names(endpoint.as_ref()), Timestamp::now())?;
    output::print(&output.output, &report, || report.table())
}

fn report(directory: PathBuf, names: Vec<String>, now: Timestamp) -> anyhow::Result<CertsReport> {
    let before = served(&directory);
    let source = CertificateSource::SelfMade { directory: directory.clone(), names: names.clone() };
    let certificates = Certificates::load(source, now)?;
    let done = match before {
        None => CertificateResult::Created,
        before if before == served(&directory) => CertificateResult::Kept,
        Some(_) => CertificateResult::Renewed,
    };
    let (not_before, not_after) = certificates.validity()?;
    let authority = certificates.ca_bundle().borrow().clone().unwrap_or_default();
    Ok(CertsReport { directory, done, names, not_before, not_after, ca_bundle: STANDARD.encode(&*authority) })
}

/// The bytes of the certificate's file, to detect a change.
fn served(directory: &Path) -> Option<Vec<u8>> {
    fs::read(directory.join("tls.crt")).ok()
}

impl CertsReport {
    fn table(&self) -> StyledText {
        let done = match self.done {
            CertificateResult::Created => "created",
            CertificateResult::Renewed => "renewed",
            CertificateResult::Kept => "good for a while, kept",
        };
        let file = |name: &str| self.directory.join(name).display().to_string();
        let mut table = Table::new(["CERTIFICATE", &file("tls.crt")]);
        table.row(["STATE", done]);
        table.row(["NAMES", &self.names.join(", ")]);
        table.row(["VALID", &format!("{} to {}", self.not_before, self.not_after)]);
        table.row(["CA", &file("ca.crt")]);
        table.text()
    }
}

#[cfg(test)]
mod tests;
