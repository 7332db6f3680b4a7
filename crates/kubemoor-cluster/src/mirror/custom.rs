//! A watch of one of Kubemoor's own kinds, whose CustomResourceDefinition may be absent.
//!
//! Entry point: [`CustomWatch::next`]. Invariant: without the definition there are no objects, and no
//! requests until a definition of that name appears. An API server that does not know the kind yet, as for a
//! moment after its start, does not prove absence: only a missing definition does.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::kinds::Kinds;
use super::queue::Changes;
use super::raw::Raw;
use super::reflect::Source;
use crate::client::call::CallError;
use crate::client::definition::is_defined;
use crate::client::resource::{GROUP, Resource, VERSION};
use crate::client::watch::{Event, Watch};

/// The time after which a missed definition is found: without the right to watch definitions none is
/// reported.
const RECHECK: Duration = Duration::from_secs(600);

/// The objects of one of Kubemoor's own kinds.
pub(super) struct CustomWatch {
    client: kube::Client,
    resource: Resource,
    namespace: Option<String>,
    definitions: Changes<String>,
    watch: Watch<Raw>,
    /// Since the definition is absent: when to look again.
    absent_until: Option<Instant>,
    told: VecDeque<Event<Value>>,
    /// The answer that the kind is not served, until it is known whether the definition is absent.
    unserved: Option<CallError>,
}

impl CustomWatch {
    /// A watch of the kind `kind`, called `plural` in paths, in `namespace`
    /// (`None`: in all).
    pub(super) fn new(
        client: kube::Client,
        kinds: &Kinds,
        (kind, plural): (&str, &str),
        namespace: Option<&str>,
    ) -> Self {
        let resource = Resource::new(GROUP, VERSION, kind, plural);
        Self {
            watch: Watch::new(client.clone(), &resource, namespace, None),
            definitions: kinds.definitions(),
            client,
            resource,
            namespace: namespace.map(str::to_owned),
            absent_until: None,
            told: VecDeque::new(),
            unserved: None,
        }
    }

    /// The next event. An absent definition is reported as an empty listing. Safe to cancel.
    pub(super) async fn next(&mut self) -> Event<Value> {
        loop {
            if let Some(event) = self.told.pop_front() {
                return event;
            }
            if let Some(until) = self.absent_until {
                tokio::select! {
                    name = self.definitions.next() => if name != self.definition() { continue },
                    () = sleep_until(until) => {}
                }
                self.absent_until = None;
                let namespace = self.namespace.as_deref();
                self.watch = Watch::new(self.client.clone(), &self.resource, namespace, None);
            }
            if self.unserved.is_none() {
                match self.watch.next().await {
                    Event::Broken(error) if error.is_not_found() => self.unserved = Some(error),
                    event => return event.map(|object| object.0),
                }
            }
            let is_defined = is_defined(&self.client, &self.resource.plural).await;
            let Some(unserved) = self.unserved.take() else { continue };
            match is_defined {
                Ok(true) => return Event::Broken(unserved),
                Ok(false) => {
                    self.absent_until = Some(Instant::now() + RECHECK);
                    self.told.extend([Event::Relisting, Event::Synced]);
                }
                Err(error) => return Event::Broken(error),
            }
        }
    }

    fn definition(&self) -> String {
        format!("{}.{GROUP}", self.resource.plural)
    }
}

impl Source for CustomWatch {
    type Object = serde_json::Value;

    fn next(&mut self) -> impl Future<Output = Event<Self::Object>> + Send {
        self.next()
    }
}
