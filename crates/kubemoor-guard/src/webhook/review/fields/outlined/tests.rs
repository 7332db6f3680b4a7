//! What the outline gives is what reading the whole body gives.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::sample_values::{any_value, spelled};
use crate::webhook::review::fields::Until;
use crate::webhook::review::tests::UPDATE;
use crate::webhook::review::{Request, ReviewError};

/// A request in words, to be compared.
fn said(request: Result<Request<'_>, ReviewError>) -> String {
    match request {
        Err(error) => error.to_string(),
        Ok(request) => {
            let texts = [&request.object, &request.old_object].map(|text| text.as_ref().map(Excerpt::get));
            let Request { head, actor, dry_run, field_manager, .. } = &request;
            format!("{head:?} {actor:?} {dry_run} {field_manager:?} {texts:?}")
        }
    }
}

/// Holds the outlined fields against those that are read; says whether there
/// were any.
fn check(body: &[u8]) -> bool {
    let outlined = Fields::outlined(body).map(Fields::request);
    let Some(found) = outlined else { return false };
    if let Ok(fields) = Fields::read(body, Until::End) {
        assert_eq!(said(found), said(fields.request()), "{}", String::from_utf8_lossy(body));
    }
    true
}

/// An editor's words: names and texts that look like the review's own.
fn crafted(value: Value, words: &[&str]) -> Value {
    match value {
        Value::Object(map) => {
            let mut words = words.iter().copied().cycle();
            let name = |(name, value): (String, Value)| match words.next() {
                Some("") | None => (name, value),
                Some(word) => (word.to_owned(), crafted(value, &[word, "oldObject"])),
            };
            map.into_iter().map(name).collect()
        }
        Value::String(_) => json!(words.concat()),
        other => other,
    }
}

#[test]
fn review_sent_by_the_api_server_is_outlined() {
    assert!(check(UPDATE.as_bytes()));
    assert!(check(UPDATE.replace(r#""object":{"#, r#""object":null,"future":{"#).as_bytes()));
}

#[test]
fn an_editor_cannot_pass_another_object_off() {
    let decoys = [
        r#"{"oldObject":{"spec":{}},"object":{"a":1}}"#,
        r#"{"metadata":{"annotations":{"a":"},\"oldObject\":{\"kind\":\"X\"},\"dryRun\":true}}"}}}"#,
        r#"{"a\"oldObject":{},"oldObject\\":{"oldObject":{}},"\u006fldObject":1}"#,
        r#"{"a":"\\","b":"\\\"","c":"\\\\","oldObject":"]}","d":["\"",{"]":"["}]}"#,
        r#"{"a":"\u0022},\u0022oldObject\u0022:{","dryRun":[{"dryRun":true}]}"#,
        r#"{"oldObject":1,"oldObject":2,"":{"":""}}"#,
    ];
    let (front, rest) = UPDATE.split_once(r#""object":"#).unwrap();
    let (_, tail) = rest.split_once(r#","dryRun""#).unwrap();
    for (new, old) in decoys.iter().flat_map(|new| decoys.iter().map(move |old| (new, old))) {
        let body = format!(r#"{front}"object":{new},"oldObject":{old},"dryRun"{tail}"#);
        assert!(check(body.as_bytes()), "{body}");
        let request = Fields::outlined(body.as_bytes()).unwrap().request().unwrap();
        assert_eq!(request.object.unwrap().get(), *new);
        assert_eq!(request.old_object.unwrap().get(), *old);
    }
}

#[test]
fn malformed_review_is_not_outlined() {
    let twice = UPDATE.replace(r#""dryRun":true"#, r#""dryRun":true,"dryRun":false"#);
    let escaped = UPDATE.replace(r#""oldObject""#, r#""old\u004fbject""#);
    let typed = UPDATE.replace(r#""dryRun":true"#, r#""dryRun":"yes""#);
    for body in ["", "{", "[]", "7", r#"{"request":null}"#, &twice, &escaped, &typed, &format!("{UPDATE}}}")]
    {
        assert!(!check(body.as_bytes()), "{body}");
    }
    assert!(!check(&[UPDATE.as_bytes(), b"\xff"].concat()));
}

proptest! {
    #[test]
    fn whatever_an_editor_writes_is_found_as_it_is_read(
        new in any_value(), old in any_value(), choices in proptest::collection::vec(any::<u8>(), 64),
        words in proptest::collection::vec(
            prop_oneof![Just("oldObject"), Just("object"), Just("dryRun"), Just("\",\"oldObject\":{"), Just("\\"), Just("")],
            0..4,
        ),
    ) {
        let mut review: Value = serde_json::from_str(UPDATE).unwrap();
        review["request"]["object"] = crafted(new, &words);
        review["request"]["oldObject"] = crafted(old, &words);
        prop_assert!(check(review.to_string().as_bytes()));
        check(spelled(&review, &mut choices.into_iter().cycle()).as_bytes());
    }

    #[test]
    fn a_changed_body_is_found_as_it_is_read(
        at in 0..UPDATE.len(), drop in 0_usize..3, by in "[\\[\\]{}\",:\\\\ 1]{0,3}"
    ) {
        let body = [UPDATE.get(..at).unwrap_or_default(), &by, UPDATE.get(at + drop..).unwrap_or_default()].concat();
        check(body.as_bytes());
    }
}
