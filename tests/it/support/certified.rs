//! Users whom the API server knows by client certificates, without any token.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, date_time_ymd,
};
use serde_json::json;

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::kubeconfigs::changed;

/// Who signs the certificates of users.
pub(crate) struct UserCa {
    certificate: String,
    key: String,
}

/// A certificate with its key, as a kubeconfig holds them.
pub(crate) struct UserCertificate {
    certificate: String,
    key: String,
}

impl UserCa {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Writes it for an API server whose files are in `dir`.
    pub(super) fn write(&self, dir: &Path) {
        fs::write(certificate(dir), &self.certificate).unwrap();
        fs::write(key(dir), &self.key).unwrap();
    }

    pub(super) fn read(dir: &Path) -> Self {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        Self { certificate: read(certificate(dir)), key: read(key(dir)) }
    }

    /// A certificate of `user`, who is in one group.
    pub(crate) fn sign(&self, user: &str, group: &str) -> UserCertificate {
        self.sign_until(user, group, 2999)
    }

    /// The same, which ends with the beginning of this year.
    pub(crate) fn sign_until(&self, user: &str, group: &str, year: i32) -> UserCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let issuer =
            Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key).unwrap()).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        UserCertificate { certificate, key: key.serialize_pem() }
    }
}

impl UserCertificate {
    /// A kubeconfig with this certificate, and with a token besides where one is given.
    pub(crate) fn kubeconfig(&self, control_plane: &ControlPlane, token: Option<&str>) -> PathBuf {
        let mut user = json!({
            "client-certificate-data": STANDARD.encode(&self.certificate),
            "client-key-data": STANDARD.encode(&self.key),
        });
        if let Some(token) = token {
            user["token"] = json!(token);
        }
        changed(&control_plane.kubeconfig(Identity::Admin), |config| config["users"][0]["user"] = user)
    }
}

/// The file of the authority's certificate.
pub(super) fn certificate(dir: &Path) -> PathBuf {
    dir.join("users.crt")
}

fn key(dir: &Path) -> PathBuf {
    dir.join("users.key")
}
