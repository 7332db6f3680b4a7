//! The events about one object, for readers.
//!
//! Entry point: [`about`]. Invariant: reads only, and no more than one page.

use jiff::Timestamp;
use kube::core::Request as Requests;
use kube::core::params::ListParams;
use serde::Deserialize;

use super::call::{self, CallError, PATIENCE};
use super::resource::{Meta, Resource};

/// The most events that are read.
const MOST: u32 = 200;

/// One event, in what both of the API's forms share.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    metadata: Meta,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub r#type: String,
    #[serde(default)]
    pub count: Option<u32>,
    #[serde(default)]
    last_timestamp: Option<Timestamp>,
    #[serde(default)]
    event_time: Option<Timestamp>,
    #[serde(default)]
    series: Option<Series>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    #[serde(default)]
    last_observed_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct List {
    items: Option<Vec<Told>>,
}

impl Told {
    /// When it happened last.
    pub fn time(&self) -> Option<Timestamp> {
        let series = self.series.as_ref().and_then(|series| series.last_observed_time);
        series.or(self.last_timestamp).or(self.event_time).or(self.metadata.creation_timestamp)
    }
}

/// The events in `namespace` about the object of this kind and name.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn about(
    client: &kube::Client,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Vec<Told>, CallError> {
    let path = Resource::new("", "v1", "Event", "events").path(Some(namespace))?;
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let parameters = ListParams::default().fields(&fields).limit(MOST);
    let request = Requests::new(path).list(&parameters)?;
    let list: List = call::fetch(client, request, PATIENCE).await?;
    Ok(list.items.unwrap_or_default())
}
