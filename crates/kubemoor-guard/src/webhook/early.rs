//! Reviews that come before the index holds every release of the first listing.
//!
//! Entry point: [`read_needed`]. Invariant: afterwards the index holds all claims that count for the review, so that its
//! verdict is the same as later. Must not judge.

use tokio::time::{Instant, timeout_at};

use super::case::named_by;
use super::intake::Received;
use super::look::{Live, Unreached};
use super::review::{Head, Request};
use kubemoor_cluster::client::call::CallError;
use kubemoor_cluster::client::objects::Target;
use kubemoor_cluster::client::resource::Resource;
use kubemoor_cluster::mirror::releases::Needed;
use kubemoor_declare::model::{Operation, ReleaseId};
use kubemoor_verdict::dependants;

/// A review, and the time until which it can wait.
struct Waiting<'a> {
    live: &'a Live,
    head: &'a Head<'a>,
    body: &'a Received,
    deadline: Instant,
}

/// Reads the releases that may have a say in the review `body`, whose front is `head`, if they are not in the index yet.
///
/// # Errors
/// They cannot be read before `deadline`.
pub(super) async fn read_needed(
    live: &Live,
    head: &Head<'_>,
    body: &Received,
    deadline: Instant,
) -> Result<(), Unreached> {
    let waiting = Waiting { live, head, body, deadline };
    // An update may have the garbage collector delete the object, and all that depends on it.
    let is_ending = match head.operation {
        Some(Operation::Delete) => head.subresource.is_none(),
        Some(Operation::Update) => true,
        _ => false,
    };
    if is_ending && dependants::taken(&head.object()).is_some() {
        return waiting.read(Needed::All).await;
    }
    if let Some(namespace) = head.namespace.as_deref() {
        waiting.read(Needed::Namespace(namespace)).await?;
    }
    waiting.read_owner().await
}

impl Waiting<'_> {
    async fn read(&self, needed: Needed<'_>) -> Result<(), Unreached> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let read = self.live.releases.read_ahead(needed, left).await;
        read.or_else(|error| Unreached::Look(Box::new(error)).unless_answered())
    }

    /// Reads the release that the object names.
    async fn read_owner(&self) -> Result<(), Unreached> {
        if self.head.subresource.as_deref() == Some("scale") {
            return match self.owner_of_scaled().await {
                Ok(Some(owner)) => self.read(Needed::Release(&owner)).await,
                Ok(None) => Ok(()),
                Err(error) => Unreached::Own(Box::new(error)).unless_answered(),
            };
        }
        // Of a review that is not whole only the claims of its namespace count.
        let Received::Whole(bytes) = self.body else { return Ok(()) };
        let Ok(request) = Request::behind(self.head.clone(), bytes) else { return Ok(()) };
        if let Some(owner) = request.old_object.as_ref().and_then(named_by) {
            return self.read(Needed::Release(&owner)).await;
        }
        if let Some(owner) = request.object.as_ref().and_then(named_by)
            // The editor chooses it, so no failure with it excuses the edit.
            && let Err(error) = self.read(Needed::Release(&owner)).await
        {
            tracing::debug!("a release that an edit names could not be read: {error}");
        }
        Ok(())
    }

    /// The release that a scaled object names; a Scale does not name it.
    async fn owner_of_scaled(&self) -> Result<Option<ReleaseId>, CallError> {
        let Head { resource, namespace, name: Some(name), .. } = self.head else { return Ok(None) };
        let target = Target {
            // Paths name no kind.
            resource: Resource::new(&resource.group, &resource.version, "", &resource.resource),
            namespace: namespace.as_deref().map(str::to_owned),
            name: name.to_string(),
        };
        let within = self.deadline.saturating_duration_since(Instant::now());
        let sighting = timeout_at(self.deadline, self.live.objects.sight(&target)).await;
        let sighting = sighting.unwrap_or(Err(CallError::Late { within }))?;
        Ok(sighting.and_then(|sighting| sighting.release))
    }
}
