//! Filters a release's JSON on its way to the parser and takes the manifest out, in bounded memory. The manifest is
//! read piece by piece, and the parser gets an empty string for it. Every other string is cut to a length that no
//! record field exceeds. The output is valid JSON if the input is.

use std::io::{self, BufRead, Read};

use sha2::{Digest, Sha256};

use super::{MANIFEST_CAP, RecordError, json_error};

/// How Helm writes absent values, besides omitting the key.
const NO_VALUES: [&[u8]; 2] = [b"{}", b"null"];

/// The maximum length of a string for the parser, in bytes. No name, time or status of a record is that long.
pub(super) const PASSING: usize = 1 << 12;

/// The length of a piece of the manifest, in bytes.
pub(super) const PIECE: usize = 1 << 13;

pub(super) struct RecordFilter<R> {
    source: R,
    state: FilterState,
}

/// What the filter takes out of the JSON.
pub(super) struct FilteredParts {
    /// Empty if it is too long to be kept.
    pub(super) manifest: String,
    pub(super) length: usize,
    pub(super) digest: [u8; 32],
    /// The digest of the user's values as Helm spells them, which sorts their keys.
    pub(super) values: [u8; 32],
}

#[derive(Default)]
struct FilterState {
    passing: Vec<u8>,
    /// How many of the passing bytes the parser has read.
    read: usize,
    depth: usize,
    /// The last key at the top level, and the field whose value follows.
    key: Vec<u8>,
    field: TopField,
    /// Within a string: how many bytes of it have passed, or `usize::MAX` once the rest is cut off.
    text: Option<usize>,
    escape: Escape,
    manifest: KeptManifest,
    /// The bytes of the values that are not hashed yet: at most one buffer of the source.
    values: Vec<u8>,
    values_hash: Sha256,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum TopField {
    /// None yet: a key follows.
    #[default]
    Key,
    Manifest,
    Values,
    Other,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Escape {
    #[default]
    None,
    /// After the backslash.
    Begun,
    /// This many digits follow.
    Digits(u8),
}

#[derive(Default)]
struct KeptManifest {
    text: String,
    length: usize,
    keeps: usize,
    /// The current piece, still as JSON text.
    piece: Vec<u8>,
    hash: Sha256,
    failure: Option<RecordError>,
}

impl<R: BufRead> RecordFilter<R> {
    /// Keeps the manifest in `room` if it has at most `keeps` bytes.
    pub(super) fn new(source: R, keeps: usize, room: String) -> Self {
        let manifest = KeptManifest { text: room, keeps, ..KeptManifest::default() };
        Self { source, state: FilterState { manifest, ..FilterState::default() } }
    }

    /// The parts that were taken out, or why the manifest could not be read.
    pub(super) fn finish(self) -> Result<FilteredParts, RecordError> {
        let FilterState { manifest, values_hash, .. } = self.state;
        if let Some(failure) = manifest.failure {
            return Err(failure);
        }
        let values = values_hash.finalize();
        // All notations of absent values have the same digest.
        let is_none = NO_VALUES.iter().any(|none| Sha256::digest(none) == values);
        Ok(FilteredParts {
            manifest: manifest.text,
            length: manifest.length,
            digest: manifest.hash.finalize().into(),
            values: if is_none { Sha256::digest(b"") } else { values }.into(),
        })
    }
}

impl<R: BufRead> Read for RecordFilter<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Self { source, state } = self;
        while state.read == state.passing.len() {
            state.passing.clear();
            state.read = 0;
            let chunk = source.fill_buf()?;
            let length = chunk.len();
            if length == 0 {
                return Ok(0);
            }
            chunk.iter().for_each(|byte| state.sift(*byte));
            source.consume(length);
            state.values_hash.update(&state.values);
            state.values.clear();
            if state.manifest.failure.is_some() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let count = state.passing.get(state.read..).unwrap_or_default().read(out)?;
        state.read += count;
        Ok(count)
    }
}

impl FilterState {
    fn sift(&mut self, byte: u8) {
        match self.text {
            Some(passed) => self.sift_text(byte, passed),
            None => self.sift_structure(byte),
        }
    }

    fn sift_text(&mut self, byte: u8, passed: usize) {
        if self.field == TopField::Values {
            self.values.push(byte);
        }
        let is_manifest = self.field == TopField::Manifest && self.depth == 1;
        if byte == b'"' && self.escape != Escape::Begun {
            (self.text, self.escape) = (None, Escape::None);
            self.passing.push(byte);
            if is_manifest {
                self.manifest.take_piece();
            }
            return;
        }
        // A string is split only before a character or its escape.
        let is_whole = self.escape == Escape::None && byte & 0xc0 != 0x80;
        self.escape = match (self.escape, byte) {
            (Escape::None, b'\\') => Escape::Begun,
            (Escape::Begun, b'u') => Escape::Digits(4),
            (Escape::Digits(left), _) if left > 1 => Escape::Digits(left - 1),
            _ => Escape::None,
        };
        if is_manifest {
            return self.manifest.push(byte, is_whole);
        }
        let is_cut = passed == usize::MAX || (passed >= PASSING && is_whole);
        self.text = Some(if is_cut { usize::MAX } else { passed + 1 });
        if !is_cut {
            self.passing.push(byte);
            if self.depth == 1 && self.field == TopField::Key {
                self.key.push(byte);
            }
        }
    }

    fn sift_structure(&mut self, byte: u8) {
        self.passing.push(byte);
        let is_top = self.depth == 1;
        if is_top && matches!(byte, b',' | b'}') {
            self.field = TopField::Key;
        }
        if self.field == TopField::Values && !byte.is_ascii_whitespace() {
            self.values.push(byte);
        }
        match byte {
            b'"' => {
                self.text = Some(0);
                if is_top && self.field == TopField::Key {
                    self.key.clear();
                }
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if is_top => {
                self.field = match self.key.as_slice() {
                    b"manifest" => TopField::Manifest,
                    b"config" => TopField::Values,
                    _ => TopField::Other,
                }
            }
            _ => {}
        }
    }
}

impl KeptManifest {
    /// Takes the next byte of the manifest's JSON text; `is_whole` if a character begins with it.
    fn push(&mut self, byte: u8, is_whole: bool) {
        if is_whole && self.piece.len() >= PIECE {
            // The first half of a surrogate pair. Valid JSON has no two of them in a row.
            let half = [b'8', b'9', b'a', b'b', b'A', b'B'];
            let is_half = matches!(self.piece.as_slice(), [.., b'\\', b'u', b'd' | b'D', digit, _, _] if half.contains(digit));
            if !is_half || self.piece.len() >= 2 * PIECE {
                self.take_piece();
            }
        }
        self.piece.push(byte);
    }

    fn take_piece(&mut self) {
        let json = [b"\"", self.piece.as_slice(), b"\""].concat();
        self.piece.clear();
        let taken = serde_json::from_slice(&json).map_err(json_error).and_then(|text| self.keep(text));
        if let Err(error) = taken {
            self.failure.get_or_insert(error);
        }
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
