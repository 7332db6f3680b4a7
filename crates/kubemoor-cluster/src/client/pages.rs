//! Lists in pages, so that no answer grows with the number of objects.
//!
//! Entry points: [`Pages::next`] for one page after the other, [`Pages::all`] for all objects. Invariant: at
//! most one page is held here. A page that cannot be read is an error, never the end of the list. Must not
//! know what is listed.

mod size;

use std::marker::PhantomData;
use std::time::Duration;

use http::Request;
use kube::core::Request as Requests;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use self::size::PageSize;
use super::call::{self, CallError, PATIENCE};
use super::resource::{Partial, Resource};

/// Objects on the first page of a list of metadata, or of small objects.
pub(crate) const PAGE: u32 = 250;

/// One page of a list of objects.
#[derive(Deserialize)]
pub struct Page<W> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    /// `None` when there are none: some servers write null.
    items: Option<Vec<W>>,
    /// Of the answer.
    #[serde(skip)]
    bytes: usize,
}

/// What a page says of itself.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    r#continue: Option<String>,
}

/// The pages of one list.
pub struct Pages<'c, W> {
    client: &'c kube::Client,
    requests: Requests,
    parameters: ListParams,
    size: PageSize,
    /// Whether metadata alone is asked for.
    metadata: bool,
    within: Duration,
    is_over: bool,
    page: PhantomData<fn() -> Page<W>>,
}

impl<'c> Pages<'c, Partial> {
    /// The metadata of the objects of `resource` in `namespace` (`None`: in all).
    ///
    /// # Errors
    /// When there can be no such path.
    pub fn metadata(
        client: &'c kube::Client,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Result<Self, CallError> {
        Ok(Self { metadata: true, ..Self::objects(client, resource, namespace)? })
    }
}

impl<'c, W: DeserializeOwned> Pages<'c, W> {
    /// The objects of `resource` in `namespace` (`None`: in all).
    ///
    /// # Errors
    /// When there can be no such path.
    pub fn objects(
        client: &'c kube::Client,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Result<Self, CallError> {
        Ok(Self {
            client,
            requests: Requests::new(resource.path(namespace)?),
            parameters: ListParams::default(),
            size: PageSize::of(PAGE),
            metadata: false,
            within: PATIENCE,
            is_over: false,
            page: PhantomData,
        })
    }

    /// Of these only what matches the label selector `selector`.
    pub(crate) fn labelled(self, selector: &str) -> Self {
        Self { parameters: self.parameters.labels(selector), ..self }
    }

    /// Begins with a page of `count` objects.
    pub fn of(self, count: u32) -> Self {
        Self { size: PageSize::of(count), ..self }
    }

    /// Each page within this time.
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// The next page; none after the last. One that is too large is asked for again with fewer objects.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn next(&mut self) -> Result<Option<Page<W>>, CallError> {
        if self.is_over {
            return Ok(None);
        }
        let page: Page<W> = loop {
            self.parameters.limit = Some(self.size.objects());
            let request = if self.metadata {
                self.requests.list_metadata(&self.parameters)?
            } else {
                self.requests.list(&self.parameters)?
            };
            match Page::fetch(self.client, request, self.size.cap(), self.within).await {
                Err(CallError::TooLarge { .. }) if self.size.halve() => {}
                page => break page?,
            }
        };
        self.parameters.continue_token = page.next();
        self.is_over = self.parameters.continue_token.is_none();
        page.adapt(&mut self.size);
        Ok(Some(page))
    }

    /// The objects of all pages that are left.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub async fn all(mut self) -> Result<Vec<W>, CallError> {
        let mut found = Vec::new();
        while let Some(page) = self.next().await? {
            found.extend(page.into_items());
        }
        Ok(found)
    }

    /// Whether the last page was read.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<W: DeserializeOwned> Page<W> {
    /// The answer to `request`, of at most `cap` bytes.
    ///
    /// # Errors
    /// When the API server gives no usable answer.
    pub(crate) async fn fetch(
        client: &kube::Client,
        request: Request<Vec<u8>>,
        cap: usize,
        within: Duration,
    ) -> Result<Self, CallError> {
        let body = call::send(client, request, cap, within).await?;
        Ok(Self { bytes: body.len(), ..call::decode(&body)? })
    }
}

impl<W> Page<W> {
    /// The token of the next page; `None` on the last.
    pub(crate) fn next(&self) -> Option<String> {
        self.metadata.r#continue.clone().filter(|token| !token.is_empty())
    }

    /// Adapts the size of the pages that follow, if any.
    pub(crate) fn adapt(&self, size: &mut PageSize) {
        if self.next().is_some() {
            size.adapt(self.bytes);
        }
    }

    /// The objects.
    pub(crate) fn into_items(self) -> Vec<W> {
        self.items.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
