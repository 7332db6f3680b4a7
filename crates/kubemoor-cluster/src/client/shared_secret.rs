//! Secrets in the guard's own namespace that its replicas share.
//!
//! No content reaches an error. A write replaces what was read and nothing newer.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use serde_json::{Value, json};
use thiserror::Error;

use super::call::{self, CallError, PATIENCE};

/// The most bytes of a Secret that are read.
const CAP: usize = 2 << 20;

/// A Secret that replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// The guard's own namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
}

/// A Secret as it was read.
pub struct FoundSecret(Value);

/// Why a Secret cannot be kept.
#[derive(Debug, Error)]
pub enum SharedSecretError {
    /// It cannot be read.
    #[error("the Secret {0} in namespace {1} cannot be read; the account needs get on it: {2}")]
    Read(String, String, #[source] CallError),
    /// It cannot be written.
    #[error(
        "the Secret {0} in namespace {1} cannot be written; the account needs create and update on it: {2}"
    )]
    Write(String, String, #[source] CallError),
}

impl FoundSecret {
    /// Whether it has any content: a chart creates it empty.
    pub fn has_content(&self) -> bool {
        self.0.get("data").and_then(Value::as_object).is_some_and(|data| !data.is_empty())
    }

    /// Its content, but for values that are no text.
    pub fn data(&self) -> BTreeMap<String, String> {
        let text = |encoded: &Value| String::from_utf8(STANDARD.decode(encoded.as_str()?).ok()?).ok();
        let data = self.0.get("data").and_then(Value::as_object).into_iter().flatten();
        data.filter_map(|(key, encoded)| Some((key.clone(), text(encoded)?))).collect()
    }
}

impl SharedSecret {
    /// What is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, client: &kube::Client) -> Result<Option<FoundSecret>, SharedSecretError> {
        let read = async {
            let answer = call::send(client, call::get(&self.path())?, CAP, PATIENCE).await?;
            call::decode(&answer)
        };
        match read.await {
            Ok(live) => Ok(Some(FoundSecret(live))),
            Err(error) if error.proves_absence() => Ok(None),
            Err(error) => Err(SharedSecretError::Read(self.name.clone(), self.namespace.clone(), error)),
        }
    }

    /// Replaces the content that was found with `data`; creates the Secret where none was found. Returns `false` if
    /// another writer was faster.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn write(
        &self,
        client: &kube::Client,
        data: BTreeMap<String, String>,
        over: Option<FoundSecret>,
    ) -> Result<bool, SharedSecretError> {
        let is_new = over.is_none();
        let written = async { call::send(client, self.request(data, over)?, CAP, PATIENCE).await };
        match written.await {
            Ok(_) => Ok(true),
            Err(CallError::Refused { code: 409, .. }) => Ok(false),
            // The Secret was deleted. A create gets 404 only if the namespace does not exist.
            Err(CallError::Refused { code: 404, .. }) if !is_new => Ok(false),
            // A refusal comes after the Secret was read.
            Err(error) => {
                let error = error.without_values();
                Err(SharedSecretError::Write(self.name.clone(), self.namespace.clone(), error))
            }
        }
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name)
    }

    fn request(
        &self,
        data: BTreeMap<String, String>,
        over: Option<FoundSecret>,
    ) -> Result<Request<Vec<u8>>, CallError> {
        let data: Value = data.into_iter().map(|(key, text)| (key, STANDARD.encode(text))).collect();
        let (method, path, secret) = match over {
            Some(FoundSecret(mut live)) => {
                if let Some(fields) = live.as_object_mut() {
                    fields.insert("data".to_owned(), data);
                }
                (Method::PUT, self.path(), live)
            }
            None => {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
                    "metadata": {"name": self.name, "labels": {"app.kubernetes.io/name": "kubemoor"}},
                });
                (Method::POST, format!("/api/v1/namespaces/{}/secrets", self.namespace), secret)
            }
        };
        call::carry(Request::builder().method(method).uri(path), "application/json", &secret)
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;

    use super::*;

    fn client(status: u16, body: Value) -> kube::Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            std::future::ready(answer)
        });
        kube::Client::new(service, "default")
    }

    fn secret() -> SharedSecret {
        SharedSecret { namespace: "kubemoor-system".to_owned(), name: "shared".to_owned() }
    }

    #[tokio::test]
    async fn content_is_decoded_and_what_is_no_text_left_out() {
        let data = json!({"a": STANDARD.encode("text"), "b": "%", "c": 1, "d": STANDARD.encode([0xff])});
        let found = secret().read(&client(200, json!({"data": data}))).await.unwrap().unwrap();
        assert!(found.has_content());
        assert_eq!(found.data(), [("a".to_owned(), "text".to_owned())].into());
        for data in [json!(null), json!({})] {
            let found = secret().read(&client(200, json!({"data": data}))).await.unwrap().unwrap();
            assert!(!found.has_content() && found.data().is_empty(), "{data}");
        }
    }

    #[tokio::test]
    async fn a_refusal_that_quotes_the_secret_is_not_passed_on() {
        let data = || BTreeMap::from([("key".to_owned(), "hunter2".to_owned())]);
        let refusal =
            |code: u16| json!({"kind": "Status", "status": "Failure", "message": "hunter2", "code": code});
        let error = secret().write(&client(403, refusal(403)), data(), None).await.unwrap_err();
        assert!(error.to_string().contains("needs create and update"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        assert!(!secret().write(&client(409, refusal(409)), data(), None).await.unwrap());
        // Without its namespace it cannot be made; what was there may have gone meanwhile.
        assert!(secret().write(&client(404, refusal(404)), data(), None).await.is_err());
        let found = Some(FoundSecret(json!({})));
        assert!(!secret().write(&client(404, refusal(404)), data(), found).await.unwrap());
    }
}
