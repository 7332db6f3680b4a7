//! Lists in pages, so that no response grows with the number of objects. A page that cannot be read is an error, never
//! the end of the list.

use std::marker::PhantomData;
use std::time::Duration;

use kube::core::Request as Requests;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::call::{self, BODY_CAP, ClusterError, PATIENCE};
use crate::client::resource::{ApiResource, Partial};

/// Objects on the first page of a list of metadata, or of small objects.
pub(crate) const PAGE: u32 = 250;

/// The preferred maximum size of a page. For each page etcd counts all remaining objects, so many small pages cost it
/// more than the objects do.
const ENOUGH: usize = 512 << 10;

/// The maximum size of a page with several objects: large ones may follow small ones.
const CAP: usize = 4 << 20;

/// The maximum number of objects per page, as in kubectl.
const MOST: u32 = 500;

#[derive(Deserialize)]
pub struct ListPage<W> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    /// `None` when there are none: some servers write null.
    items: Option<Vec<W>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    r#continue: Option<String>,
}

pub struct Pages<'c, W> {
    client: &'c kube::Client,
    requests: Requests,
    parameters: ListParams,
    size: PageSize,
    metadata: bool,
    within: Duration,
    is_over: bool,
    page: PhantomData<fn() -> ListPage<W>>,
}

/// The number of objects to request on the next page, by the sizes of earlier pages.
#[derive(Clone, Copy, Debug)]
struct PageSize(u32);

impl<'c> Pages<'c, Partial> {
    /// The metadata of the objects of `resource` in `namespace` (`None`: in all).
    pub fn metadata(
        client: &'c kube::Client,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> Result<Self, ClusterError> {
        Ok(Self::objects(client, resource, namespace)?.metadata_alone(true))
    }
}

impl<'c, W: DeserializeOwned> Pages<'c, W> {
    /// The objects of `resource` in `namespace` (`None`: in all).
    pub fn objects(
        client: &'c kube::Client,
        resource: &ApiResource,
        namespace: Option<&str>,
    ) -> Result<Self, ClusterError> {
        Ok(Self::at(client, resource.path(namespace)?))
    }

    pub(super) fn at(client: &'c kube::Client, path: String) -> Self {
        Self {
            client,
            requests: Requests::new(path),
            parameters: ListParams::default(),
            size: PageSize(PAGE),
            metadata: false,
            within: PATIENCE,
            is_over: false,
            page: PhantomData,
        }
    }

    /// Limits the list by a label selector and a field selector.
    pub(crate) fn selected(self, labels: Option<&str>, fields: Option<&str>) -> Self {
        let (label_selector, field_selector) = (labels.map(str::to_owned), fields.map(str::to_owned));
        Self { parameters: ListParams { label_selector, field_selector, ..self.parameters }, ..self }
    }

    pub(super) fn metadata_alone(self, metadata: bool) -> Self {
        Self { metadata, ..self }
    }

    /// Begins with a page of `count` objects.
    pub fn starting_with(self, count: u32) -> Self {
        Self { size: PageSize(count), ..self }
    }

    /// Sets the time limit of each page.
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// The next page; `None` after the last. A page that is too large is requested again with fewer objects.
    pub async fn next(&mut self) -> Result<Option<ListPage<W>>, ClusterError> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            self.parameters.limit = Some(self.size.0);
            let request = if self.metadata {
                self.requests.list_metadata(&self.parameters)?
            } else {
                self.requests.list(&self.parameters)?
            };
            match call::send(self.client, request, self.size.cap(), self.within).await {
                Err(ClusterError::TooLarge { .. }) if self.size.halve() => {}
                Err(error) => return Err(error),
                Ok(body) => {
                    let page: ListPage<W> = call::decode(&body)?;
                    self.parameters.continue_token =
                        page.metadata.r#continue.clone().filter(|token| !token.is_empty());
                    self.is_over = self.parameters.continue_token.is_none();
                    if !self.is_over {
                        self.size.adapt(body.len());
                    }
                    return Ok(Some(page));
                }
            }
        }
    }

    /// The objects of all remaining pages.
    pub async fn all(mut self) -> Result<Vec<W>, ClusterError> {
        let mut found = Vec::new();
        while let Some(page) = self.next().await? {
            found.extend(page.into_items());
        }
        Ok(found)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<W> ListPage<W> {
    pub(crate) fn into_items(self) -> Vec<W> {
        self.items.unwrap_or_default()
    }
}

impl PageSize {
    /// The maximum size of the response. A single object may be as large as any other response.
    fn cap(self) -> usize {
        if self.0 > 1 { CAP } else { BODY_CAP }
    }

    /// Adapts to the size of a page that was not the last.
    fn adapt(&mut self, bytes: usize) {
        if bytes > ENOUGH {
            self.halve();
        } else if bytes <= ENOUGH / 2 {
            self.0 = self.0.saturating_mul(2).min(MOST.max(self.0));
        }
    }

    /// Halves the number of objects. Returns whether that is fewer.
    fn halve(&mut self) -> bool {
        let before = self.0;
        self.0 = (before / 2).max(1);
        self.0 < before
    }
}

#[cfg(test)]
mod tests;
