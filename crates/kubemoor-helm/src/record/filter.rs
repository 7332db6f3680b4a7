//! A release's JSON on its way to the parser, with its manifest taken out. Holds no more than a part of any text, however
//! long it is: the manifest goes to its keeper, piece by piece, and an empty text to the parser; of every other text no more
//! passes than any field of a record may have. What passes is JSON if what came is.

use std::io::{self, BufRead, Read};

use sha2::{Digest, Sha256};

use super::{MANIFEST_CAP, RecordError, json_error};

/// The key of the manifest, at the top of the JSON.
const MANIFEST: &[u8] = b"manifest";

/// The key of the user's values, at the top of the JSON.
const VALUES: &[u8] = b"config";

/// Helm's spellings of absent values, besides leaving the key out.
const NO_VALUES: [&[u8]; 2] = [b"{}", b"null"];

/// The maximum length of a text for the parser, in bytes. No name, time or word of a record is as long.
const PASSING: usize = 1 << 12;

pub(super) struct RecordFilter<'t, R> {
    source: R,
    /// How many of the passing bytes the parser has read.
    read: usize,
    state: FilterState,
    manifest: &'t mut KeptManifest,
}

#[derive(Default)]
struct FilterState {
    passing: Vec<u8>,
    depth: usize,
    place: FilterPlace,
    /// At the top: whether a value comes next, and the key that it is of.
    is_value: bool,
    key: Vec<u8>,
    values: UserValues,
}

#[derive(Clone, Copy)]
pub(super) struct Digests {
    pub(super) manifest: [u8; 32],
    /// Of the user's values as Helm spells them, which sorts their keys.
    pub(super) values: [u8; 32],
}

#[derive(Default)]
struct UserValues {
    /// Whether the current text belongs to them.
    are_coming: bool,
    /// The bytes that are not hashed yet: at most one buffer of the source.
    bytes: Vec<u8>,
    hash: Sha256,
}

/// Keeps a manifest that is no longer than it may be, and hashes it.
pub(super) struct KeptManifest {
    pub(super) text: String,
    pub(super) length: usize,
    keeps: usize,
    /// The end of the last piece, which the next one continues.
    held: Vec<u8>,
    hash: Sha256,
    failure: Option<RecordError>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum FilterPlace {
    #[default]
    Between,
    /// In a text, after so many passed bytes; after a backslash or not.
    Text {
        passed: usize,
        escaped: bool,
    },
    Manifest {
        escaped: bool,
    },
}

impl<'t, R: BufRead> RecordFilter<'t, R> {
    pub(super) fn new(source: R, manifest: &'t mut KeptManifest) -> Self {
        Self { source, read: 0, state: FilterState::default(), manifest }
    }

    /// Why the manifest was not taken, else the digests.
    pub(super) fn finish(self) -> Result<Digests, RecordError> {
        match self.manifest.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Digests {
                manifest: self.manifest.hash.finalize_reset().into(),
                values: self.state.values.digest(),
            }),
        }
    }

    fn advance(&mut self) -> io::Result<()> {
        self.state.passing.clear();
        self.read = 0;
        while self.state.passing.is_empty() {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(());
            }
            let (count, mut rest) = (chunk.len(), chunk);
            while let Some(piece) = self.state.sift(&mut rest) {
                if !self.manifest.take(piece) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            self.state.values.settle();
            self.source.consume(count);
        }
        Ok(())
    }
}

impl<R: BufRead> Read for RecordFilter<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read == self.state.passing.len() {
            self.advance()?;
        }
        let mut rest = self.state.passing.get(self.read..).unwrap_or_default();
        let count = rest.read(out)?;
        self.read += count;
        Ok(count)
    }
}

impl KeptManifest {
    /// Keeps the text of a manifest of at most `keeps` bytes in the place of `text`.
    pub(super) fn new(keeps: usize, text: String) -> Self {
        Self { text, length: 0, keeps, held: Vec::new(), hash: Sha256::new(), failure: None }
    }

    /// Takes in a piece of the manifest as JSON spells it; its end is an empty piece. Whether all is well.
    fn take(&mut self, piece: &[u8]) -> bool {
        self.held.extend_from_slice(piece);
        let end = if piece.is_empty() { self.held.len() } else { whole(&self.held) };
        let json: Vec<u8> = std::iter::once(b'"').chain(self.held.drain(..end)).chain([b'"']).collect();
        if let Err(error) = serde_json::from_slice(&json).map_err(json_error).and_then(|text| self.keep(text))
        {
            self.failure.get_or_insert(error);
        }
        self.failure.is_none()
    }

    fn keep(&mut self, text: String) -> Result<(), RecordError> {
        self.hash.update(text.as_bytes());
        self.length += text.len();
        if self.length > MANIFEST_CAP {
            return Err(RecordError::LongManifest { cap: MANIFEST_CAP });
        }
        if self.length <= self.keeps {
            self.text.push_str(&text);
        } else {
            self.text = String::new();
        }
        Ok(())
    }
}

impl UserValues {
    fn settle(&mut self) {
        self.hash.update(&self.bytes);
        self.bytes.clear();
    }

    /// The same for all ways to say that there are none.
    fn digest(self) -> [u8; 32] {
        let digest = self.hash.finalize();
        let is_none = NO_VALUES.iter().any(|none| Sha256::digest(none) == digest);
        let digest = if is_none { Sha256::digest(b"") } else { digest };
        digest.into()
    }
}

impl FilterState {
    /// Passes what is no part of the manifest, up to the next piece of it.
    fn sift<'c>(&mut self, rest: &mut &'c [u8]) -> Option<&'c [u8]> {
        while let Some((byte, behind)) = rest.split_first() {
            match self.place {
                FilterPlace::Manifest { mut escaped } => {
                    let is_end = |byte: &u8| {
                        let ends = *byte == b'"' && !escaped;
                        escaped = *byte == b'\\' && !escaped;
                        ends
                    };
                    let Some(end) = rest.iter().position(is_end) else {
                        self.place = FilterPlace::Manifest { escaped };
                        return Some(std::mem::take(rest));
                    };
                    if end > 0 {
                        let (piece, behind) = rest.split_at_checked(end)?;
                        self.place = FilterPlace::Manifest { escaped: false };
                        *rest = behind;
                        return Some(piece);
                    }
                    self.place = FilterPlace::Between;
                    self.passing.push(b'"');
                    *rest = behind;
                    return Some(&[]);
                }
                FilterPlace::Text { passed, escaped } => self.pass_text(*byte, passed, escaped),
                FilterPlace::Between => self.pass(*byte),
            }
            *rest = behind;
        }
        None
    }

    fn pass_text(&mut self, byte: u8, passed: usize, escaped: bool) {
        if self.values.are_coming {
            self.values.bytes.push(byte);
        }
        if byte == b'"' && !escaped {
            self.passing.push(byte);
            self.place = FilterPlace::Between;
            return;
        }
        // A cut starts with a whole letter.
        let is_whole = !escaped && byte & 0xc0 != 0x80;
        let is_cut = passed == usize::MAX || (passed >= PASSING && is_whole);
        if !is_cut {
            self.passing.push(byte);
            if self.depth == 1 && !self.is_value {
                self.key.push(byte);
            }
        }
        let passed = if is_cut { usize::MAX } else { passed + 1 };
        self.place = FilterPlace::Text { passed, escaped: byte == b'\\' && !escaped };
    }

    fn pass(&mut self, byte: u8) {
        self.passing.push(byte);
        let is_top = self.depth == 1;
        if is_top && matches!(byte, b',' | b'}') {
            self.values.are_coming = false;
        }
        if self.values.are_coming && !byte.is_ascii_whitespace() {
            self.values.bytes.push(byte);
        }
        match byte {
            b'"' if is_top && self.is_value && self.key.as_slice() == MANIFEST => {
                self.place = FilterPlace::Manifest { escaped: false };
            }
            b'"' => {
                if is_top && !self.is_value {
                    self.key.clear();
                }
                self.place = FilterPlace::Text { passed: 0, escaped: false };
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if is_top => {
                self.is_value = true;
                self.values.are_coming = self.key.as_slice() == VALUES;
            }
            b',' if is_top => self.is_value = false,
            _ => {}
        }
    }
}

/// How many bytes of a JSON text begin no escape or letter that goes on behind them.
fn whole(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = match rest {
            // The first half of a letter that takes two escapes.
            [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..] => 12,
            [b'\\', b'u', ..] => 6,
            [b'\\', ..] | [0xc0..=0xdf, ..] => 2,
            [0xe0..=0xef, ..] => 3,
            [0xf0..=0xff, ..] => 4,
            _ => 1,
        };
        if length > rest.len() {
            break;
        }
        at += length;
    }
    at
}
