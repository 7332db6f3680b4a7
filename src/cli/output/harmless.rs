//! Text that cannot write to a terminal.
//!
//! Entry point: [`harmless`].

/// Text without control characters: each is written as its escape.
pub(super) fn harmless(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars()
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}
