//! A message in the form of the receiver's template.
//!
//! Entry points: [`Template::parse`], [`Template::render`]. Invariant: every value that a template prints is
//! JSON, so that no name can end a string. The output as a whole is JSON of a bounded size, and rendering
//! takes a bounded number of steps.

use minijinja::value::{Serde, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use serde_json::json;

use super::cloudevent;
use crate::message::{Message, Subject};
use crate::words::{Words, plain};

/// The most bytes of a template.
const SOURCE: usize = 64 << 10;

/// The most bytes that may come out.
const RESULT: usize = 256 << 10;

/// The steps that a template may take.
const FUEL: u64 = 200_000;

/// The only template of its environment.
const NAME: &str = "notification";

/// A template that was checked.
#[derive(Clone, Debug)]
pub struct Template(Environment<'static>);

/// Takes a bounded number of bytes.
struct Bounded(Vec<u8>);

impl Template {
    /// Reads a template, and tries it with a message of each kind.
    ///
    /// # Errors
    /// What is wrong with it, without quoting it.
    pub fn parse(source: String) -> Result<Self, String> {
        if source.len() > SOURCE {
            return Err(format!("its template has more than {SOURCE} bytes"));
        }
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(|out, _, value| {
            let text = serde_json::to_string(value)
                .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))?;
            Ok(out.write_str(&text)?)
        });
        filters(&mut environment);
        environment.add_template_owned(NAME, source).map_err(|error| place(&error))?;
        let template = Self(environment);
        for message in samples() {
            template.render(&message, "urn:kubemoor:test").map_err(|error| {
                format!(
                    "its template, tried with a message of the kind {}: {error}",
                    message.subject.as_str()
                )
            })?;
        }
        Ok(template)
    }

    /// The JSON that the template makes of a message; `source` names the cluster.
    ///
    /// # Errors
    /// Why it makes none.
    pub fn render(&self, message: &Message, source: &str) -> Result<Vec<u8>, String> {
        let context = Value::from(Serde(known(message, source)));
        let template = self.0.get_template(NAME).map_err(|error| place(&error))?;
        let mut bounded = Bounded(Vec::new());
        let rendered = template.render_captured_to(context, &mut bounded);
        rendered.map_err(|error| place(&error))?;
        let bytes = bounded.0;
        // The parser's own words would quote nothing but the place.
        match serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => {
                Err(format!("what it makes is not JSON (line {}, column {})", error.line(), error.column()))
            }
        }
    }
}

/// The facts of a message, with all keys: a template may use a field that a message does not have.
fn known(message: &Message, source: &str) -> serde_json::Value {
    let words = Words::of(message);
    let topic = message.subject.topic();
    let mut known = json!({
        "event": message.subject.as_str(),
        "topic": topic,
        "severity": topic.severity().as_str(),
        "source": source,
        "time": message.at,
        "title": plain(&words.title),
        "text": words.text(),
        "namespace": message.concerned(),
        "until": message.until,
        "count": message.count,
        "release": {"namespace": null, "name": null, "revision": null},
        "object": {"group": null, "kind": null, "namespace": null, "name": null},
    });
    if let (Some(known), serde_json::Value::Object(data)) = (known.as_object_mut(), cloudevent::data(message))
    {
        let is_gap =
            |name: &str, value: &serde_json::Value| value.is_null() && matches!(name, "release" | "object");
        known.extend(data.into_iter().filter(|(name, value)| !is_gap(name, value)));
    }
    known
}

/// The available filters: none that reaches outside, none that marks text as safe.
fn filters(environment: &mut Environment<'static>) {
    use minijinja::filters::{default, first, join, last, length, lower, replace, trim, upper};
    environment.add_filter("default", default);
    environment.add_filter("first", first);
    environment.add_filter("join", join);
    environment.add_filter("last", last);
    environment.add_filter("length", length);
    environment.add_filter("lower", lower);
    environment.add_filter("replace", replace);
    environment.add_filter("trim", trim);
    environment.add_filter("upper", upper);
}

/// The reason and the place of an error. The engine's own message quotes the template, which may hold
/// credentials.
fn place(error: &minijinja::Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it takes too many steps",
        ErrorKind::UndefinedError => "it names a value that is not there",
        ErrorKind::SyntaxError => "it is not a template",
        ErrorKind::UnknownFilter => "it names a filter that is not there",
        ErrorKind::WriteFailure => "it makes too much text",
        _ => "it cannot be carried out",
    };
    error.line().map_or_else(|| what.to_owned(), |line| format!("{what} (line {line})"))
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > RESULT {
            return Err(std::io::Error::other("too much text"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A message of each kind, with much and with little in it.
fn samples() -> impl Iterator<Item = Message> {
    use kubemoor_declare::model::{ObjectId, ReleaseId};
    use kubemoor_verdict::difference::Values;
    use kubemoor_verdict::edit::Finding;
    let field = |path: &str| {
        let values = Values { declared: None, old: None, new: None, difference: None };
        Finding::of(path.parse().unwrap_or_default(), values)
    };
    let bare = |subject| Message::new(subject, jiff::Timestamp::UNIX_EPOCH);
    let full = move |subject| Message {
        release: Some(ReleaseId { namespace: "shop".into(), name: "web".into() }),
        revision: Some(3),
        object: Some(ObjectId::namespaced("apps", "Deployment", "shop", "\"web\"\n")),
        fields: vec![field("/spec/replicas"), field("/metadata/labels/a\"b")],
        by: Some("somebody".to_owned()),
        detail: Some("some reason".to_owned()),
        ..bare(subject)
    };
    Subject::ALL.into_iter().flat_map(move |subject| [bare(subject), full(subject)])
}
