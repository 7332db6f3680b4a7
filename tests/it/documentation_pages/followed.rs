//! Which commands of the documentation tests run as they stand, and why the others are not run: each is one or the other.

use std::collections::BTreeSet;

use crate::support::{Document, Statement, documents, statements};

pub(super) const WITH_HELM: &[&str] = &[
    "## Install with Helm",
    "## Check the installation",
    "## The first denied change",
    "## Change the settings",
    "## Upgrade",
    "## Uninstall",
];
pub(super) const TWO_COMMANDS: &[&str] = &["### In two commands"];
pub(super) const README: &[&str] = &["## Install"];
pub(super) const WITHOUT_HELM: &[&str] = &["## Install without Helm", "### Uninstall without Helm"];
pub(super) const MANIFESTS: &[&str] = &["# Manifests", "## Removing it"];
pub(super) const TUTORIAL: &[&str] = &[
    "## Install an application",
    "## Install the guard",
    "## Try to change it",
    "## Make a temporary change",
    "## Make a permanent change",
    "## Bypass the webhook",
    "## See who did what",
];
pub(super) const FIRST_WEEK: &[&str] = &[
    "## The first day: observe",
    "## The first week: what Deny would deny",
    "### Ignore rules",
    "### Exceptions",
    "## Then: Deny",
    "## Then: Repair",
    "## Old changes and the next upgrade",
];
pub(super) const BAD_DAYS: &[&str] = &["## failurePolicy", "### Enforcement must be disabled at once"];
pub(super) const OPERATIONS: &[&str] = &["## The emergency switch"];
pub(super) const GUARDED_RELEASES: &[&str] = &["## Orders", "## The next upgrade"];

/// The pages, each with the headings whose commands a test runs: here, and those of backups in `ledger_backup.rs`.
const FOLLOWED: [(&str, &[&str]); 11] = [
    ("docs/install.md", WITH_HELM),
    ("docs/install.md", TWO_COMMANDS),
    ("README.md", README),
    ("docs/install.md", WITHOUT_HELM),
    ("deploy/README.md", MANIFESTS),
    ("docs/tutorial.md", TUTORIAL),
    ("docs/first-week.md", FIRST_WEEK),
    ("docs/production.md", BAD_DAYS),
    ("docs/operations.md", OPERATIONS),
    ("docs/guarded-releases.md", GUARDED_RELEASES),
    ("docs/ledger.md", &["### An SQLite file", "### PostgreSQL"]),
];

/// The same, for commands that need no order, on a cluster whose guard denies and repairs.
pub(super) const OTHERS: [(&str, &[&str]); 11] = [
    (
        "docs/allowances.md",
        &["## Create an allowance", "## Request one by annotation", "## During an incident"],
    ),
    ("docs/install.md", &["## What you need", "### The ledger in PostgreSQL", "### Your own certificate"]),
    ("docs/ledger.md", &["### Through the API server", "### Who may read"]),
    ("docs/guard-security.md", &["### Your own token"]),
    ("docs/guarded-releases.md", &["# GuardedReleases"]),
    ("docs/operations.md", &["## Certificates"]),
    ("docs/policy-checks.md", &["## Try a policy", "## Lint policies"]),
    ("docs/production.md", &["### The guard is down"]),
    ("docs/troubleshooting.md", &["## A release is Unconfirmed"]),
    ("docs/ui.md", &["## In a cluster"]),
    ("policies/README.md", &["# Policies"]),
];

const ENDLESS: &str = "it runs until somebody ends it, as guards and pages of other tests do";
const DATABASE: &str = "it names a database of an example; tests/it/ledger_audit.rs asks real ones";
const CLUSTERS: &str = "it needs several clusters, as tests/it/fleet.rs has";
const PLUGIN: &str = "it needs the program helm; tests/it/release.rs runs the plugin as helm does";
const PUBLISHED: &str = "it needs a published release; tests/it/release.rs makes one";
const MACHINE: &str = "it needs kind, and an image that it may run";
const CERT_MANAGER: &str = "it needs cert-manager, for which tests/it/cert_manager.rs stands in";

/// Commands that no test runs as they stand: the page, how they begin, and why.
const EXCEPTIONS: [(&str, &str, &str); 39] = [
    ("README.md", "make demo", "it builds the guard and starts a control plane; crates/kubemoor-demo"),
    ("CONTRIBUTING.md", "cargo run", "it writes files of the checkout, which tests compare"),
    ("docs/fleet.md", "kubemoor fleet --ledger", DATABASE),
    ("docs/fleet.md", "kubemoor get releases --contexts", CLUSTERS),
    ("docs/fleet.md", "kubemoor diff shop -n shop --contexts", CLUSTERS),
    ("docs/fleet.md", "kubemoor serve", ENDLESS),
    (
        "docs/install.md",
        "make ",
        "it builds a release; tests/it/image.rs and tests/it/krew.rs build smaller ones",
    ),
    ("docs/install.md", "kubemoor serve", ENDLESS),
    ("docs/install.md", "helm plugin", PLUGIN),
    ("docs/install.md", "helm moor", PLUGIN),
    ("docs/install.md", "skopeo", "it needs a registry"),
    (
        "docs/install.md",
        "kubectl krew",
        "it needs krew; tests/it/krew.rs installs by the manifest as krew does",
    ),
    ("docs/ledger.md", "kubemoor audit --ledger", DATABASE),
    ("docs/ledger.md", "kubemoor audit report", DATABASE),
    (
        "docs/metrics.md",
        "kubectl create clusterrolebinding",
        "tests/it/prometheus.rs binds the role to Prometheus",
    ),
    (
        "docs/notifications.md",
        "kubemoor notify test",
        "it needs a receiver, as tests/it/notify_command.rs has",
    ),
    ("docs/operations.md", "kubemoor manifests webhook", "tests/it/installation.rs applies it"),
    (
        "docs/policy-checks.md",
        "kubemoor policy import flux",
        "it needs Flux, as tests/it/policy_import.rs has",
    ),
    (
        "docs/policy-checks.md",
        "kubemoor policy replay",
        "tests/it/policy_replay.rs replays rows that it has made",
    ),
    ("docs/production.md", "kubectl -n kubemoor-system logs", "no kubelet runs here"),
    ("docs/production.md", "kubectl -n kubemoor-system describe certificate", CERT_MANAGER),
    ("docs/releases.md", "cosign", PUBLISHED),
    ("docs/releases.md", "sha256sum", PUBLISHED),
    ("docs/releases.md", "git checkout", PUBLISHED),
    ("docs/releases.md", "rustup", PUBLISHED),
    ("docs/releases.md", "make release", PUBLISHED),
    ("docs/troubleshooting.md", "kubectl moor doctor", "tests/it/doctor.rs runs it"),
    ("docs/troubleshooting.md", "helm get manifest", "tests/it/check.rs has such a file"),
    ("docs/troubleshooting.md", "kubemoor check", "tests/it/check.rs runs it"),
    ("docs/tutorial.md", "make image", "it builds a release"),
    ("docs/tutorial.md", "sudo install", MACHINE),
    ("docs/tutorial.md", "kind", MACHINE),
    ("docs/tutorial.md", "skopeo", MACHINE),
    ("docs/tutorial.md", "kubectl moor ui", ENDLESS),
    ("docs/ui.md", "kubemoor ui", ENDLESS),
    ("docs/ui.md", "kubectl -n kubemoor-system port-forward", ENDLESS),
    ("certs/README.md", "kubemoor manifests install", CERT_MANAGER),
    ("certs/README.md", "kubemoor manifests webhook", "tests/it/installation.rs applies it"),
    ("certs/README.md", "kubectl annotate", CERT_MANAGER),
];

/// Which of [`EXCEPTIONS`] a command of a page is.
pub(super) fn exception(page: &str, statement: &Statement) -> Option<usize> {
    EXCEPTIONS.iter().position(|(of, begins, _)| *of == page && statement.line.starts_with(begins))
}

#[test]
fn every_command_is_run_or_has_a_reason_not_to() {
    let followed: Vec<_> = FOLLOWED.into_iter().chain(OTHERS).collect();
    let mut used = BTreeSet::new();
    for document in documents() {
        let page = document.path.to_str().unwrap();
        for block in document.blocks().iter().filter(|block| block.language == "console") {
            let is_followed = followed
                .iter()
                .any(|(of, headings)| *of == page && headings.contains(&block.heading.as_str()));
            for statement in statements(&block.text) {
                let excepted = exception(page, &statement);
                used.extend(excepted);
                assert!(is_followed || excepted.is_some(), "{page}: nothing runs {:?}", statement.line);
            }
        }
    }
    for (at, exception) in EXCEPTIONS.iter().enumerate() {
        assert!(used.contains(&at), "{exception:?} is no command of a page");
    }
    for (page, headings) in followed {
        let blocks = Document::named(page).blocks();
        for heading in headings {
            assert!(blocks.iter().any(|block| block.heading == *heading), "{page} has no {heading}");
        }
    }
}
