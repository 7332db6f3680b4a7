//! Selects the messages for a receiver.
//!
//! Entry points: [`RouteSpec`] as the file writes it, [`Routes::take`]. Invariant: tests reach every
//! receiver. A message about the whole cluster matches each of its namespaces and releases. Pure.

use serde::Deserialize;

use crate::format::Format;
use crate::message::{Message, Topic};
use kubemoor_policy::glob::Globs;

/// The most routes of one receiver.
const ROUTES: usize = 64;

/// The filter on a receiver's messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

#[derive(Clone, Debug)]
struct Route {
    namespaces: Globs,
    releases: Globs,
    events: Vec<Topic>,
}

/// One route, as the file writes it: a message that matches each of its lists.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteSpec {
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    releases: Vec<String>,
    #[serde(default)]
    events: Vec<Topic>,
}

impl Routes {
    /// The routes of a receiver with this format, or what is wrong with them. Without any, it gets
    /// all that the format is for.
    pub(crate) fn compile(specs: &[RouteSpec], format: &Format) -> Result<Self, String> {
        if specs.len() > ROUTES {
            return Err(format!("it has more than {ROUTES} routes"));
        }
        let all = [RouteSpec::default()];
        let specs = if specs.is_empty() { &all } else { specs };
        specs.iter().map(|spec| Route::compile(spec, format)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the receiver gets a message.
    pub(crate) fn take(&self, message: &Message) -> bool {
        let topic = message.subject.topic();
        topic == Topic::Test || self.0.iter().any(|route| route.takes(message, topic))
    }
}

impl Route {
    fn compile(spec: &RouteSpec, format: &Format) -> Result<Self, String> {
        let RouteSpec { namespaces, releases, events } = spec;
        if let Some(topic) = events.iter().find(|topic| !format.takes(**topic)) {
            return Err(format!("its format cannot tell of the event {topic}, because nothing would end it"));
        }
        let globs = |field: &str, texts: &[String]| {
            let wrong =
                |flaw: kubemoor_policy::flaw::Flaw| format!("{field} of its routes: {}", flaw.message);
            Globs::parse(texts).map_err(wrong)
        };
        let events = match events.is_empty() {
            true => Topic::ALL.into_iter().filter(|topic| format.tells(*topic)).collect(),
            false => events.clone(),
        };
        Ok(Self {
            namespaces: globs("namespaces", namespaces)?,
            releases: globs("releases", releases)?,
            events,
        })
    }

    fn takes(&self, message: &Message, topic: Topic) -> bool {
        let release = message.release.as_ref();
        self.events.contains(&topic)
            && message.concerned().is_none_or(|namespace| self.namespaces.matches(namespace))
            && release.is_none_or(|release| self.releases.matches(&release.name))
    }
}
