//! Reviews posted to a guard directly, past the API server and its limits.

use std::fs;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Certificate, Identity};
use serde_json::{Value, json};

use super::control_plane::install_crypto_provider;
use super::guard::Guard;
use super::settings::ClientCertificate;
use super::wait::budget;

/// The name of a guard behind `--service=kubemoor-system/kubemoor`.
const SERVICE: &str = "kubemoor.kubemoor-system.svc";

/// An update of one object by a person, both sides as JSON text: what no parser holds must be sent as well.
pub(crate) struct Review<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) old: &'a str,
    pub(crate) new: &'a str,
}

/// What a guard answered.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The HTTP status code.
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl<'a> Review<'a> {
    /// An update of the ConfigMap `settings`.
    pub(crate) fn of_settings(namespace: &'a str, old: &'a str, new: &'a str) -> Self {
        let (group, kind, resource, name) = ("", "ConfigMap", "configmaps", "settings");
        Self { group, kind, resource, namespace, name, old, new }
    }

    /// The review with its fields in the order in which the API server writes them: objects last.
    pub(crate) fn text(&self) -> String {
        let Self { group, kind, resource, namespace, name, old, new } = self;
        let spelled = format!(r#"{{"group":"{group}","version":"v1","kind":"{kind}"}}"#);
        let served = format!(r#"{{"group":"{group}","version":"v1","resource":"{resource}"}}"#);
        format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"posted","kind":{spelled},"resource":{served},"requestKind":{spelled},"requestResource":{served},"name":"{name}","namespace":"{namespace}","operation":"UPDATE","userInfo":{{"username":"alice","groups":["people"]}},"object":{new},"oldObject":{old},"dryRun":false,"options":{{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
        )
    }
}

/// An update of a ConfigMap of a release, by its namespace and name, from data to other data.
pub(crate) fn data_review(release: (&str, &str), name: &str, old: &Value, new: &Value) -> String {
    let (namespace, release) = release;
    let [old, new] = [old, new].map(|data| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {
                "name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace},
            },
        })
        .to_string()
    });
    Review { name, ..Review::of_settings(namespace, &old, &new) }.text()
}

impl Reply {
    /// Whether the request passes.
    ///
    /// # Panics
    /// When this is no verdict.
    pub(crate) fn passes(&self) -> bool {
        assert_eq!(self.code, 200, "no verdict: {self:?}");
        assert_eq!(self.body["response"]["uid"], "posted", "{self:?}");
        self.body["response"]["allowed"].as_bool().unwrap_or_else(|| panic!("no verdict: {self:?}"))
    }

    /// Why the request is refused.
    ///
    /// # Panics
    /// When it passes.
    pub(crate) fn refusal(&self) -> &str {
        assert!(!self.passes(), "it passes: {self:?}");
        self.body["response"]["status"]["message"].as_str().unwrap()
    }
}

impl Guard {
    /// Posts a body as the API server does.
    pub(crate) async fn judge(&self, body: impl Into<reqwest::Body>) -> Reply {
        self.judge_at(self.review_url(), body).await
    }

    /// The same at a guard behind the Service [`SERVICE`].
    pub(crate) async fn judge_behind(&self, body: impl Into<reqwest::Body>) -> Reply {
        self.judge_at(self.review_url().replace("127.0.0.1", SERVICE), body).await
    }

    async fn judge_at(&self, url: String, body: impl Into<reqwest::Body>) -> Reply {
        let request = self.https().post(url);
        reply(request.header(CONTENT_TYPE, "application/json").body(body)).await
    }

    /// A client that trusts this guard's own certificate authority and nothing else.
    pub(crate) fn https(&self) -> reqwest::Client {
        self.https_showing(None)
    }

    /// The same, with a certificate of its own.
    pub(crate) fn https_showing(&self, certificate: Option<&ClientCertificate>) -> reqwest::Client {
        install_crypto_provider();
        let authority = fs::read(self.tls_dir().join("ca.crt")).unwrap();
        let authority = Certificate::from_pem(&authority).unwrap();
        let builder = reqwest::Client::builder().tls_certs_only([authority]);
        let builder = builder.resolve(SERVICE, ([127, 0, 0, 1], 0).into());
        let shown = certificate.map(|certificate| Identity::from_pem(certificate.pem().as_bytes()).unwrap());
        let builder = shown.into_iter().fold(builder, reqwest::ClientBuilder::identity);
        builder.timeout(budget()).build().unwrap()
    }
}

/// Sends a request and reads its JSON answer.
pub(crate) async fn reply(request: reqwest::RequestBuilder) -> Reply {
    let answer = request.send().await.unwrap_or_else(|error| panic!("no answer: {error:?}"));
    let code = answer.status().as_u16();
    let body = answer.json().await.unwrap_or_else(|error| panic!("HTTP {code} without JSON: {error:?}"));
    Reply { code, body }
}
