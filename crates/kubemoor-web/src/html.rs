//! The writing of pages.
//!
//! Entry points: [`Frame`] for a page, [`notice`] for a visitor who is not let in. Invariant: text becomes text; a
//! page is whole without its script.

use std::collections::BTreeSet;

use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use maud::{DOCTYPE, Markup, html};

use super::address::{ALSO, Asked, FOLLOWED, Link, encoded};
use super::visitor::{Entry, Visitor};
use kubemoor_declare::model::text::escaped_but;
use kubemoor_inspect::failure::Failure;
use kubemoor_inspect::releases::{NOT_GUARDED, Row, UNKNOWN};

/// The page that tells of changes.
const STREAM: &str = "stream";

/// The pages that a shared ledger has: it knows no cluster's objects.
const OF_DATABASE: [&str; 4] = ["", "releases", "ledger", "replay"];

/// The pages that the head links to.
const PAGES: [(&str, &str); 7] = [
    ("", "Overview"),
    ("releases", "Releases"),
    ("exceptions", "Exceptions"),
    ("ledger", "Ledger"),
    ("policies", "Policies"),
    ("replay", "Replay"),
    ("explain", "Explain"),
];

/// A page around its content.
pub(super) struct Frame<'a> {
    pub(super) visitor: &'a Visitor,
    pub(super) title: &'a str,
    /// Which of the pages in the head it belongs to.
    pub(super) page: &'static str,
    /// The stream by which the script keeps it up to date.
    pub(super) stream: Option<String>,
    pub(super) status: StatusCode,
}

impl<'a> Frame<'a> {
    /// A page that shows the present state.
    pub(super) fn live(visitor: &'a Visitor, title: &'a str, page: &'static str) -> Self {
        Self { visitor, title, page, stream: Some(STREAM.to_owned()), status: StatusCode::OK }
    }

    /// A page that stays as it is.
    pub(super) fn still(visitor: &'a Visitor, title: &'a str, page: &'static str) -> Self {
        Self { stream: None, ..Self::live(visitor, title, page) }
    }

    /// The same with changes of what is asked for alone.
    pub(super) fn of(self, asked: &Asked) -> Self {
        let only = ["cluster", "namespace", "name"];
        let link = only.iter().fold(Link::to(STREAM), |link, name| link.set(name, asked.get(name)));
        Self { stream: Some(link.text()), ..self }
    }

    /// The same with changes of the release that is asked for, and of exceptions in these namespaces.
    pub(super) fn of_release(self, asked: &Asked, namespaces: &BTreeSet<String>) -> Self {
        let own = asked.get("namespace");
        let others = namespaces.iter().filter(|namespace| own != Some(namespace.as_str())).take(FOLLOWED);
        let others = others.map(|namespace| format!("&{ALSO}={}", encoded(namespace)));
        let frame = self.of(asked);
        Self { stream: frame.stream.map(|link| link + &others.collect::<String>()), ..frame }
    }

    /// The page with this content.
    pub(super) fn around(&self, content: &Markup) -> Response {
        let Self { visitor, title, page, stream, status } = self;
        let whole = document(
            title,
            html! {
                a.skip href="#content" { "Skip to content" }
                header {
                    a.brand href="./" { "Kubemoor" }
                    nav aria-label="Pages" {
                        @for (address, name) in pages(visitor) {
                            a href=(Link::to(address).text()) aria-current=[(address == *page).then_some("page")] {
                                (name)
                            }
                        }
                    }
                    @if visitor.entry != Entry::Owner { (who(visitor)) }
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

/// A page that only says why something could not be shown.
pub(super) fn failure(visitor: &Visitor, page: &'static str, error: &Failure) -> Response {
    let status = match error {
        _ if error.is_forbidden() => StatusCode::FORBIDDEN,
        Failure::Named(_) => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    };
    let frame = Frame { status, ..Frame::still(visitor, "Not available", page) };
    frame.around(&html! { h1 { "Not available" } (trouble(&error.to_string())) })
}

/// Why somebody is not let in, or nothing was done.
pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    (status, notice(why)).into_response()
}

/// The answer to a form that this visitor was not given.
pub(super) fn refuse_form() -> Response {
    refusal(
        StatusCode::FORBIDDEN,
        "This form is not from a page of yours, or it is old. Nothing was done. Go back and try again.",
    )
}

/// A page for a visitor who is not let in yet.
pub(super) fn plain(title: &str, content: &Markup) -> Html<String> {
    sent(document(title, html! { main #content { (content) } }))
}

/// A sentence for a visitor who is not let in.
pub(super) fn notice(why: &str) -> Html<String> {
    plain("Not let in", &html! { h1 { "Kubemoor" } p { (why) } })
}

/// A page that leads on to another.
pub(super) fn doorstep(to: &str, text: &str) -> Html<String> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content=(format!("0; url={to}"));
                title { "Kubemoor" }
                link rel="stylesheet" href="style.css";
            }
            body { main { h1 { "Kubemoor" } p { a href=(to) { (text) } } } }
        }
    };
    sent(page)
}

/// A page as it is sent. A name from the cluster can hold characters that reverse the order of the text around it.
fn sent(page: Markup) -> Html<String> {
    Html(escaped_but(&page.into_string(), &['\n', '\t']).into_owned())
}

/// What went wrong, where people see it.
pub(super) fn trouble(sentence: &str) -> Markup {
    html! { p.trouble role="alert" { (sentence) } }
}

/// That one namespace alone is shown, though nobody chose it.
pub(super) fn only(namespace: &str) -> String {
    format!("Only namespace {namespace}: you may not list all namespaces.")
}

/// What could not be read, folded away where it is much. By its place the script knows it again on a page.
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

/// Links to the pages of a list before and after.
pub(super) fn turns(label: &str, (page, pages): (usize, usize), link: impl Fn(usize) -> String) -> Markup {
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

/// The field of a filter that chooses one of several clusters, or all.
pub(super) fn cluster_choice(visitor: &Visitor, asked: &Asked) -> Markup {
    html! {
        @if visitor.has_several() {
            label { "Cluster"
                select name="cluster" {
                    option value="" { "all" }
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

/// The state of a release in one word.
pub(super) fn state(row: &Row) -> &str {
    match (row.guarded, &row.reason, &row.ready) {
        (_, Some(reason), _) => reason,
        (false, None, _) => NOT_GUARDED,
        (true, None, Some(ready)) => ready,
        (true, None, None) => UNKNOWN,
    }
}

/// The state of a release as a mark, which says it in words and by its colour.
pub(super) fn badge(row: &Row) -> Markup {
    let class = match (row.guarded, row.ready.as_deref()) {
        (false, _) | (true, Some("Unknown") | None) => "badge doubt",
        (true, Some("True")) => "badge good",
        (true, Some(_)) => "badge bad",
    };
    html! { span class=(class) { (words(state(row))) } }
}

/// `InSync` as people read it.
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

/// A time, with how long ago or ahead it is.
pub(super) fn time(time: Timestamp, now: Timestamp) -> Markup {
    let whole = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    html! { time datetime=(whole) title=(whole) { (distance(time.duration_since(now))) } }
}

/// The token that an action needs.
pub(super) fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="token" value=(visitor.form_token()); }
}

/// The pages that this visitor has.
fn pages(visitor: &Visitor) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_all = visitor.shared.is_none();
    PAGES.into_iter().filter(move |(page, _)| has_all || OF_DATABASE.contains(page))
}

/// Who the visitor is to the cluster, and the way out.
fn who(visitor: &Visitor) -> Markup {
    html! {
        div.who {
            span { (visitor.user.as_deref().unwrap_or("Logged in")) }
            @if visitor.entry == Entry::Login {
                form method="post" action="logout" { (token(visitor)) button { "Log out" } }
            }
        }
    }
}

fn document(title: &str, content: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
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

#[cfg(test)]
mod tests {
    use super::*;
    use kubemoor_policy::signing::SigningKey;

    #[tokio::test]
    async fn head_names_the_user_in_plain_text() {
        let user = "\"><img src=x onerror=alert(1)>".to_owned();
        let forms = SigningKey::new([1; 32]);
        let visitor = Visitor::new(Vec::new(), Entry::Login, Some(user), forms);
        let page = Frame::live(&visitor, "Overview", "").around(&html! {});
        let body = axum::body::to_bytes(page.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("&lt;img src=x") && !text.contains("<img"), "{text}");
    }

    #[test]
    fn page_shows_the_escapes_of_characters_that_reverse_letters() {
        let Html(page) = sent(html! { p { "admin\u{202e}nimda" } "\n" });
        assert_eq!(page, "<p>admin\\u{202e}nimda</p>\n");
    }

    #[test]
    fn states_are_read_as_words() {
        for (state, expected) in
            [("InSync", "In sync"), ("NotGuarded", "Not guarded"), ("Drifted", "Drifted")]
        {
            assert_eq!(words(state), expected);
        }
    }

    #[test]
    fn distances_are_told_in_one_unit() {
        for (seconds, expected) in
            [(-5, "5 s ago"), (90, "in 1 min"), (-7200, "2 h ago"), (-864_000, "10 days ago"), (0, "in 0 s")]
        {
            assert_eq!(distance(SignedDuration::from_secs(seconds)), expected);
        }
    }
}
