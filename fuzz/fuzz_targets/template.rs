//! Text from the cluster, told by a template of a notifier.
#![no_main]

use std::sync::LazyLock;

use jiff::Timestamp;
use kubemoor_notify::Format;
use kubemoor_notify::message::{Notification, NotificationSubject};
use libfuzzer_sys::fuzz_target;

const SOURCE: &str = r#"{"title": {{ title }}, "all": {{ "Kubemoor: " ~ text }}, "by": {{ by | replace("a", "\"") | trim | upper }},
"words": {{ [title, detail, by] | join(", ") }}, "place": {{ source ~ namespace }}}"#;

static FORMAT: LazyLock<Format> =
    LazyLock::new(|| Format::template(SOURCE.to_owned()).expect("the template serves"));

fuzz_target!(|told: &str| {
    for subject in NotificationSubject::ALL {
        let message = Notification {
            by: Some(told.to_owned()),
            detail: Some(told.to_owned()),
            namespace: Some(told.to_owned()),
            ..Notification::new(subject, Timestamp::UNIX_EPOCH)
        };
        match FORMAT.body(&message, told) {
            Ok(Some(made)) => {
                assert!(serde_json::from_slice::<serde_json::Value>(&made).is_ok(), "no text ends a string");
            }
            Ok(None) => panic!("the template prints something"),
            // Too many steps, for a long text.
            Err(error) => assert!(!error.contains("JSON"), "{error}"),
        }
    }
});
