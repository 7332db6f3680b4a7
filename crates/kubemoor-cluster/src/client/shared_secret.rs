//! Secrets in the guard's own namespace that its replicas share. No content reaches an error. A write only replaces the
//! version that was read.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::core::Request as Requests;
use kube::core::params::{GetParams, PostParams};
use serde_json::{Value, json};

use crate::client::call::{self, ClusterError, PATIENCE};
use crate::client::resource::{ApiResource, segment};

const CAP: usize = 2 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// The guard's own namespace.
    pub namespace: String,
    pub name: String,
}

pub struct FoundSecret(Value);

impl FoundSecret {
    /// Whether it has any data: a chart creates it empty.
    pub fn has_content(&self) -> bool {
        self.0.get("data").and_then(Value::as_object).is_some_and(|data| !data.is_empty())
    }

    /// Its data, without values that are not UTF-8 text.
    pub fn data(&self) -> BTreeMap<String, String> {
        let text = |encoded: &Value| String::from_utf8(STANDARD.decode(encoded.as_str()?).ok()?).ok();
        let data = self.0.get("data").and_then(Value::as_object).into_iter().flatten();
        data.filter_map(|(key, encoded)| Some((key.clone(), text(encoded)?))).collect()
    }
}

impl SharedSecret {
    pub async fn read(&self, client: &kube::Client) -> Result<Option<FoundSecret>, ClusterError> {
        let read = async {
            let request = self.requests()?.get(&segment(&self.name)?, &GetParams::default())?;
            let answer = call::send(client, request, CAP, PATIENCE).await?;
            call::decode(&answer)
        };
        let read = call::found(read.await).map_err(|error| error.during(self.cannot_be("read", "get")))?;
        Ok(read.map(FoundSecret))
    }

    /// Replaces the data of the Secret `over`, or creates the Secret if that is `None`. Returns `false` if another
    /// writer was faster.
    pub async fn write(
        &self,
        client: &kube::Client,
        data: BTreeMap<String, String>,
        over: Option<FoundSecret>,
    ) -> Result<bool, ClusterError> {
        let is_new = over.is_none();
        let written = async { call::send(client, self.request(data, over)?, CAP, PATIENCE).await };
        match written.await {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() => Ok(false),
            // The Secret was deleted. A create gets 404 only if the namespace does not exist.
            Err(ClusterError::Refused { code: 404, .. }) if !is_new => Ok(false),
            // A refusal comes after the Secret was read.
            Err(error) => Err(error.without_values().during(self.cannot_be("written", "create and update"))),
        }
    }

    fn cannot_be(&self, done: &str, verbs: &str) -> String {
        let Self { namespace, name } = self;
        format!(
            "the Secret {name} in namespace {namespace} cannot be {done}; the account needs {verbs} on it"
        )
    }

    fn requests(&self) -> Result<Requests, ClusterError> {
        ApiResource::new("", "v1", "Secret", "secrets").requests(Some(&self.namespace))
    }

    fn request(
        &self,
        data: BTreeMap<String, String>,
        over: Option<FoundSecret>,
    ) -> Result<Request<Vec<u8>>, ClusterError> {
        let data: Value = data.into_iter().map(|(key, text)| (key, STANDARD.encode(text))).collect();
        let (requests, parameters) = (self.requests()?, PostParams::default());
        let request = match over {
            Some(FoundSecret(mut live)) => {
                if let Some(fields) = live.as_object_mut() {
                    fields.insert("data".to_owned(), data);
                }
                requests.replace(&segment(&self.name)?, &parameters, call::encode(&live)?)
            }
            None => {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
                    "metadata": {"name": self.name, "labels": {"app.kubernetes.io/name": "kubemoor"}},
                });
                requests.create(&parameters, call::encode(&secret)?)
            }
        };
        Ok(request?)
    }
}

#[cfg(test)]
mod tests;
