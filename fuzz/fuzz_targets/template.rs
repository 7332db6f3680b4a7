//! The template of a notifier, before the first NUL, and what is told by it: text from the cluster, behind that.
#![no_main]

use jiff::Timestamp;
use kubemoor_notify::Template;
use kubemoor_notify::message::{Message, Subject};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (template, told) = text.split_once('\0').unwrap_or((text, "told"));
    let Ok(template) = Template::parse(template.to_owned()) else { return };
    for subject in Subject::ALL {
        let message = Message {
            by: Some(told.to_owned()),
            detail: Some(told.to_owned()),
            namespace: Some(told.to_owned()),
            ..Message::new(subject, Timestamp::UNIX_EPOCH)
        };
        let Ok(made) = template.render(&message, told) else { continue };
        assert!(serde_json::from_slice::<serde_json::Value>(&made).is_ok(), "no text ends a string");
    }
});
