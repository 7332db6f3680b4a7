//! The lines of the log about one object.
//!
//! Entry points: one function for each thing that can happen to it. Invariant: of values only redacted findings;
//! `kubemoor explain -` understands every line.

use kubemoor_declare::model::ObjectId;
use kubemoor_helm::release::Release;
use kubemoor_reconcile::drifts::Drift;
use kubemoor_reconcile::report::DriftKind;
use kubemoor_verdict::edit::Finding;
use kubemoor_verdict::message;

/// It was repaired, after so many attempts.
pub(super) fn of_repair(release: &Release, object: &ObjectId, drift: &Drift, attempts: u32) {
    tracing::info!(
        release.id = %release.id, release.revision = release.state.revision, drift.object = %object,
        drift.kind = drift.kind.as_str(), drift.by = drift.by.as_deref().unwrap_or_default(), attempts,
        "{object} of Helm release {} {}{}",
        release.id,
        match drift.kind {
            DriftKind::Missing => "was missing and is re-created",
            DriftKind::Ownership => "belonged to another field manager and belongs to Helm again",
            _ => "was changed and matches the release again",
        },
        fields(&drift.findings)
    );
}

/// It stays as it is.
pub(super) fn of_report(release: &Release, object: &ObjectId, drift: &Drift) {
    let (id, reason) = (&release.id, kept(drift));
    match drift.kind {
        DriftKind::Missing => tracing::warn!(
            release.id = %id, drift.object = %object,
            "{object} of Helm release {id} is missing and is not re-created: {reason}"
        ),
        _ => tracing::warn!(
            release.id = %id, drift.object = %object, drift.kind = drift.kind.as_str(),
            drift.by = drift.by.as_deref().unwrap_or_default(),
            "{object} does not match Helm release {id} and is not repaired: {reason}{}",
            fields(&drift.findings)
        ),
    }
}

/// A repair failed.
pub(super) fn of_failure(release: &Release, object: &ObjectId, drift: &Drift) {
    let reason = drift.repaired.as_ref().and_then(|it| it.as_ref().err());
    tracing::warn!(
        release.id = %release.id, drift.object = %object, drift.kind = drift.kind.as_str(),
        "{object} of Helm release {} could not be repaired: {}",
        release.id, reason.map_or("", String::as_str)
    );
}

/// Nobody can tell yet whether it drifts.
pub(super) fn of_doubt(release: &Release, object: &ObjectId, drift: &Drift) {
    tracing::warn!(
        release.id = %release.id, drift.object = %object,
        "{object} may not match Helm release {}, and only a dry run could tell: {}{}",
        release.id, kept(drift), fields(&drift.findings)
    );
}

/// Somebody changes it back each time.
pub(super) fn of_contest(release: &Release, object: &ObjectId, drift: &Drift) {
    let by = drift.by.as_deref().unwrap_or("an unknown field manager");
    tracing::warn!(
        release.id = %release.id, drift.object = %object, drift.by = by,
        "{by} changes {object} of Helm release {} back each time the guard repairs it: the guard waits longer each time",
        release.id
    );
}

/// It was deleted again.
pub(super) fn of_removal(release: &Release, object: &ObjectId) {
    tracing::info!(
        release.id = %release.id, drift.object = %object,
        "the guard deleted {object} again, because Helm release {} no longer declares it", release.id
    );
}

/// The same, but it cannot be deleted.
pub(super) fn of_failed_removal(release: &Release, object: &ObjectId, error: &str) {
    tracing::warn!(
        release.id = %release.id, drift.object = %object,
        "{object} was re-created, Helm release {} no longer declares it, and the guard cannot delete it: {error}",
        release.id
    );
}

/// It was re-created, and nobody knows whether its release still declares it.
pub(super) fn of_unread(release: &Release, object: &ObjectId, error: &str) {
    tracing::warn!(
        release.id = %release.id,
        "{object} of Helm release {} was re-created, and the records cannot be read again: {error}", release.id
    );
}

/// Why a drift stays.
pub(super) fn kept(drift: &Drift) -> &str {
    drift.kept.as_deref().unwrap_or_default()
}

/// A list of fields for the end of a sentence.
fn fields(findings: &[Finding]) -> String {
    let named: Vec<_> = findings.iter().take(8).map(message::live_field).collect();
    match (named.is_empty(), findings.len().saturating_sub(named.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", named.join("; ")),
        (false, more) => format!(": {}; and {more} more", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use jiff::Timestamp;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::sample_releases::{Given, assembled};
    use crate::sample_verdicts::{finding, object};
    use kubemoor_inspect::explanation::Denial;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged meanwhile.
    fn logged(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), log);
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_line_about_an_object_is_understood() {
        let release = assembled(Given::default(), None);
        let web = object("apps", "Deployment");
        let finding = finding(&web, "/spec/replicas", [json!(2), json!(2), json!(5)]);
        let drift = |kind| Drift {
            findings: vec![finding.clone()],
            kept: Some("drift is only reported".into()),
            by: Some("kubectl-edit".to_owned()),
            ..Drift::new(kind, Timestamp::UNIX_EPOCH)
        };
        let (changed, missing) = (drift(DriftKind::Changed), drift(DriftKind::Missing));
        let failed = Drift { repaired: Some(Err("no right: try again".to_owned())), ..changed.clone() };
        let lines: [(String, &[&str]); 9] = [
            (logged(|| of_repair(&release, &web, &changed, 1)), &["/spec/replicas"]),
            (logged(|| of_report(&release, &web, &missing)), &[]),
            (logged(|| of_report(&release, &web, &changed)), &["/spec/replicas"]),
            (logged(|| of_failure(&release, &web, &failed)), &[]),
            (logged(|| of_doubt(&release, &web, &changed)), &["/spec/replicas"]),
            (logged(|| of_contest(&release, &web, &changed)), &[]),
            (logged(|| of_removal(&release, &web)), &[]),
            (logged(|| of_failed_removal(&release, &web, "no right: try again")), &[]),
            (logged(|| of_unread(&release, &web, "no right: try again")), &[]),
        ];
        for (line, paths) in lines {
            let found = Denial::parse(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                (found.object.as_str(), found.namespace.as_deref()),
                ("deployment/web", Some("shop")),
                "{line}"
            );
            assert_eq!(
                (found.paths, found.release),
                (paths.iter().map(|it| (*it).to_owned()).collect(), Some(release.id.clone())),
                "{line}"
            );
        }
    }
}
