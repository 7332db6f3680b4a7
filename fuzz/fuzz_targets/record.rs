//! A record's payload: base64, gzip or not, JSON. The input is tried as the
//! payload itself, and as the content of one, so that the layers below base64
//! and gzip are reached too.
#![no_main]

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use kubemoor_helm::record::{decode, parse_record_name, record_name};
use libfuzzer_sys::fuzz_target;

const CAP: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let compressed = encoder.write_all(data).and_then(|()| encoder.finish()).unwrap_or_default();
    let plain = decode(STANDARD.encode(data).as_bytes(), CAP);
    let zipped = decode(STANDARD.encode(compressed).as_bytes(), CAP);
    // Compression changes nothing, unless the content itself looks compressed.
    if !data.starts_with(&[0x1f, 0x8b, 0x08]) {
        assert_eq!(plain.as_ref().ok(), zipped.as_ref().ok());
    }
    for record in [decode(data, CAP), plain, zipped].into_iter().flatten() {
        let name = record_name(&record.name, record.revision);
        assert_eq!(parse_record_name(&name), Some((record.name, record.revision)));
    }
});
