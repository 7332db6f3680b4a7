//! Messages as Slack's incoming webhooks take them; those of Mattermost and
//! Rocket.Chat take the same.
//!
//! Entry point: [`body`]. Invariant: what comes from the cluster stands in code
//! spans, where none of the three reads markup, links or mentions, and cannot end its
//! span; `&`, `<` and `>` are escaped as Slack asks, so that no `<!channel>` is left; and
//! an `@` that could begin a mention is followed by a space of no width, because
//! Rocket.Chat looks for mentions in code as well.

use std::sync::Arc;

use serde_json::{Value, json};

use super::mark;
use crate::notify::message::Message;
use crate::notify::words::{Line, Piece, Words};

/// The most characters of one text: Mattermost and Rocket.Chat take about 4,000.
const LONG: usize = 3500;

/// The most messages in one post.
pub(super) const TOGETHER: usize = 5;

/// One post with some messages.
pub(super) fn body(messages: &[Arc<Message>]) -> Value {
    let most = LONG / messages.len().max(1);
    let texts: Vec<_> = messages.iter().map(|message| text(message, most)).collect();
    json!({"text": texts.join("\n\n"), "unfurl_links": false, "unfurl_media": false})
}

fn text(message: &Message, most: usize) -> String {
    let Words { title, lines } = Words::of(message);
    let mut text = format!("{} {}", mark(message.subject).1, rendered(&title));
    for line in lines {
        let line = rendered(&line);
        // A line is left out whole: a cut one could lose the end of its code span.
        if text.chars().count() + line.chars().count() + 4 > most {
            text.push_str("\n• …");
            break;
        }
        text.push_str("\n• ");
        text.push_str(&line);
    }
    text
}

fn rendered(line: &Line) -> String {
    line.iter()
        .map(|piece| match piece {
            Piece::Said(text) => escaped(text),
            // An empty span would be read as two backticks.
            Piece::Named(text) if text.trim().is_empty() => "(empty)".to_owned(),
            Piece::Named(text) => format!("`{}`", escaped(&disarmed(text).replace('`', "ˋ"))),
        })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// No `@` in it begins a mention. An address of mail stays as it is.
pub(super) fn disarmed(text: &str) -> String {
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
