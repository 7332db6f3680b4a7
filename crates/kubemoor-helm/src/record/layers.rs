//! The layers of a record: base64, gzip or none, JSON.
//!
//! Entry point: [`layers`]. Invariant: each layer is read as the next one asks for it.

mod readers;

use std::io::{self, BufReader, Read};

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::read::DecoderReader;
use flate2::bufread::MultiGzDecoder;

use self::readers::{Capped, Unbroken};
use super::sieve::{RecordFilter, Take};
use super::{MANIFEST_CAP, Record, RecordError, wire};

/// The first bytes of gzip as Helm tests for them; a payload without them is
/// plain JSON, as Helm wrote it before it compressed.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Helm's base64: the standard alphabet, padding required.
pub(super) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

/// Keeps a manifest that is no longer than it may be.
pub(super) struct Kept {
    pub(super) text: String,
    /// Its length so far.
    pub(super) length: usize,
    keeps: usize,
}

/// Reads a record through its layers: base64, gzip or none, JSON.
pub(super) fn layers(payload: impl Read, cap: usize, kept: &mut Kept) -> Result<Record, RecordError> {
    read(opened(payload)?, cap, kept)
}

/// The whole JSON of a record, if it has at most `cap` bytes.
pub(super) fn whole(payload: impl Read, cap: usize) -> Result<Vec<u8>, RecordError> {
    let mut json = Vec::new();
    let mut capped = Capped { source: opened(payload)?, left: cap, exceeded: false, failure: None };
    let outcome = capped.read_to_end(&mut json);
    match (capped.exceeded, outcome) {
        (true, _) => Err(RecordError::TooLarge { cap }),
        (false, Err(error)) => Err(capped.failure.map_or(RecordError::Decompress(error), broken)),
        (false, Ok(_)) => Ok(json),
    }
}

/// The content below base64, and below gzip where it is compressed.
fn opened<'p>(payload: impl Read + 'p) -> Result<Box<dyn Read + 'p>, RecordError> {
    let mut bytes = BufReader::new(DecoderReader::new(Unbroken(BufReader::new(payload)), &BASE64));
    let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
    bytes.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic).map_err(RecordError::Base64)?;
    let compressed = magic == GZIP_MAGIC;
    let whole = BufReader::new(io::Cursor::new(magic).chain(bytes));
    Ok(if compressed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// The failure of a layer.
fn broken(failure: io::Error) -> RecordError {
    let inner = failure.get_ref().and_then(|inner| inner.downcast_ref::<base64::DecodeError>());
    if inner.is_some() { RecordError::Base64(failure) } else { RecordError::Decompress(failure) }
}

/// Reads the JSON of a release from `source`, at most `cap` bytes of it.
fn read(source: impl Read, cap: usize, kept: &mut Kept) -> Result<Record, RecordError> {
    let mut capped = Capped { source: BufReader::new(source), left: cap, exceeded: false, failure: None };
    let mut sieve = RecordFilter::new(BufReader::new(&mut capped), kept);
    let parsed = wire::Release::read(&mut sieve);
    let digests = sieve.finish();
    if capped.exceeded {
        return Err(RecordError::TooLarge { cap });
    }
    if let Some(failure) = capped.failure {
        return Err(broken(failure));
    }
    let digests = digests?;
    parsed?.into_record(std::mem::take(&mut kept.text), digests)
}

impl Kept {
    pub(super) fn new(keeps: usize) -> Self {
        Self { text: String::new(), length: 0, keeps }
    }
}

impl Take for Kept {
    fn take(&mut self, text: &str) -> Result<(), RecordError> {
        self.length += text.len();
        if self.length > MANIFEST_CAP {
            return Err(RecordError::LongManifest { cap: MANIFEST_CAP });
        }
        if self.length <= self.keeps {
            self.text.push_str(text);
        } else {
            self.text = String::new();
        }
        Ok(())
    }
}
