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
use crate::client::call::{self, CallError, PATIENCE};
use crate::client::resource::{GROUP, Partial, Resource, VERSION, segment};
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
            match self.watch.next().await {
                Event::Broken(error) if error.is_not_found() => {
                    match is_defined(self.client.clone(), self.definition()).await {
                        Ok(true) => return Event::Broken(error),
                        Ok(false) => {
                            self.absent_until = Some(Instant::now() + RECHECK);
                            self.told.extend([Event::Relisting, Event::Synced]);
                        }
                        Err(error) => return Event::Broken(error),
                    }
                }
                event => return event.map(|object| object.0),
            }
        }
    }

    fn definition(&self) -> String {
        format!("{}.{GROUP}", self.resource.plural)
    }
}

async fn is_defined(client: kube::Client, name: String) -> Result<bool, CallError> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", segment(&name)?);
    match call::fetch::<Partial>(&client, call::get(&path)?, PATIENCE).await {
        Ok(_) => Ok(true),
        Err(error) if proves_absence(&error, &name) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the answer says that there is no definition `name`. A proxy before an API server that is away, and an API
/// server that is starting, answer 404 too.
fn proves_absence(error: &CallError, name: &str) -> bool {
    matches!(error, CallError::Refused { code: 404, message, .. } if message.contains(name))
}

impl Source for CustomWatch {
    type Object = serde_json::Value;

    fn next(&mut self) -> impl Future<Output = Event<Self::Object>> + Send {
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_names_the_definition_proves_its_absence() {
        let name = "driftpolicies.kubemoor.dev";
        let refused = |code, message: &str| CallError::Refused {
            code,
            reason: "NotFound".to_owned(),
            message: message.to_owned(),
            causes: Vec::new(),
        };
        let missing = format!("customresourcedefinitions.apiextensions.k8s.io \"{name}\" not found");
        for (error, expected) in [
            (refused(404, &missing), true),
            (refused(404, "the server could not find the requested resource"), false),
            (refused(403, &missing), false),
            (CallError::Unserved, false),
        ] {
            assert_eq!(proves_absence(&error, name), expected, "{error}");
        }
    }
}
