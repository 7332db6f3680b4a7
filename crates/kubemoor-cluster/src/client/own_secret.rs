//! Secrets in the guard's own namespace that its replicas share.
//!
//! Entry points: [`read`], [`write()`]. Invariant: no content reaches an error; a write replaces what was read and
//! nothing newer.

use http::{Method, Request};
use serde_json::{Value, json};

use super::call::{self, CallError, PATIENCE};

/// The most bytes of a Secret that are read.
const CAP: usize = 2 << 20;

/// The Secret, if there is one.
pub(super) async fn read(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, CallError> {
    let read = async {
        let answer = call::send(client, call::get(&path(namespace, name))?, CAP, PATIENCE).await?;
        call::decode(&answer)
    };
    match read.await {
        Ok(live) => Ok(Some(live)),
        Err(error) if error.proves_absence() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the data of `over` with `data`, whose values are in base64; without `over` it creates a Secret.
/// Returns `false` if another writer was faster.
pub(super) async fn write(
    client: &kube::Client,
    (namespace, name): (&str, &str),
    data: Value,
    over: Option<Value>,
) -> Result<bool, CallError> {
    let is_new = over.is_none();
    let written = async { call::send(client, request(namespace, name, data, over)?, CAP, PATIENCE).await };
    match written.await {
        Ok(_) => Ok(true),
        Err(CallError::Refused { code: 409, .. }) => Ok(false),
        // The Secret was deleted. A create gets 404 only if the namespace does not exist.
        Err(CallError::Refused { code: 404, .. }) if !is_new => Ok(false),
        // A refusal comes after the Secret was read.
        Err(error) => Err(error.without_values()),
    }
}

/// Whether the Secret has any content: a chart creates it empty.
pub(super) fn has_content(live: &Value) -> bool {
    live.get("data").and_then(Value::as_object).is_some_and(|data| !data.is_empty())
}

fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

fn request(
    namespace: &str,
    name: &str,
    data: Value,
    over: Option<Value>,
) -> Result<Request<Vec<u8>>, CallError> {
    let (method, path, secret) = match over {
        Some(mut live) => {
            if let Some(fields) = live.as_object_mut() {
                fields.insert("data".to_owned(), data);
            }
            (Method::PUT, path(namespace, name), live)
        }
        None => {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
                "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "kubemoor"}},
            });
            (Method::POST, path(namespace, ""), secret)
        }
    };
    let request = Request::builder().method(method).uri(path.trim_end_matches('/'));
    call::carry(request, "application/json", &secret)
}
