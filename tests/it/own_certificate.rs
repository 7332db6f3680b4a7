//! A certificate of one's own, which somebody else renews in its files.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, iter};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::tls::TlsInfo;

use crate::support::{Guard, Review, SOON, charts, eventually, folder};

const CALLERS: usize = 16;

/// The files of a certificate as a kubelet mounts those of a Secret: replaced all at once.
struct Mount {
    folder: PathBuf,
    authority: (CertificateParams, KeyPair),
    made: usize,
}

impl Mount {
    fn new() -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut mount =
            Self { folder: folder("mount"), authority: (authority, KeyPair::generate().unwrap()), made: 0 };
        mount.renew();
        for file in ["ca.crt", "tls.crt", "tls.key"] {
            symlink(PathBuf::from("..data").join(file), mount.folder.join(file)).unwrap();
        }
        mount
    }

    fn flag(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.folder.join(file).display())
    }

    /// Issues another certificate by the same authority, and gives it in DER.
    fn renew(&mut self) -> Vec<u8> {
        let (authority, authority_key) = &self.authority;
        let issuer = Issuer::from_params(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        self.made += 1;
        let next = self.folder.join(format!("..{}", self.made));
        fs::create_dir(&next).unwrap();
        let texts = [
            ("ca.crt", authority.self_signed(authority_key).unwrap().pem()),
            ("tls.crt", certificate.pem()),
            ("tls.key", key.serialize_pem()),
        ];
        for (file, text) in texts {
            fs::write(next.join(file), text).unwrap();
        }
        let link = self.folder.join("..next");
        symlink(&next, &link).unwrap();
        fs::rename(link, self.folder.join("..data")).unwrap();
        certificate.der().to_vec()
    }
}

/// The certificate that a new connection is shown.
async fn shown(guard: &Guard) -> Vec<u8> {
    let authority = fs::read(guard.tls_dir().join("ca.crt")).unwrap();
    let authority = reqwest::Certificate::from_pem(&authority).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([authority]).tls_info(true).build().unwrap();
    let answer = client.get(guard.admin_url("/healthz")).send().await.unwrap();
    answer.extensions().get::<TlsInfo>().unwrap().peer_certificate().unwrap().to_vec()
}

/// Asks over one new connection after the other until `ends`; how often.
async fn call(guard: Arc<Guard>, ends: Arc<AtomicBool>) -> usize {
    let (old, new) = (charts::MANIFEST, charts::MANIFEST.replace("image: a", "image: b"));
    let as_json = |text: &str| serde_saphyr::from_str::<serde_json::Value>(text).unwrap().to_string();
    let (old, new) = (as_json(old), as_json(&new));
    let (kind, resource, namespace, name) = ("ConfigMap", "configmaps", "shop", "settings");
    let review = Review { group: "", kind, resource, namespace, name, old: &old, new: &new }.text();
    let mut calls = 0;
    while !ends.load(Ordering::Relaxed) {
        let answer = guard.judge(review.clone()).await;
        assert!(answer.code == 200 && !answer.passes(), "call {calls}: {answer:?}");
        calls += 1;
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificate_files_are_served_while_no_call_fails() {
    let mut mount = Mount::new();
    let (certificate, key) = (mount.flag("tls-cert", "tls.crt"), mount.flag("tls-key", "tls.key"));
    let guard = Arc::new(Guard::start_embedded(&["--edits=Deny", &certificate, &key]).await);
    let ends = Arc::new(AtomicBool::new(false));
    let begin = || tokio::spawn(call(Arc::clone(&guard), Arc::clone(&ends)));
    let callers: Vec<_> = iter::repeat_with(begin).take(CALLERS).collect();
    for _ in 0..2 {
        let renewed = mount.renew();
        let is_shown = || async { shown(&guard).await == renewed };
        eventually("the renewed certificate is served", SOON, is_shown).await;
    }
    ends.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.expect("no call fails") > 2);
    }
}
