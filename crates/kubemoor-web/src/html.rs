//! Renders pages and their links. All text is escaped, and every page works without its script. The query of an address
//! holds everything that a view shows, so that every view can be linked to.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::visitor::{LoginMethod, VisitedCluster, Visitor};
use kubemoor_declare::model::ReleaseId;
use kubemoor_declare::model::text::{escaped_but, is_unprintable};
use kubemoor_inspect::failure::InspectError;
use kubemoor_inspect::times::AgeOrTime;

const STREAM: &str = "stream";

/// The pages of a shared ledger, which knows no objects.
const OF_DATABASE: [&str; 4] = ["", "releases", "ledger", "replay"];

const PAGES: [(&str, &str); 7] = [
    ("", "Overview"),
    ("releases", "Releases"),
    ("exceptions", "Exceptions"),
    ("ledger", "Ledger"),
    ("policies", "Policies"),
    ("replay", "Replay"),
    ("explain", "Explain"),
];

pub(super) struct PageFrame<'a> {
    pub(super) visitor: &'a Visitor,
    pub(super) title: &'a str,
    /// The entry of the navigation that is marked as current.
    pub(super) page: &'static str,
    /// The event stream by which the script keeps the page up to date.
    pub(super) stream: Option<String>,
    pub(super) status: StatusCode,
}

impl<'a> PageFrame<'a> {
    pub(super) fn live(visitor: &'a Visitor, title: &'a str, page: &'static str) -> Self {
        Self { visitor, title, page, stream: Some(STREAM.to_owned()), status: StatusCode::OK }
    }

    pub(super) fn still(visitor: &'a Visitor, title: &'a str, page: &'static str) -> Self {
        Self { stream: None, ..Self::live(visitor, title, page) }
    }

    /// Limits the stream to changes of the requested cluster, namespace and release.
    pub(super) fn narrowed(self, asked: &PageQuery) -> Self {
        let only = ["cluster", "namespace", "name"];
        let link = only.iter().fold(PageLink::to(STREAM), |link, name| link.set(name, asked.get(name)));
        Self { stream: Some(link.text()), ..self }
    }

    pub(super) fn around(&self, content: &Markup) -> Response {
        let Self { visitor, title, page, stream, status } = self;
        let whole = document(
            title,
            None,
            &html! {
                a.skip href="#content" { "Skip to content" }
                header {
                    a.brand href="./" { "Kubemoor" }
                    nav aria-label="Pages" {
                        @for (address, name) in pages(visitor) {
                            a href=(PageLink::to(address).text()) aria-current=[(address == *page).then_some("page")] {
                                (name)
                            }
                        }
                    }
                    @if visitor.entry != LoginMethod::Owner { (who(visitor)) }
                }
                main #content data-live=[stream.as_deref()] tabindex="-1" { (content) }
                footer {
                    p {
                        "Kubemoor " (env!("CARGO_PKG_VERSION"))
                        @if visitor.shared.is_some() { ". This page reads the ledger, and asks no cluster." }
                        @else { ". This page reads and acts with your own rights." }
                    }
                }
                script src="script.js" defer {}
            },
        );
        (*status, sent(whole)).into_response()
    }
}

/// An error page: why something could not be shown.
pub(super) fn failure(visitor: &Visitor, page: &'static str, error: &InspectError) -> Response {
    let status = match error {
        _ if error.is_forbidden() => StatusCode::FORBIDDEN,
        InspectError::InvalidInput(_) => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    };
    let frame = PageFrame { status, ..PageFrame::still(visitor, "Not available", page) };
    frame.around(&html! { h1 { "Not available" } (trouble(&error.to_string())) })
}

/// A page that says why a request was rejected.
pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    (status, plain("Access denied", &html! { h1 { "Kubemoor" } p { (why) } })).into_response()
}

pub(super) fn no_such_page() -> Response {
    refusal(StatusCode::NOT_FOUND, "There is no such page.")
}

/// A page for a visitor who is not authenticated yet.
pub(super) fn plain(title: &str, content: &Markup) -> Html<String> {
    sent(document(title, None, &html! { main #content { (content) } }))
}

/// A page that redirects to another.
pub(super) fn redirect_page(to: &str, text: &str) -> Html<String> {
    let content = html! { main { h1 { "Kubemoor" } p { a href=(to) { (text) } } } };
    sent(document(text, Some(to), &content))
}

/// Escapes unprintable characters: a name from the cluster can hold some that reverse the order of the text around it.
fn sent(page: Markup) -> Html<String> {
    Html(escaped_but(&page.into_string(), &['\n', '\t']).into_owned())
}

/// A visible error message.
pub(super) fn trouble(sentence: &str) -> Markup {
    html! { p.trouble role="alert" { (sentence) } }
}

/// A section for each cluster, or the reason why it cannot be shown.
pub(super) fn sections(
    visitor: &Visitor,
    shown: &[(&Arc<VisitedCluster>, Result<Markup, InspectError>)],
) -> Markup {
    html! {
        @for (cluster, shown) in shown {
            section {
                @if visitor.has_several() { h2 { (cluster.name) } }
                @match shown {
                    Ok(shown) => (shown),
                    Err(error) => (trouble(&error.to_string())),
                }
            }
        }
    }
}

/// The note that only one namespace is shown, although the user did not choose it.
pub(super) fn only(namespace: &str) -> String {
    format!("Only namespace {namespace}: you may not list all namespaces.")
}

/// What could not be read, folded if there are several. By the id from `place` the script finds it after an update.
pub(super) fn notes(place: &str, notes: &[String]) -> Markup {
    match notes {
        [] => html! {},
        [one] => html! { p.note { (one) } },
        several => html! {
            details.note id=(format!("notes-{}", encoded(place))) {
                summary { (several.len()) " parts could not be read" }
                ul { @for note in several { li { (note) } } }
            }
        },
    }
}

/// Links to the previous and the next page of a list.
pub(super) fn pagination(
    label: &str,
    (page, pages): (usize, usize),
    link: impl Fn(usize) -> String,
) -> Markup {
    html! {
        @if pages > 1 {
            nav.turns aria-label=(label) {
                @if page > 1 { a rel="prev" href=(link(page - 1)) { "Previous" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a rel="next" href=(link(page + 1)) { "Next" } }
            }
        }
    }
}

/// The field for the cluster: one of several, or `all`; for a database any name.
pub(super) fn cluster_choice(visitor: &Visitor, asked: &PageQuery, all: bool) -> Markup {
    html! {
        @if visitor.shared.is_some() { (text_field(asked, "Cluster", "cluster", "all")) }
        @if visitor.has_several() {
            label { "Cluster"
                select name="cluster" {
                    @if all { option value="" { "all" } }
                    @for cluster in &visitor.clusters {
                        option value=(cluster.name) selected[asked.get("cluster") == Some(&cluster.name)] {
                            (cluster.name)
                        }
                    }
                }
            }
        }
    }
}

/// A text field of a form, filled from the query.
pub(super) fn text_field(asked: &PageQuery, label: &str, name: &str, placeholder: &str) -> Markup {
    html! { label { (label) input name=(name) value=[asked.get(name)] placeholder=(placeholder); } }
}

/// A hidden field that returns exactly this value: it encodes as character references what [`sent`] would replace.
pub(super) fn hidden_field(name: &str, value: &str) -> Markup {
    let mut text = String::new();
    for letter in html! { (value) }.into_string().chars() {
        match is_unprintable(letter) {
            // Writing to a String cannot fail.
            true => drop(write!(text, "&#{};", u32::from(letter))),
            false => text.push(letter),
        }
    }
    html! { input type="hidden" name=(name) value=(PreEscaped(text)); }
}

pub(super) fn heads(names: &[&str]) -> Markup {
    html! { @for name in names { th scope="col" { (name) } } }
}

/// A table that scrolls if it is wider than the page.
pub(super) fn table(label: &str, heads: &Markup, rows: &Markup) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(label) {
            table { thead { tr { (heads) } } tbody { (rows) } }
        }
    }
}

pub(super) fn fields_table(label: &str, heads: &[&str], rows: &Markup) -> Markup {
    html! { div.fields { (table(label, &self::heads(heads), rows)) } }
}

/// A badge of a CSS class, such as `good`, `doubt` or `bad`.
pub(super) fn mark(class: &str, text: &str) -> Markup {
    html! { span class={ "badge " (class) } { (text) } }
}

/// The state of a release as a badge with text and colour, and since when its status is stale.
pub(super) fn badge(state: &str, ready: Option<&str>, stale_since: Option<Timestamp>) -> Markup {
    let class = match (stale_since, ready) {
        (Some(_), _) | (_, Some("Unknown") | None) => "doubt",
        (None, Some("True")) => "good",
        (None, Some(_)) => "bad",
    };
    html! {
        (mark(class, &words(state)))
        @if let Some(since) = stale_since { span.quiet.below { "stale since " (utc(since)) } }
    }
}

/// `InSync` as `In sync`.
pub(super) fn words(state: &str) -> String {
    let mut words = String::new();
    for letter in state.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
            words.extend(letter.to_lowercase());
        } else {
            words.push(letter);
        }
    }
    words
}

/// A time to the second.
pub(super) fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The end of an exception; the text itself if it is not a valid time.
pub(super) fn until(until: &str, now: Timestamp) -> Markup {
    match until.parse() {
        Ok(until) => time(until, now),
        Err(_) => html! { (until) },
    }
}

pub(super) fn time(time: Timestamp, now: Timestamp) -> Markup {
    let whole = utc(time);
    html! { time datetime=(whole) title=(whole) { (distance(time.duration_since(now))) } }
}

pub(super) fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="token" value=(visitor.form_token()); }
}

fn pages(visitor: &Visitor) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_all = visitor.shared.is_none();
    PAGES.into_iter().filter(move |(page, _)| has_all || OF_DATABASE.contains(page))
}

fn who(visitor: &Visitor) -> Markup {
    html! {
        div.who {
            span { (visitor.user.as_deref().unwrap_or("Logged in")) }
            @if visitor.entry == LoginMethod::Login {
                form method="post" action="logout" { (token(visitor)) button { "Log out" } }
            }
        }
    }
}

/// A complete HTML document, which redirects at once if `refresh` is set.
fn document(title: &str, refresh: Option<&str>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(to) = refresh { meta http-equiv="refresh" content=(format!("0; url={to}")); }
                title { (title) " · Kubemoor" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="style.css";
            }
            body { (content) }
        }
    }
}

fn distance(distance: SignedDuration) -> String {
    let seconds = distance.as_secs().unsigned_abs();
    let text = match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    if distance.is_negative() { format!("{text} ago") } else { format!("in {text}") }
}

/// The parameters of a query or form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageQuery(Vec<(String, String)>);

/// A link to a page, relative to the root of all pages.
#[derive(Clone, Debug)]
pub(super) struct PageLink {
    page: &'static str,
    pairs: Vec<(String, String)>,
}

/// The cluster and namespace that a link shows; `None` stands for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkScope<'a> {
    pub(super) cluster: Option<&'a str>,
    pub(super) namespace: Option<&'a str>,
}

impl LinkScope<'_> {
    /// A link to `page` with this scope.
    pub(super) fn link(self, page: &'static str) -> PageLink {
        PageLink::to(page).set("cluster", self.cluster).set("namespace", self.namespace)
    }
}

impl PageQuery {
    /// Empty values are dropped.
    pub(super) fn new(pairs: Vec<(String, String)>) -> Self {
        let asked = pairs.into_iter().filter(|(_, value)| !value.trim().is_empty());
        // Browsers send line ends of a field as CRLF.
        Self(asked.map(|(name, value)| (name, value.replace("\r\n", "\n"))).collect())
    }

    /// The first value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.trim())
    }

    /// The time under a name, such as `24h`, `2026-11-29` or a full timestamp.
    pub(super) fn time(
        &self,
        name: &str,
        default: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, InspectError> {
        let Some(text) = self.get(name).or(default) else { return Ok(None) };
        let moment: Result<AgeOrTime, _> = text.parse();
        moment
            .map(|moment| Some(moment.time(now)))
            .map_err(|error| InspectError::InvalidInput(format!("{name}: {error}")))
    }

    /// The requested page of a list, by the parameter `name`, and how many pages the list has.
    pub(super) fn page(&self, name: &str, entries: usize, size: usize) -> (usize, usize) {
        let pages = entries.div_ceil(size).max(1);
        let page = self.get(name).and_then(|page| page.parse().ok()).unwrap_or(1).clamp(1, pages);
        (page, pages)
    }

    pub(super) fn release(&self) -> Option<ReleaseId> {
        Some(ReleaseId { namespace: self.get("namespace")?.into(), name: self.get("name")?.into() })
    }

    /// A link to `page` with the same parameters.
    pub(super) fn link(&self, page: &'static str) -> PageLink {
        PageLink { page, pairs: self.0.clone() }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PageQuery {
    type Rejection = QueryRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, QueryRejection> {
        Query::from_request_parts(parts, state).await.map(|Query(pairs)| Self::new(pairs))
    }
}

impl PageLink {
    pub(super) fn to(page: &'static str) -> Self {
        Self { page, pairs: Vec::new() }
    }

    pub(super) fn to_release(cluster: &str, release: &ReleaseId) -> Self {
        Self::to("release").with("cluster", cluster).of_release(release)
    }

    /// Adds the namespace and name of a release.
    pub(super) fn of_release(self, release: &ReleaseId) -> Self {
        self.with("namespace", &release.namespace).with("name", &release.name)
    }

    /// Adds one more value.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.pairs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces all values of a name; `None` removes them.
    pub(super) fn set(mut self, name: &str, value: Option<&str>) -> Self {
        self.pairs.retain(|(known, _)| known != name);
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(super) fn text(&self) -> String {
        let pairs: Vec<_> =
            self.pairs.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        // An empty link would keep the query of the current page.
        let page = if self.page.is_empty() { "./" } else { self.page };
        if pairs.is_empty() { page.to_owned() } else { format!("{page}?{}", pairs.join("&")) }
    }
}

/// Percent-encodes everything but letters and digits.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests;
