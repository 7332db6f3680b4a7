//! Messages as an Adaptive Card for the Workflows webhooks of Microsoft Teams.
//!
//! Entry point: [`body`]. Invariant: all text is in `TextRun`s, which are not parsed as Markdown (a
//! `TextBlock` is). There is no list of entities, so that no text can mention anyone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::mark;
use crate::message::Message;
use crate::words::{Piece, Words};

/// The most messages in one card: Teams takes 28 KB.
pub(super) const TOGETHER: usize = 4;

/// The most bytes of the blocks of one card.
const LARGE: usize = 20_000;

/// One card with some messages.
pub(super) fn body(messages: &[Arc<Message>]) -> Value {
    let most = LARGE / messages.len().max(1);
    let blocks: Vec<_> = messages.iter().flat_map(|message| blocks(message, most)).collect();
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": blocks,
    });
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": card,
        }],
    })
}

fn blocks(message: &Message, most: usize) -> Vec<Value> {
    let Words { title, lines } = Words::of(message);
    let color = mark(message.subject).0;
    let mut blocks = vec![block(&title, |run| {
        run["weight"] = "Bolder".into();
        run["color"] = color.into();
    })];
    if let Some(first) = blocks.first_mut() {
        first["separator"] = true.into();
        first["spacing"] = "Medium".into();
    }
    let mut size = 0;
    for line in &lines {
        let block = block(line, |_| ());
        size += block.to_string().len();
        if size > most {
            blocks.push(json!({"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": "…"}]}));
            break;
        }
        blocks.push(block);
    }
    blocks
}

fn block(line: &[Piece], style: impl Fn(&mut Value)) -> Value {
    let runs: Vec<_> = line
        .iter()
        .map(|piece| {
            let mut run = match piece {
                Piece::Said(text) => json!({"type": "TextRun", "text": text}),
                Piece::Named(text) => json!({"type": "TextRun", "text": text, "fontType": "Monospace"}),
            };
            style(&mut run);
            run
        })
        .collect();
    json!({"type": "RichTextBlock", "spacing": "Small", "inlines": runs})
}
