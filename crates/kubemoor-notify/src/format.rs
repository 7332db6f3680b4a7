//! Renders a message as the body of a request, in the format of its receiver.
//!
//! Each format is a template: one of `templates/`, or the user's own. Every printed value is encoded as JSON, so that
//! no text from the cluster can end a string. The sentences for people are rendered first, from `templates/words.j2`,
//! with values escaped so that no chat reads them as markup, links or mentions. Bodies are JSON of a bounded size, and
//! rendering takes a bounded number of steps.

use std::{fmt, thread};

use jiff::{SignedDuration, Timestamp};
use minijinja::value::{Serde, Value, ValueKind};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, json};

use crate::message::{ConditionPhase, Notification, NotificationSubject, digest};
use kubemoor_declare::model::text::{one_line, shortened};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_verdict::edit::FieldFinding;
use kubemoor_verdict::shown::Shown;

/// The maximum size of a template, and of its output, in bytes.
const SOURCE: usize = 16 << 10;
const RESULT: usize = 256 << 10;

/// The stack size for parsing a template, in bytes: minijinja's parser and compiler recurse for each operator and each
/// `elif`.
const STACK: usize = 256 << 20;

/// The maximum number of steps that a template may take.
const FUEL: u64 = 200_000;

const NAME: &str = "notification";

/// The maximum number of characters of one text from the cluster in a sentence.
const LONG: usize = 200;

/// The maximum number of characters of all sentences: Mattermost and Rocket.Chat accept about 4,000.
const TEXT: usize = 3500;

/// The maximum number of fields in the facts of a message, and of characters of each text there.
const FIELDS: usize = 20;
const FACT: usize = 1000;

/// How long an alert of Alertmanager lasts if no message ends it.
const LASTING: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The name of a format in the file of notifiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FormatName {
    #[default]
    CloudEvents,
    Slack,
    Teams,
    Alertmanager,
    PagerDuty,
    Template,
}

#[derive(Clone)]
pub struct Format {
    form: FormatName,
    words: Environment<'static>,
    body: Environment<'static>,
    routing_key: Option<SecretString>,
}

struct Sentences {
    title: String,
    lines: Vec<String>,
}

/// A buffer of at most [`RESULT`] bytes.
struct Bounded(Vec<u8>);

impl FormatName {
    fn source(self) -> &'static str {
        match self {
            Self::CloudEvents => include_str!("templates/cloudevents.json.j2"),
            Self::Slack => include_str!("templates/slack.json.j2"),
            Self::Teams => include_str!("templates/teams.json.j2"),
            Self::Alertmanager => include_str!("templates/alertmanager.json.j2"),
            Self::PagerDuty => include_str!("templates/pagerduty.json.j2"),
            // The user's own template.
            Self::Template => "",
        }
    }

    /// How text from the cluster is escaped in sentences. Alertmanager forwards annotations to chats unchanged.
    fn disarm(self) -> fn(&str) -> String {
        match self {
            Self::Slack => code_span,
            Self::Alertmanager => |text| escape_mentions(text).replace('<', "<\u{200b}"),
            Self::CloudEvents | Self::Teams | Self::PagerDuty | Self::Template => str::to_owned,
        }
    }
}

impl Format {
    /// The format of a built-in template; PagerDuty's needs a routing key.
    pub(crate) fn shipped(form: FormatName, routing_key: Option<SecretString>) -> Result<Self, String> {
        Self::new(form, form.source().to_owned(), routing_key)
    }

    /// The format of a user's template, tested with messages of each kind.
    pub fn template(source: String) -> Result<Self, String> {
        if source.len() > SOURCE {
            return Err(format!("its template has more than {SOURCE} bytes"));
        }
        let read = thread::Builder::new().stack_size(STACK).spawn(|| Self::tried(source));
        let read = read.map_err(|error| format!("its template cannot be read: {error}"))?;
        read.join().map_err(|_| "its template cannot be read".to_owned())?
    }

    fn tried(source: String) -> Result<Self, String> {
        let format = Self::new(FormatName::Template, source, None)?;
        for message in samples() {
            format.body(&message, "urn:kubemoor:test").map_err(|error| {
                let kind = message.subject.as_str();
                format!("its template, tried with a message of the kind {kind}: {error}")
            })?;
        }
        Ok(format)
    }

    fn new(form: FormatName, source: String, routing_key: Option<SecretString>) -> Result<Self, String> {
        let disarm = form.disarm();
        let words = environment(include_str!("templates/words.j2").to_owned(), move |value| {
            Ok::<_, fmt::Error>(match value.kind() {
                ValueKind::Number => value.to_string(),
                ValueKind::None => disarm(""),
                _ => disarm(&shortened(one_line(&value.to_string()), LONG)),
            })
        })?;
        let body = environment(source, serde_json::to_string::<Value>)?;
        Ok(Self { form, words, body, routing_key })
    }

    pub(crate) fn routing_key(&self) -> Option<&SecretString> {
        self.routing_key.as_ref()
    }

    pub(crate) fn content_type(&self) -> &'static str {
        match self.form {
            FormatName::CloudEvents => "application/cloudevents+json; charset=utf-8",
            _ => "application/json; charset=utf-8",
        }
    }

    /// The body of a request with this message; `None` if the template prints nothing. `source` names the cluster.
    pub fn body(&self, message: &Notification, source: &str) -> Result<Option<Vec<u8>>, String> {
        let data = data(message);
        let mut known = known(message, source, &data);
        let Sentences { title, lines } = self.words(message, &known)?;
        let text: Vec<_> = std::iter::once(&title).chain(&lines).map(String::as_str).collect();
        known.insert("text".to_owned(), text.join("\n").into());
        known.insert("title".to_owned(), title.into());
        let mut context = Value::from(Serde(&known));
        if self.form != FormatName::Template {
            let kind = format!("dev.kubemoor.{}", message.subject.as_str());
            let ended = message.subject.phase() == ConditionPhase::Ends;
            context = context! {
                lines,
                ended,
                remaining => message.remaining,
                ends => Serde(ends(message)),
                id => digest(&json!([source, kind, data]).to_string()),
                type => kind,
                subject => shortened(subject(message), FACT).into_owned(),
                data => Serde(&data),
                cluster => source.strip_prefix("urn:kubemoor:").unwrap_or(source),
                dedup_key => message.dedup_key(source),
                key => message.key.as_str(),
                routing_key => self.routing_key().map(|key| key.expose_secret()),
                ..context
            };
        }
        let mut bounded = Bounded(Vec::new());
        let template = self.body.get_template(NAME).map_err(|error| place(&error))?;
        template.render_captured_to(context, &mut bounded).map_err(|error| place(&error))?;
        let bytes = bounded.0;
        if bytes.trim_ascii().is_empty() {
            return Ok(None);
        }
        // The parser's own words would quote nothing but the place.
        match serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) => {
                Err(format!("its output is not JSON (line {}, column {})", error.line(), error.column()))
            }
        }
    }

    fn words(
        &self,
        message: &Notification,
        known: &Map<String, serde_json::Value>,
    ) -> Result<Sentences, String> {
        let what = message.object.as_ref().map_or_else(|| "an object".to_owned(), ToString::to_string);
        let context = context! { what, ..Value::from(Serde(known)) };
        let template = self.words.get_template(NAME).map_err(|error| place(&error))?;
        let text = template.render(context).map_err(|error| place(&error))?;
        let mut given = text.lines().filter(|line| !line.is_empty());
        let title = given.next().unwrap_or_default().to_owned();
        let (mut size, mut lines) = (title.chars().count(), Vec::new());
        for line in given {
            // Plus 4 for a list marker. A line is dropped whole: cutting it could lose the end of a code span.
            size += line.chars().count() + 4;
            if size > TEXT {
                lines.push("…".to_owned());
                break;
            }
            lines.push(line.to_owned());
        }
        Ok(Sentences { title, lines })
    }
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

/// An environment with one template, without access to anything outside, that prints values with `print`.
fn environment<E: fmt::Display>(
    source: String,
    print: impl Fn(&Value) -> Result<String, E> + Send + Sync + 'static,
) -> Result<Environment<'static>, String> {
    use minijinja::filters::{default, first, join, last, length, lower, replace, trim, upper};
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(move |out, _, value| {
        let text = print(value)
            .map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))?;
        Ok(out.write_str(&text)?)
    });
    environment.add_filter("default", default);
    environment.add_filter("first", first);
    environment.add_filter("join", join);
    environment.add_filter("last", last);
    environment.add_filter("length", length);
    environment.add_filter("lower", lower);
    environment.add_filter("replace", replace);
    environment.add_filter("trim", trim);
    environment.add_filter("upper", upper);
    environment.add_template_owned(NAME, source).map_err(|error| place(&error))?;
    Ok(environment)
}

/// The facts of a message by the names of docs/notifications.md. Missing facts are null, so that a template may use any
/// field.
fn known(
    message: &Notification,
    source: &str,
    data: &Map<String, serde_json::Value>,
) -> Map<String, serde_json::Value> {
    let topic = message.subject.topic();
    let mut known = data.clone();
    let gaps = [
        ("release", json!({"namespace": null, "name": null, "revision": null})),
        ("object", json!({"group": null, "kind": null, "namespace": null, "name": null})),
    ];
    for (name, gap) in gaps {
        if known.get(name).is_none_or(serde_json::Value::is_null) {
            known.insert(name.to_owned(), gap);
        }
    }
    let more = [
        ("event", json!(message.subject.as_str())),
        ("topic", json!(topic)),
        ("severity", json!(topic.severity())),
        ("source", json!(source)),
        ("time", json!(message.at)),
        ("namespace", json!(message.concerned())),
        ("until", json!(message.until)),
    ];
    known.extend(more.map(|(name, value)| (name.to_owned(), value)));
    known
}

fn data(message: &Notification) -> Map<String, serde_json::Value> {
    let Notification { release, revision, object, drift, fields, by, since, detail, .. } = message;
    // The start of long values: an event is for people.
    let brief = |value: &Option<Shown>| value.as_ref().map(ToString::to_string);
    let release = release.as_ref().map(
        |ReleaseId { namespace, name }| json!({"namespace": namespace, "name": name, "revision": revision}),
    );
    let listed: Vec<_> = fields
        .iter()
        .take(FIELDS)
        .map(|field| {
            json!({
                "path": field.path.to_string(), "declared": brief(&field.declared), "live": brief(&field.new),
            })
        })
        .collect();
    let facts = [
        ("release", json!(release)),
        ("object", json!(object)),
        ("drift", json!(drift)),
        ("fields", json!(listed)),
        ("moreFields", json!(fields.len().saturating_sub(FIELDS))),
        ("by", json!(by)),
        ("since", json!(since)),
        ("detail", json!(detail)),
    ];
    let more = [
        ("namespace", message.namespace.as_ref().map(|it| json!(it))),
        ("until", message.until.as_ref().map(|it| json!(it))),
    ];
    let more = more.into_iter().filter_map(|(name, value)| Some((name, value?)));
    facts.into_iter().chain(more).map(|(name, value)| (name.to_owned(), cut(value))).collect()
}

/// Shortens each long text, so that no message is too long to be sent.
fn cut(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(shortened(text, FACT).into_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(cut).collect()),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, cut(value))).collect(),
        other => other,
    }
}

fn subject(message: &Notification) -> String {
    let Notification { object, release, namespace, .. } = message;
    match (object, release, namespace) {
        (Some(object), ..) => {
            let place = object.namespace.as_deref().map(|it| format!("{it}/")).unwrap_or_default();
            format!("{}/{place}{}", object.kind, object.name)
        }
        (None, Some(release), _) => release.to_string(),
        (None, None, Some(namespace)) => namespace.clone(),
        (None, None, None) => "cluster".to_owned(),
    }
}

/// When an alert ends; never before it starts, which Alertmanager would reject. `None`: after `resolve_timeout`.
fn ends(message: &Notification) -> Option<Timestamp> {
    let ends = match message.subject.phase() {
        ConditionPhase::Ends => message.at,
        ConditionPhase::Begins => message.until.or_else(|| message.at.checked_add(LASTING).ok())?,
        ConditionPhase::Once => return None,
    };
    Some(ends.max(message.since))
}

/// Slack, Mattermost and Rocket.Chat interpret no markup, links or mentions in a code span, and the text cannot end its
/// span. `&`, `<` and `>` are escaped as Slack requires, so that no `<!channel>` is left.
fn code_span(text: &str) -> String {
    // An empty span would be read as two backticks.
    if text.trim().is_empty() {
        return "(empty)".to_owned();
    }
    let text = escape_mentions(text).replace('`', "ˋ");
    format!("`{}`", text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// Inserts a zero-width space after each `@` that could begin a mention; Rocket.Chat looks for mentions in code too.
/// Mail addresses stay as they are.
fn escape_mentions(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.chars() {
        safe.push(c);
        if c == '@' && !before.is_alphanumeric() {
            safe.push('\u{200b}');
        }
        before = c;
    }
    safe
}

/// The reason and the place of an error. The engine's own message quotes the template, which may hold
/// credentials.
fn place(error: &minijinja::Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it takes too many steps",
        ErrorKind::UndefinedError => "it uses an undefined value",
        ErrorKind::SyntaxError => "its syntax is invalid",
        ErrorKind::UnknownFilter => "it uses an unknown filter",
        ErrorKind::WriteFailure => "its output is too long",
        _ => "it cannot be rendered",
    };
    error.line().map_or_else(|| what.to_owned(), |line| format!("{what} (line {line})"))
}

fn samples() -> impl Iterator<Item = Notification> {
    let field = |path: &str| FieldFinding::untouched(path.parse().unwrap_or_default());
    let bare = |subject| Notification::new(subject, Timestamp::UNIX_EPOCH);
    let full = move |subject| Notification {
        release: Some(ReleaseId { namespace: "shop".into(), name: "web".into() }),
        revision: Some(3),
        object: Some(ObjectId::namespaced("apps", "Deployment", "shop", "\"web\"\n")),
        fields: vec![field("/spec/replicas"), field("/metadata/labels/a\"b")],
        by: Some("somebody".to_owned()),
        detail: Some("some reason".to_owned()),
        ..bare(subject)
    };
    NotificationSubject::ALL.into_iter().flat_map(move |subject| [bare(subject), full(subject)])
}

#[cfg(test)]
mod tests;
