//! Messages for Slack's incoming webhooks; those of Mattermost and Rocket.Chat accept the same.
//!
//! Entry point: [`body`]. Invariant: text from the cluster is in code spans, where none of the three
//! interprets markup, links or mentions, and it cannot end its span. `&`, `<` and `>` are escaped as Slack
//! requires, so that no `<!channel>` is left. An `@` that could begin a mention is followed by a zero-width
//! space, because Rocket.Chat looks for mentions in code too.

use std::sync::Arc;

use serde_json::{Value, json};

use super::mark;
use crate::message::Message;
use crate::words::{Line, Piece, Words};

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
