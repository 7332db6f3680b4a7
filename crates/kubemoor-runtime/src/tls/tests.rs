//! Certificates made, renewed, given and broken.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::ToSpan;
use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls_pki_types::{ServerName, UnixTime};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn after_days(days: i64) -> Timestamp {
    now() + (days * 24).hours()
}

fn self_signed(directory: &Path, names: &[&str]) -> CertificateSource {
    CertificateSource::SelfMade {
        directory: directory.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn given(directory: &Path) -> CertificateSource {
    CertificateSource::Files { certificate: directory.join("tls.crt"), key: directory.join("tls.key") }
}

fn load(source: CertificateSource, now: Timestamp) -> Result<Certificates, TlsError> {
    Certificates::load(source, now)
}

fn file(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

/// Whether a client that trusts `authority` accepts the certificate in `leaf`
/// as `name` at `now`.
pub(super) fn accepts(authority: &str, leaf: &str, name: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok()
}

/// Writes a pair of its own for `name` as `tls.crt` and `tls.key`.
fn give(directory: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
}

#[test]
fn an_authority_and_a_certificate_for_all_names_are_made() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("not/yet/there");
    let names = ["kubemoor.guard.svc", "10.0.0.7", "::1"];
    let certificates = load(self_signed(&directory, &names), now()).unwrap();
    let bundle = certificates.ca_bundle().borrow().clone().unwrap();
    assert_eq!(*bundle, *file(&directory, "ca.crt"));
    let leaf = file(&directory, "tls.crt");
    for name in names {
        assert!(accepts(&bundle, &leaf, name, now()), "{name}");
        assert!(accepts(&bundle, &leaf, name, after_days(364)), "{name}");
        assert!(!accepts(&bundle, &leaf, name, after_days(366)), "{name}");
    }
    assert!(!accepts(&bundle, &leaf, "other.guard.svc", now()));
    for (name, mode) in [("ca.key", 0o600), ("tls.key", 0o600), ("ca.crt", 0o644), ("tls.crt", 0o644)] {
        let permissions = fs::metadata(directory.join(name)).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o077, mode & 0o077, "{name}");
    }
}

#[test]
fn existing_certificate_files_are_reused_after_restart() {
    let root = tempfile::tempdir().unwrap();
    load(self_signed(root.path(), &["a"]), now()).unwrap();
    let files = ["ca.crt", "ca.key", "tls.crt", "tls.key"];
    let before = files.map(|name| file(root.path(), name));
    let certificates = load(self_signed(root.path(), &["a"]), after_days(200)).unwrap();
    assert!(!certificates.refresh(after_days(200)).unwrap());
    assert_eq!(files.map(|name| file(root.path(), name)), before);
}

#[test]
fn certificate_is_renewed_by_same_authority_after_two_thirds_lifetime() {
    let root = tempfile::tempdir().unwrap();
    let certificates = load(self_signed(root.path(), &["a"]), now()).unwrap();
    let bundle = certificates.ca_bundle();
    let authority = file(root.path(), "ca.crt");
    assert!(!certificates.refresh(after_days(243)).unwrap());
    assert!(certificates.refresh(after_days(244)).unwrap());
    assert!(!certificates.refresh(after_days(244)).unwrap());
    assert_eq!(file(root.path(), "ca.crt"), authority);
    assert!(!bundle.has_changed().unwrap());
    assert!(accepts(&authority, &file(root.path(), "tls.crt"), "a", after_days(600)));
}

#[test]
fn certificate_from_the_future_is_recreated_after_clock_is_corrected() {
    let root = tempfile::tempdir().unwrap();
    let certificates = load(self_signed(root.path(), &["a"]), after_days(400)).unwrap();
    assert!(!accepts(&file(root.path(), "ca.crt"), &file(root.path(), "tls.crt"), "a", now()));
    assert!(certificates.refresh(now()).unwrap());
    let bundle = certificates.ca_bundle().borrow().clone().unwrap();
    assert!(accepts(&bundle, &file(root.path(), "tls.crt"), "a", now()));
    assert!(!certificates.refresh(now()).unwrap());
}

#[test]
fn a_certificate_is_renewed_when_its_names_change() {
    let root = tempfile::tempdir().unwrap();
    load(self_signed(root.path(), &["a", "10.0.0.1"]), now()).unwrap();
    let authority = file(root.path(), "ca.crt");
    let first = file(root.path(), "tls.crt");
    // Another order, or another spelling of an address, is no change.
    load(self_signed(root.path(), &["10.0.0.1", "a"]), now()).unwrap();
    assert_eq!(file(root.path(), "tls.crt"), first);
    for names in [&["a"][..], &["a", "b"], &["10.0.0.1"]] {
        let before = file(root.path(), "tls.crt");
        load(self_signed(root.path(), names), now()).unwrap();
        assert_ne!(file(root.path(), "tls.crt"), before, "{names:?}");
        assert_eq!(file(root.path(), "ca.crt"), authority);
    }
}

#[test]
fn renewed_authority_is_compatible_with_old_certificates_and_old_bundles() {
    let root = tempfile::tempdir().unwrap();
    let certificates = load(self_signed(root.path(), &["a"]), now()).unwrap();
    let mut bundle = certificates.ca_bundle();
    let (old_authority, old_leaf) = (file(root.path(), "ca.crt"), file(root.path(), "tls.crt"));
    let later = after_days(2434);
    assert!(certificates.refresh(later).unwrap());
    let (new_authority, new_leaf) = (file(root.path(), "ca.crt"), file(root.path(), "tls.crt"));
    assert_ne!(old_authority, new_authority);
    assert!(bundle.has_changed().unwrap());
    assert_eq!(**bundle.borrow_and_update().as_ref().unwrap(), *new_authority);
    assert!(accepts(&new_authority, &old_leaf, "a", now()));
    assert!(accepts(&old_authority, &new_leaf, "a", later));
    assert!(accepts(&new_authority, &new_leaf, "a", later));
}

#[test]
fn broken_certificate_is_recreated_under_the_intact_authority() {
    let other = tempfile::tempdir().unwrap();
    load(self_signed(other.path(), &["a"]), now()).unwrap();
    let breakages: [(&str, Option<String>); 6] = [
        ("tls.crt", None),
        ("tls.key", None),
        ("tls.crt", Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned())),
        ("tls.key", Some(String::new())),
        ("tls.key", Some(file(other.path(), "tls.key"))),
        ("tls.crt", Some(file(other.path(), "tls.crt"))),
    ];
    for (name, content) in breakages {
        let root = tempfile::tempdir().unwrap();
        load(self_signed(root.path(), &["a"]), now()).unwrap();
        let authority = file(root.path(), "ca.crt");
        match content {
            Some(content) => fs::write(root.path().join(name), content).unwrap(),
            None => fs::remove_file(root.path().join(name)).unwrap(),
        }
        load(self_signed(root.path(), &["a"]), now()).unwrap();
        assert_eq!(file(root.path(), "ca.crt"), authority);
        assert!(accepts(&authority, &file(root.path(), "tls.crt"), "a", now()), "{name}");
    }
}

#[test]
fn a_pair_of_another_authority_is_made_again() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [root.path(), other.path()] {
        load(self_signed(directory, &["a"]), now()).unwrap();
    }
    for name in ["tls.crt", "tls.key"] {
        fs::copy(other.path().join(name), root.path().join(name)).unwrap();
    }
    load(self_signed(root.path(), &["a"]), now()).unwrap();
    assert!(accepts(&file(root.path(), "ca.crt"), &file(root.path(), "tls.crt"), "a", now()));
}

#[test]
fn an_authority_that_cannot_sign_is_never_replaced_unasked() {
    let other = tempfile::tempdir().unwrap();
    load(self_signed(other.path(), &["a"]), now()).unwrap();
    for key in [None, Some(String::new()), Some(file(other.path(), "ca.key"))] {
        let root = tempfile::tempdir().unwrap();
        load(self_signed(root.path(), &["a"]), now()).unwrap();
        let authority = file(root.path(), "ca.crt");
        match key {
            Some(key) => fs::write(root.path().join("ca.key"), key).unwrap(),
            None => fs::remove_file(root.path().join("ca.key")).unwrap(),
        }
        // While the certificate lives it is served, also when it is due.
        load(self_signed(root.path(), &["a"]), now()).unwrap();
        load(self_signed(root.path(), &["a"]), after_days(300)).unwrap();
        let error = load(self_signed(root.path(), &["b"]), now()).err().unwrap();
        assert!(matches!(error, TlsError::UseAuthority { .. }), "{error}");
        let error = load(self_signed(root.path(), &["a"]), after_days(400)).err().unwrap();
        assert!(matches!(error, TlsError::UseAuthority { .. }), "{error}");
        assert_eq!(file(root.path(), "ca.crt"), authority);
    }
}

#[test]
fn a_start_that_was_cut_short_is_taken_up() {
    let root = tempfile::tempdir().unwrap();
    load(self_signed(root.path(), &["a"]), now()).unwrap();
    let key = file(root.path(), "ca.key");
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        fs::remove_file(root.path().join(name)).unwrap();
    }
    fs::write(root.path().join("ca.new"), "half of").unwrap();
    load(self_signed(root.path(), &["a"]), now()).unwrap();
    assert_eq!(file(root.path(), "ca.key"), key);
    assert!(accepts(&file(root.path(), "ca.crt"), &file(root.path(), "tls.crt"), "a", now()));
}

#[test]
fn concurrent_starts_make_one_authority_between_them() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("shared");
    let bundles: Vec<Arc<str>> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let certificates = load(self_signed(&directory, &["a"]), now()).unwrap();
                    let bundle = certificates.ca_bundle().borrow().clone();
                    bundle.unwrap()
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(bundles.iter().all(|bundle| *bundle == bundles[0]));
    assert_eq!(*bundles[0], *file(&directory, "ca.crt"));
    assert!(accepts(&bundles[0], &file(&directory, "tls.crt"), "a", now()));
    assert!(!load(self_signed(&directory, &["a"]), now()).unwrap().refresh(now()).unwrap());
}

#[test]
fn a_given_certificate_comes_with_the_authority_beside_it() {
    let root = tempfile::tempdir().unwrap();
    give(root.path(), "a");
    assert_eq!(*load(given(root.path()), now()).unwrap().ca_bundle().borrow(), None);
    fs::copy(root.path().join("tls.crt"), root.path().join("ca.crt")).unwrap();
    let certificates = load(given(root.path()), now()).unwrap();
    assert_eq!(certificates.ca_bundle().borrow().as_deref(), Some(file(root.path(), "tls.crt").as_str()));
}

#[test]
fn replaced_certificate_is_loaded_once_certificate_and_key_match() {
    let root = tempfile::tempdir().unwrap();
    give(root.path(), "a");
    let certificates = load(given(root.path()), now()).unwrap();
    let served = || certificates.resolver.0.load_full().cert[0].clone();
    let first = served();
    let old_key = file(root.path(), "tls.key");
    give(root.path(), "a");
    let new_key = file(root.path(), "tls.key");
    fs::write(root.path().join("tls.key"), &old_key).unwrap();
    let error = certificates.refresh(now()).unwrap_err();
    assert!(matches!(error, TlsError::MatchKey { .. }), "{error}");
    assert_eq!(served(), first);
    fs::write(root.path().join("tls.key"), &new_key).unwrap();
    assert!(certificates.refresh(now()).unwrap());
    assert_ne!(served(), first);
}

#[test]
fn bundle_is_compared_by_certificates_whatever_stands_between_them() {
    let root = tempfile::tempdir().unwrap();
    let [one, two] = ["a", "b"].map(|name| {
        give(root.path(), name);
        file(root.path(), "tls.crt")
    });
    let commented = format!("# the old one\n{one}# the new one\n{two}rest");
    assert!(
        contains_authorities(&commented, &two) && contains_authorities(&commented, &format!("{two}{one}"))
    );
    assert!(
        !contains_authorities(&one, &commented)
            && !contains_authorities(&one, "no certificate")
            && !contains_authorities("", &one)
    );
}

#[test]
fn unusable_certificate_files_yield_a_one_line_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().display().to_string();
    let check = |expected: &str| {
        let error = load(given(root.path()), now()).err().unwrap().to_string();
        assert!(!error.contains('\n'));
        let expected = expected.replace("DIR", &path);
        assert!(error.starts_with(&expected), "{error}\n is not: {expected}");
    };
    check("cannot read DIR/tls.crt: No such file");
    give(root.path(), "a");
    let (certificate, key) = (file(root.path(), "tls.crt"), file(root.path(), "tls.key"));
    fs::remove_file(root.path().join("tls.key")).unwrap();
    check("cannot read DIR/tls.key: No such file");
    give(root.path(), "a");
    fs::write(root.path().join("tls.crt"), &certificate).unwrap();
    check("the private key in DIR/tls.key does not belong to the certificate in DIR/tls.crt");
    fs::write(root.path().join("tls.key"), "no key").unwrap();
    check("DIR/tls.key has no usable PEM private key");
    fs::write(root.path().join("tls.key"), &key).unwrap();
    fs::write(root.path().join("tls.crt"), &key).unwrap();
    check("DIR/tls.crt has no readable PEM certificate: no certificate found");
    fs::write(root.path().join("tls.crt"), &certificate).unwrap();
    fs::write(root.path().join("ca.crt"), "no certificate").unwrap();
    check("DIR/ca.crt has no readable PEM certificate: no certificate found");
}

#[test]
fn a_directory_that_cannot_be_written_is_one_clear_sentence() {
    let root = tempfile::tempdir().unwrap();
    let in_the_way = root.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let error = load(self_signed(&in_the_way.join("tls"), &["a"]), now()).err().unwrap().to_string();
    assert!(error.contains(&in_the_way.display().to_string()), "{error}");
}

#[test]
fn a_name_that_is_none_is_said() {
    let root = tempfile::tempdir().unwrap();
    let error = load(self_signed(root.path(), &["ä ö"]), now()).err().unwrap().to_string();
    assert!(error.starts_with("cannot create a certificate for ä ö"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_files_are_looked_at_until_the_end() {
    let root = tempfile::tempdir().unwrap();
    give(root.path(), "a");
    let certificates = load(given(root.path()), Timestamp::now()).unwrap();
    let mut bundle = certificates.ca_bundle();
    let (stop, renewed) = (CancellationToken::new(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let keeper = tokio::spawn({
        let (certificates, stop) = (certificates.clone(), stop.clone());
        let told = Arc::clone(&renewed);
        async move { certificates.keep(|until| told.lock().push(until), stop).await }
    });
    fs::write(root.path().join("tls.key"), "half of a key").unwrap();
    tokio::time::advance(CHECK_EVERY * 3).await;
    give(root.path(), "a");
    fs::copy(root.path().join("tls.crt"), root.path().join("ca.crt")).unwrap();
    bundle.changed().await.unwrap();
    assert_eq!(bundle.borrow().as_deref(), Some(file(root.path(), "tls.crt").as_str()));
    stop.cancel();
    keeper.await.unwrap();
    assert_eq!(renewed.lock().last(), Some(&certificates.validity().unwrap().1));
}
