//! Errors of kubeconfigs, as they are read by people.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use super::*;

const ABSENT: &str = "No such file or directory (os error 2)";

#[test]
fn error_names_a_file_once_and_without_doubled_quotes() {
    let absent = || Error::new(ErrorKind::NotFound, "it does not exist");
    let path = || PathBuf::from("/nowhere/file");
    let file = || LoadDataError::ReadFile(absent(), path());
    for (error, expected) in [
        (KubeconfigError::ReadConfig(absent(), path()), "/nowhere/file cannot be read: it does not exist"),
        (
            KubeconfigError::LoadCertificateAuthority(file()),
            "certificate authority: /nowhere/file cannot be read: it does not exist",
        ),
        (
            KubeconfigError::LoadClientCertificate(file()),
            "client certificate: /nowhere/file cannot be read: it does not exist",
        ),
        (
            KubeconfigError::LoadClientKey(file()),
            "client key: /nowhere/file cannot be read: it does not exist",
        ),
        (
            KubeconfigError::LoadClientKey(LoadDataError::NoBase64DataOrFile),
            "client key: no base64 data or file",
        ),
        (KubeconfigError::CurrentContextNotSet, "failed to determine current context"),
    ] {
        assert_eq!(reason(&error), expected);
    }
}

#[tokio::test]
async fn sentence_about_a_named_kubeconfig_names_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let said = async |path: PathBuf| {
        let access = Access { kubeconfig: Some(path), ..Access::default() };
        configuration(&access).await.unwrap_err().to_string()
    };
    let absent = format!("the kubeconfig {} cannot be used: {ABSENT}", file.display());
    assert_eq!(said(file.clone()).await, absent);
    let authority = folder.path().join("ca.crt");
    let text = serde_json::json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": authority}}],
        "users": [{"name": "a", "user": {}}],
    });
    fs::write(&file, text.to_string()).unwrap();
    let without = format!(
        "the kubeconfig {} cannot be used: certificate authority: {} cannot be read: {ABSENT}",
        file.display(),
        authority.display()
    );
    assert_eq!(said(file).await, without);
}
