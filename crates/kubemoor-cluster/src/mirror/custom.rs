//! A watch of one of Kubemoor's own kinds, whose CustomResourceDefinition may be absent.
//!
//! Entry point: [`events`]. Without the definition there are no objects, and no requests until a definition of that name
//! appears. An API server that does not know the kind yet, as for a moment after its start, does not prove absence: only
//! a missing definition does.

use std::time::Duration;

use async_stream::stream;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::kinds::Kinds;
use crate::client::definition::is_defined;
use crate::client::resource::{GROUP, Resource, VERSION};
use crate::client::watch::{Event, Watch};

/// The time after which a missed definition is found: without the right to watch definitions none is
/// reported.
const RECHECK: Duration = Duration::from_secs(600);

/// The objects of the kind `kind`, called `plural` in paths, in `namespace` (`None`: in all) as they come, change and go.
/// An absent definition is reported as an empty listing.
pub(super) fn events(
    client: kube::Client,
    kinds: &Kinds,
    (kind, plural): (&str, &str),
    namespace: Option<&str>,
) -> BoxStream<'static, Event<Value>> {
    let resource = Resource::new(GROUP, VERSION, kind, plural);
    let (definitions, definition) = (kinds.definitions(), format!("{plural}.{GROUP}"));
    let namespace = namespace.map(str::to_owned);
    let events = stream! {
        loop {
            let mut watch = Watch::<Value>::new(client.clone(), &resource, namespace.as_deref(), None);
            loop {
                let event = match watch.next().await {
                    Event::Broken(error) if error.is_not_found() => {
                        match is_defined(&client, &resource.plural).await {
                            Ok(true) => Event::Broken(error),
                            Ok(false) => break,
                            Err(unread) => Event::Broken(unread),
                        }
                    }
                    event => event,
                };
                yield event;
            }
            yield Event::Relisting;
            yield Event::Synced;
            let until = Instant::now() + RECHECK;
            while timeout_at(until, definitions.next()).await.is_ok_and(|name| name != definition) {}
        }
    };
    events.boxed()
}
