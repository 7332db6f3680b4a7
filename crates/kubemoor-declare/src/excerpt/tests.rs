//! What an excerpt holds is what a parser reads.

use proptest::prelude::*;

use super::*;
use crate::samples::{any_value, spelled};

/// The value of an excerpt, opened level by level.
fn rebuilt(excerpt: &Excerpt<'_>) -> Option<Value> {
    match &*excerpt.open()? {
        Excerpt::Map(fields) => {
            fields.iter().map(|(name, value)| Some((name.clone(), rebuilt(value)?))).collect()
        }
        Excerpt::List(items) => items.iter().map(rebuilt).collect::<Option<_>>().map(Value::Array),
        scalar => scalar.value(),
    }
}

#[test]
fn malformed_json_yields_no_excerpt() {
    let text = r#"{"a":[1,{"b":"\"}","c":{}}],"d":"]"}"#;
    let cut = (0..text.len()).map(|end| text.get(..end).unwrap());
    let texts =
        ["{]", "[}", "{}{}", "{} x", r#"{"a" 1}"#, r#"{"a":1,}"#, "[1,]", "{1:2}", r#"{"a":{"b":[1,]}}"#];
    for text in cut.chain(texts) {
        assert!(Excerpt::new(text).is_none(), "{text}");
    }
}

#[test]
fn any_depth_is_opened_without_recursion() {
    let text = format!("{}{}", r#"{"a":["#.repeat(100_000), "]}".repeat(100_000));
    let excerpt = Excerpt::new(&text).unwrap();
    let item = excerpt.at(&["a"]).unwrap().items().unwrap().pop().unwrap();
    assert!(item.at(&["a"]).is_some() && item.value().is_none() && excerpt.value().is_none());
    let levels = |levels: usize| format!("{}7{}", "[".repeat(levels), "]".repeat(levels));
    assert!(Excerpt::new(&levels(127)).unwrap().value().is_some());
    assert!(Excerpt::new(&levels(128)).unwrap().value().is_none());
}

#[test]
fn debug_output_holds_no_content() {
    assert_eq!(format!("{:?}", Excerpt::new(r#"{"a":"secret"}"#)), "Some(Excerpt)");
}

#[test]
fn only_texts_of_maps_are_texts() {
    let excerpt = Excerpt::new(r#"{"a":{"b":{"c":"x","c":"\u0079","d":1,"e":null}},"f":"z"}"#).unwrap();
    let texts = excerpt.texts(&["a", "b"], ["c", "d", "e", "f"]);
    assert_eq!(texts, [Some("y".to_owned()), None, None, None]);
    assert_eq!(excerpt.texts(&[], ["a", "f"]), [None, Some("z".to_owned())]);
    assert_eq!(excerpt.texts(&["f"], ["f"]), [None]);
}

proptest! {
    #[test]
    fn any_spelling_of_a_value_is_read_as_it(
        value in any_value(), choices in proptest::collection::vec(any::<u8>(), 64)
    ) {
        let text = spelled(&value, &mut choices.into_iter().cycle());
        let excerpt = Excerpt::new(&text).unwrap();
        prop_assert_eq!(excerpt.value(), Some(value.clone()));
        prop_assert_eq!(rebuilt(&excerpt), Some(value));
    }

    #[test]
    fn any_json_is_read_as_a_parser_reads_it(text in "[\\[\\]{}\",:\\\\ a1\n]{0,90}", around in any::<bool>()) {
        let text = if around { format!("[\"{text}\",{{\"\":{text}}}]") } else { text };
        let value = serde_json::from_str::<Value>(&text).ok();
        prop_assert_eq!(Excerpt::new(&text).and_then(|excerpt| rebuilt(&excerpt)), value);
    }
}
