//! Characters from the cluster that could deceive a reader: they move the cursor, end a line, or reverse the order in
//! which a text is shown (CVE-2021-42574). Whatever a person reads goes through one of these functions.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character is not shown itself and changes how others are: a control character, a separator of lines, a mark
/// or control of bidirectional text, or a byte order mark.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// Whether there may be such a character: a fast look at the bytes.
pub fn may_be_unprintable(text: &str) -> bool {
    // The first bytes of those that are not ASCII.
    let may_be = |byte: u8| byte.is_ascii_control() || matches!(byte, 0xc2 | 0xd8 | 0xe2 | 0xef);
    text.bytes().fold(false, |found, byte| found | may_be(byte))
}

/// The text with a space in place of each unprintable character.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match may_be_unprintable(text) {
        true => text.replace(is_unprintable, " ").into(),
        false => text.into(),
    }
}

/// The text with the escape of each unprintable character in its place, such as `\u{1b}`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, &[])
}

/// The same, where some of them stay.
pub fn escaped_but<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_odd = |letter: char| is_unprintable(letter) && !kept.contains(&letter);
    if !may_be_unprintable(text) || !text.contains(is_odd) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_odd(letter) {
            true => plain.extend(letter.escape_default()),
            false => plain.push(letter),
        }
    }
    plain.into()
}

/// A JSON text that means the same, with its escape in place of each unprintable character. Those of ASCII are left to
/// the writer of the JSON, but for DEL, which JSON allows.
pub fn escaped_json(json: String) -> String {
    let is_odd = |letter: char| (!letter.is_ascii() || letter == '\u{7f}') && is_unprintable(letter);
    if !may_be_unprintable(&json) || !json.contains(is_odd) {
        return json;
    }
    let mut plain = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_odd(letter) {
            // Writing to a String cannot fail. All of them have four digits.
            true => drop(write!(plain, "\\u{:04x}", u32::from(letter))),
            false => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Those that have deceived readers elsewhere.
    const DECEIVING: [char; 16] = [
        '\u{1b}', '\u{9b}', '\u{7f}', '\n', '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}',
        '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{2028}', '\u{feff}',
    ];

    #[test]
    fn each_deceiving_character_is_replaced() {
        for letter in DECEIVING {
            let text = format!("a{letter}b");
            assert_eq!(one_line(&text), "a b", "{letter:?}");
            assert_eq!(escaped(&text), format!("a{}b", letter.escape_default()), "{letter:?}");
            assert_eq!(escaped_but(&text, &[letter]), text, "{letter:?}");
        }
        for text in ["", "web", "Grüße…", "日本語", "a\u{200d}b"] {
            assert_eq!([one_line(text), escaped(text)], [text, text]);
            assert_eq!(escaped_json(text.to_owned()), text);
        }
        assert_eq!(escaped_json("\"a\u{202e}b\"".to_owned()), r#""a\u202eb""#);
    }

    proptest! {
        #[test]
        fn escaped_json_means_the_same(text in any::<String>(), at in 0..DECEIVING.len()) {
            let text = format!("{text}{}", DECEIVING[at]);
            let json = escaped_json(serde_json::to_string(&text).unwrap());
            prop_assert!(!json.contains(is_unprintable), "{json:?}");
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
