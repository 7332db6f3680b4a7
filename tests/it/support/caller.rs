//! Requests to the API server as they are, and its answers with their status codes.

use std::path::Path;

use http::Request;
use http::header::CONTENT_TYPE;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::control_plane::{ControlPlane, client};
use super::identity::Identity;

/// A user with nothing between him and the API server. Paths begin with `/` and may hold a query.
pub(crate) struct Caller {
    client: Client,
}

/// What the API server says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Caller {
    pub(crate) async fn new(control_plane: &ControlPlane, identity: Identity) -> Self {
        Self { client: control_plane.client(identity).await }
    }

    /// The user of a kubeconfig.
    pub(crate) async fn with(kubeconfig: &Path) -> Self {
        Self { client: client(kubeconfig).await }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", None).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send("POST", path, "application/json", Some(object)).await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send("PUT", path, "application/json", Some(object)).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.send("PATCH", path, "application/merge-patch+json", Some(patch)).await
    }

    /// Sends a JSON patch of one operation; without a value it removes.
    pub(crate) async fn patch(&self, path: &str, operation: &str, pointer: &str, value: &Value) -> Answer {
        let patch = json!([{"op": operation, "path": pointer, "value": value}]);
        self.send("PATCH", path, "application/json-patch+json", Some(&patch)).await
    }

    /// Sends a whole JSON patch.
    pub(crate) async fn patch_all(&self, path: &str, patch: &Value) -> Answer {
        self.send("PATCH", path, "application/json-patch+json", Some(patch)).await
    }

    /// Applies server-side; the path's query names the field manager.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Answer {
        self.send("PATCH", path, "application/apply-patch+yaml", Some(object)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "application/json", Some(&json!({"propagationPolicy": "Background"}))).await
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send_bytes(method, path, content_type, body.into_bytes()).await
    }

    /// Sends a body of any type; the answer is in JSON.
    pub(crate) async fn send_bytes(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Answer {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
        let answer = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default() }
    }
}

impl Answer {
    /// Whether the guard refused it because of this release; else what was said instead.
    pub(crate) fn refused(&self, release: &str) -> Result<(), String> {
        let message = self.body["message"].as_str().unwrap_or_default();
        let guards =
            message.contains("denied the request") && message.contains(&format!("Helm release {release:?}"));
        if self.code == 403 && guards { Ok(()) } else { Err(self.to_string()) }
    }

    /// The message of a refusal by the guard; an error for any other outcome.
    pub(crate) fn refusal(self) -> Result<String, String> {
        let message = self.body["message"].as_str().unwrap_or_default();
        if message.contains("denied the request") { Ok(message.to_owned()) } else { Err(self.to_string()) }
    }

    /// Whether it was done; else why not.
    pub(crate) fn done(self) -> Result<Value, String> {
        if (200..300).contains(&self.code) { Ok(self.body) } else { Err(self.to_string()) }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.body["message"].as_str().unwrap_or("(an object)"))
    }
}

/// The message of a refusal by the guard, as [`Answer::refusal`], for the typed client's answer.
pub(crate) fn refusal<T>(outcome: kube::Result<T>) -> Result<String, String> {
    match outcome {
        Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(status.message),
        Err(error) => Err(format!("another error: {error}")),
        Ok(_) => Err("it passes".to_owned()),
    }
}
