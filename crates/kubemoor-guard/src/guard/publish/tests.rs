use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::sample_releases::{SampleRecord, assembled};
use crate::sample_verdicts::{finding, object};

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
fn every_line_names_object_release_and_fields() {
    let release = assembled(SampleRecord::default(), None);
    let web = object("apps", "Deployment");
    let finding = finding(&web, "/spec/replicas", [json!(2), json!(2), json!(5)]);
    let drift = |kind| ObjectDrift {
        findings: vec![finding.clone()],
        unrepaired_reason: Some("drift is only reported".into()),
        by: Some("kubectl-edit".to_owned()),
        ..ObjectDrift::new(web.clone(), kind, Timestamp::UNIX_EPOCH)
    };
    let (changed, missing) = (drift(DriftKind::Changed), drift(DriftKind::Missing));
    let failed = ObjectDrift { repaired: Some(Err("no right: try again".to_owned())), ..changed.clone() };
    let lines: [(String, &[&str]); 9] = [
        (logged(|| log_repair(&release, &web, &changed, 1, true)), &["replicas"]),
        (logged(|| log_report(&release, &web, &missing)), &[]),
        (logged(|| log_report(&release, &web, &changed)), &["replicas"]),
        (logged(|| log_failure(&release, &web, &failed)), &[]),
        (logged(|| log_doubt(&release, &web, &changed)), &["replicas"]),
        (logged(|| log_contest(&release, &web, &changed)), &[]),
        (logged(|| log_removal(&release, &web)), &[]),
        (logged(|| log_failed_removal(&release, &web, "no right: try again")), &[]),
        (logged(|| log_unread(&release, &web, "no right: try again")), &[]),
    ];
    for (line, paths) in lines {
        for part in ["Deployment/web in namespace shop", &release.id.to_string()].iter().chain(paths) {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}
