//! The configuration of a client: the API server and the credentials.
//!
//! Entry points: [`configuration`], [`certificates`]. Invariant: named credentials are used, or there is an error. No
//! error quotes a credential.

use std::error::Error;
use std::path::Path;

use kube::Config;
use kube::config::{
    AuthInfo, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::SecretString;

use super::super::call::causes_of;
use super::{Access, ApiServer, ConnectError};

/// The certificates in a file of PEM.
pub(in crate::client) fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, ConnectError> {
    let failed = |reason| ConnectError::Authority { path: path.to_owned(), reason };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = certificates.map(|it| it.map(|it| it.to_vec())).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(failed("there is none in it".to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

pub(super) async fn configuration(access: &Access) -> Result<Config, ConnectError> {
    let Access { kubeconfig, context, cluster, account, token, timeout, user, groups, server } = access;
    if let Some(server) = server {
        return by_token(server, token.as_ref());
    }
    let options =
        KubeConfigOptions { context: context.clone(), cluster: cluster.clone(), user: account.clone() };
    let named = [("context", context), ("cluster", cluster), ("user", account)];
    let named = named.map(|(what, name)| name.as_ref().map(|name| format!("the {what} {name:?}")));
    let named: Vec<_> = named.into_iter().flatten().collect();
    let mut config = match kubeconfig {
        Some(path) => from_file(path, &options).await?,
        // A pod's service account has no contexts.
        None if !named.is_empty() => {
            let failed = |reason| ConnectError::Choice { choice: named.join(" with "), reason };
            let kubeconfig = Kubeconfig::read().map_err(|error| failed(reason(&error)))?;
            check_account(&kubeconfig, &options).map_err(failed)?;
            let loaded = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            loaded.map_err(|error| failed(reason(&error)))?
        }
        None => Config::infer().await.map_err(|error| ConnectError::Nowhere { reason: inferred(&error) })?,
    };
    if let Some(token) = token {
        // A certificate would take precedence over the token.
        config.auth_info = AuthInfo { token: Some(token.clone()), ..AuthInfo::default() };
    }
    if timeout.is_some() {
        config.connect_timeout = *timeout;
        config.read_timeout = *timeout;
        config.write_timeout = *timeout;
    }
    if user.is_some() {
        config.auth_info.impersonate.clone_from(user);
        config.auth_info.impersonate_groups = (!groups.is_empty()).then(|| groups.clone());
    }
    Ok(config)
}

/// A token's own configuration: neither a kubeconfig nor the pod's account is looked at.
fn by_token(server: &ApiServer, token: Option<&SecretString>) -> Result<Config, ConnectError> {
    let ApiServer { url, authority } = server;
    let Some(token) = token else {
        return Err(ConnectError::Nowhere { reason: "there is no token for the API server".to_owned() });
    };
    let mut config = Config::new(url.clone());
    config.root_cert = Some(certificates(authority)?);
    config.auth_info = AuthInfo { token: Some(token.clone()), ..AuthInfo::default() };
    Ok(config)
}

async fn from_file(path: &Path, options: &KubeConfigOptions) -> Result<Config, ConnectError> {
    let failed = |reason| ConnectError::Kubeconfig { path: path.to_owned(), reason };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        // The sentence names the file already.
        KubeconfigError::ReadConfig(error, _) => failed(error.to_string()),
        error => failed(reason(&error)),
    })?;
    check_account(&kubeconfig, options).map_err(failed)?;
    let loaded = Config::from_custom_kubeconfig(kubeconfig, options).await;
    loaded.map_err(|error| failed(reason(&error)))
}

/// Without this check a missing user would become anonymous, and the API server may answer anonymous
/// requests.
fn check_account(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Result<(), String> {
    match &options.user {
        Some(user) if !kubeconfig.auth_infos.iter().any(|it| it.name == *user) => {
            Err(format!("there is no user {user:?} in it"))
        }
        _ => Ok(()),
    }
}

/// The error of a kubeconfig, without the lines that the parser quotes: they may hold credentials. kube puts the path of
/// a file into two pairs of quotes.
fn reason(error: &KubeconfigError) -> String {
    let file = |error: &LoadDataError| match error {
        LoadDataError::ReadFile(error, path) => format!("{} cannot be read: {error}", path.display()),
        error => first_line(error),
    };
    match error {
        KubeconfigError::ReadConfig(error, path) => format!("{} cannot be read: {error}", path.display()),
        KubeconfigError::LoadCertificateAuthority(error) => format!("certificate authority: {}", file(error)),
        KubeconfigError::LoadClientCertificate(error) => format!("client certificate: {}", file(error)),
        KubeconfigError::LoadClientKey(error) => format!("client key: {}", file(error)),
        error => first_line(error),
    }
}

/// Why neither a kubeconfig nor a pod's service account was found.
fn inferred(error: &InferConfigError) -> String {
    let kubeconfig = error.source().and_then(|error| error.downcast_ref::<KubeconfigError>());
    kubeconfig.map_or_else(|| first_line(error), reason)
}

fn first_line(error: &dyn Error) -> String {
    causes_of(error).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
