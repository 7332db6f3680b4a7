//! What the outline finds is what a parser reads.

use proptest::prelude::*;

use serde_json::Value;

use super::*;
use crate::samples::{any_value, spelled};

/// The value that a part is, taken apart level by level.
fn rebuilt(part: JsonPart<'_, '_>) -> Option<Value> {
    if part.is_map() {
        let entry = |entry: MapEntry<'_, '_>| {
            let name = serde_json::from_str(&format!("\"{}\"", entry.name)).ok()?;
            Some((name, rebuilt(entry.value)?))
        };
        return Some(Value::Object(part.entries()?.into_iter().map(entry).collect::<Option<_>>()?));
    }
    if part.is_list() {
        let items = part.entries()?.into_iter().map(|item| rebuilt(item.value));
        return items.collect::<Option<_>>().map(Value::Array);
    }
    serde_json::from_str(part.text()).ok()
}

fn outlined(text: &str) -> Option<Value> {
    rebuilt(Excerpt::new(text).part())
}

#[test]
fn names_and_values_are_found_wherever_blocks_end() {
    for length in 0..140 {
        for filling in ["a", r"\\", r#"\""#, r#"\\\""#, "}", "é", r"\u0022"] {
            let text = filling.repeat(length);
            let text = format!(r#"{{"{text}":["{text}",{{}},-1.5e3,{{"{text}":[null]}}],"b":"{text}"}}"#);
            assert_eq!(outlined(&text), Some(serde_json::from_str(&text).unwrap()), "{text}");
        }
    }
}

#[test]
fn a_text_that_ends_within_a_value_is_none() {
    let text = r#"{"a":[1,{"b":"\"}","c":{}}],"d":"]"}"#;
    assert!(outlined(text).is_some());
    for end in 0..text.len() {
        let cut = text.get(..end).unwrap();
        assert_eq!(outlined(cut), None, "{cut}");
    }
}

#[test]
fn malformed_json_at_outlined_levels_yields_no_outline() {
    let texts = [
        "{]",
        "[}",
        "{}{}",
        "{} x",
        r#"{"a" 1}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a":1,}"#,
        "[1,]",
        "[,1]",
        "{1:2}",
        "[",
    ];
    for text in texts {
        assert_eq!(outlined(text), None, "{text}");
    }
}

#[test]
fn any_depth_is_outlined_without_recursion() {
    let text = format!("{}{}", r#"{"a":["#.repeat(100_000), "]}".repeat(100_000));
    let excerpt = Excerpt::new(&text);
    let entries = excerpt.part().entries().unwrap();
    assert_eq!(entries[0].value.text().len(), text.len() - 6);
}

#[test]
fn an_excerpt_is_the_text_without_space_around_it() {
    assert_eq!(Excerpt::new(" {} \n").get(), "{}");
    assert_eq!(format!("{:?}", Excerpt::new("\"secret\"")), "Excerpt(8 bytes)");
}

proptest! {
    #[test]
    fn any_spelling_of_a_value_is_read_as_it(
        value in any_value(), choices in proptest::collection::vec(any::<u8>(), 64)
    ) {
        let text = spelled(&value, &mut choices.into_iter().cycle());
        prop_assert_eq!(outlined(&text), Some(serde_json::from_str(&text).unwrap()));
        prop_assert_eq!(outlined(&text), Some(value));
    }

    #[test]
    fn any_json_is_read_as_a_parser_reads_it(text in "[\\[\\]{}\",:\\\\ a1\n]{0,90}", around in any::<bool>()) {
        let text = if around { format!("[\"{text}\",{{\"\":{text}}}]") } else { text };
        let found = outlined(&text);
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(found, Some(value));
        }
    }

    #[test]
    fn a_changed_text_is_found_as_a_parser_reads_it(
        value in any_value(), choices in proptest::collection::vec(any::<u8>(), 64),
        at in any::<prop::sample::Index>(), by in "[\\[\\]{}\",:\\\\ 1]{0,3}"
    ) {
        let mut text = spelled(&value, &mut choices.into_iter().cycle());
        let at = at.index(text.len() + 1);
        if text.is_char_boundary(at) {
            text.insert_str(at, &by);
        }
        let found = outlined(&text);
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(found, Some(value));
        }
    }
}
