//! The template of a notifier, before the first NUL, and what is told by it: text from the cluster, behind that.
#![no_main]

use jiff::Timestamp;
use kubemoor_notify::Format;
use kubemoor_notify::message::{Notification, NotificationSubject};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (template, told) = text.split_once('\0').unwrap_or((text, "told"));
    let Ok(format) = Format::template(template.to_owned()) else { return };
    for subject in NotificationSubject::ALL {
        let message = Notification {
            by: Some(told.to_owned()),
            detail: Some(told.to_owned()),
            namespace: Some(told.to_owned()),
            ..Notification::new(subject, Timestamp::UNIX_EPOCH)
        };
        let Ok(Some(made)) = format.body(&message, told) else { continue };
        assert!(serde_json::from_slice::<serde_json::Value>(&made).is_ok(), "no text ends a string");
    }
});
