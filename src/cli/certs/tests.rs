use jiff::SignedDuration;

use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn certificate_is_renewed_only_when_due_or_when_names_change() {
    let folder = tempfile::tempdir().unwrap();
    let now = Timestamp::now();
    let check = |wanted: &[&str], at: Timestamp, done: CertificateResult| {
        let report = report(folder.path().to_owned(), names(wanted), at).unwrap();
        assert_eq!((report.done, report.names.clone()), (done, names(wanted)));
        assert!(report.not_before <= at && at < report.not_after, "{report:?}");
        report.ca_bundle
    };
    let authority = check(&["localhost"], now, CertificateResult::Created);
    assert_eq!(check(&["localhost"], now, CertificateResult::Kept), authority);
    assert_eq!(check(&["kubemoor.kubemoor-system.svc"], now, CertificateResult::Renewed), authority);
    let later = now + SignedDuration::from_hours(300 * 24);
    assert_eq!(check(&["kubemoor.kubemoor-system.svc"], later, CertificateResult::Renewed), authority);
}

#[test]
fn no_private_key_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let report = report(folder.path().to_owned(), names(&["localhost"]), Timestamp::now()).unwrap();
    let shown = report.table().as_str().to_owned() + &serde_json::to_string(&report).unwrap();
    for file in ["tls.key", "ca.key"] {
        let key = fs::read_to_string(folder.path().join(file)).unwrap();
        for line in key.lines().filter(|line| !line.starts_with('-')) {
            assert!(!shown.contains(line), "{file}");
        }
    }
    let bundle = STANDARD.decode(&report.ca_bundle).unwrap();
    assert_eq!(bundle, fs::read(folder.path().join("ca.crt")).unwrap());
}
