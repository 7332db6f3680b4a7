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

#[test]
fn long_text_is_cut_between_characters_and_says_so() {
    assert_eq!([shortened("", 0), shortened("äöü", 3), shortened("äöü", 2)], ["", "äöü", "ä…"]);
    assert_eq!(shortened("ab".to_owned(), 1), "…");
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
