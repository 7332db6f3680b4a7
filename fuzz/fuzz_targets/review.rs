//! A body as the API server, or anybody who reaches the port, may send it.
#![no_main]

use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::prune::ObjectPruner;
use kubemoor_guard::webhook::review::{AdmissionRequest, ReviewHead};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let head = ReviewHead::parse(body);
    let Ok(request) = AdmissionRequest::parse(body) else { return };
    let texts = [&request.object, &request.old_object];
    let objects = texts.map(|text| text.as_ref().and_then(Excerpt::value));
    if let (Some(new), Some(old)) = (&request.object, &request.old_object) {
        let _ = ObjectPruner::new(&[]).pair(old, new);
    }
    // Of JSON a parser sees the same.
    let Ok(whole) = serde_json::from_slice::<Value>(body) else { return };
    assert!(head.is_ok(), "what is read whole is read from its front");
    for (found, name) in objects.iter().zip(["object", "oldObject"]) {
        let read = whole["request"].get(name).filter(|object| !object.is_null());
        assert_eq!(found.as_ref(), read, "the {name} that is judged is the one that is sent");
    }
});
