//! A body as the API server, or anybody who reaches the port, may send it.
#![no_main]

use kubemoor::webhook::review::{Head, Request, object};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let head = Head::parse(body);
    let Ok(request) = Request::parse(body) else { return };
    assert!(head.is_ok(), "what is read whole is read from its front");
    for text in [request.object, request.old_object].into_iter().flatten() {
        let _ = object(text);
    }
});
