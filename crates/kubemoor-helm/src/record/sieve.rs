//! A release's JSON on its way to the parser, with its manifest taken out.
//!
//! Entry point: [`RecordFilter`]. Invariant: holds no more than a part of any text, however long it is. The manifest goes
//! to the caller, piece by piece, and an empty text to the parser; of every other text no more passes than any
//! field of a record may have. What passes is JSON if what came is.

use std::io::{self, BufRead, Read};

use sha2::{Digest, Sha256};

use super::RecordError;
use super::unescape::Unescape;

/// The key of the manifest, at the top of the JSON.
const MANIFEST: &[u8] = b"manifest";

/// The key of the user's values, at the top of the JSON.
const VALUES: &[u8] = b"config";

/// Helm's spellings of absent values, besides leaving the key out.
const NO_VALUES: [&[u8]; 3] = [b"", b"{}", b"null"];

/// The maximum length of a text for the parser, in bytes. No name, time or word of a record is as long.
const PASSING: usize = 1 << 12;

/// Reads JSON from a source, without the manifest.
pub(super) struct RecordFilter<'t, R, T> {
    source: R,
    /// The bytes for the parser that it has not read yet.
    passing: Vec<u8>,
    read: usize,
    depth: usize,
    place: Place,
    /// At the top: whether a value comes next, and the key that it is of.
    is_value: bool,
    key: Vec<u8>,
    manifest: Manifest<'t, T>,
    values: Values,
}

/// The digests of a record's manifest and values.
#[derive(Clone, Copy)]
pub(super) struct Digests {
    /// Of the manifest.
    pub(super) manifest: [u8; 32],
    /// Of the user's values as Helm spells them, which sorts their keys.
    pub(super) values: [u8; 32],
}

/// The user's values so far.
#[derive(Default)]
struct Values {
    /// Whether the current text belongs to them.
    are_coming: bool,
    /// The bytes that are not hashed yet: at most one buffer of the source.
    bytes: Vec<u8>,
    /// Their first bytes, which show whether there are any values.
    first: Vec<u8>,
    hash: Sha256,
}

/// A consumer of a manifest's pieces.
pub(super) trait Take {
    fn take(&mut self, text: &str) -> Result<(), RecordError>;
}

/// The manifest so far.
struct Manifest<'t, T> {
    taker: &'t mut T,
    text: Unescape,
    hash: Sha256,
    failure: Option<RecordError>,
}

/// The place of the next byte in the JSON.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Between,
    /// In a text, after so many passed bytes; after a backslash or not.
    Text {
        passed: usize,
        escaped: bool,
    },
    /// In the manifest.
    Manifest {
        escaped: bool,
    },
}

/// The state of a [`RecordFilter`] but for its source and the manifest.
struct Sifting<'s> {
    passing: &'s mut Vec<u8>,
    depth: &'s mut usize,
    place: &'s mut Place,
    is_value: &'s mut bool,
    key: &'s mut Vec<u8>,
    values: &'s mut Values,
}

impl<'t, R: BufRead, T: Take> RecordFilter<'t, R, T> {
    pub(super) fn new(source: R, taker: &'t mut T) -> Self {
        Self {
            source,
            passing: Vec::new(),
            read: 0,
            depth: 0,
            place: Place::Between,
            is_value: false,
            key: Vec::new(),
            manifest: Manifest { taker, text: Unescape::default(), hash: Sha256::new(), failure: None },
            values: Values::default(),
        }
    }

    /// Why the manifest was not taken, else the digests.
    pub(super) fn finish(self) -> Result<Digests, RecordError> {
        match self.manifest.failure {
            Some(failure) => Err(failure),
            None => {
                Ok(Digests { manifest: self.manifest.hash.finalize().into(), values: self.values.digest() })
            }
        }
    }

    /// Processes the buffer of the source.
    fn advance(&mut self) -> io::Result<()> {
        self.passing.clear();
        self.read = 0;
        while self.passing.is_empty() {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(());
            }
            let count = chunk.len();
            let mut sifting = Sifting {
                passing: &mut self.passing,
                depth: &mut self.depth,
                place: &mut self.place,
                is_value: &mut self.is_value,
                key: &mut self.key,
                values: &mut self.values,
            };
            let mut rest = chunk;
            while let Some(piece) = sifting.sift(&mut rest) {
                if !self.manifest.take(piece) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            self.values.settle();
            self.source.consume(count);
        }
        Ok(())
    }
}

impl<R: BufRead, T: Take> Read for RecordFilter<'_, R, T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read == self.passing.len() {
            self.advance()?;
        }
        let mut rest = self.passing.get(self.read..).unwrap_or_default();
        let count = rest.read(out)?;
        self.read += count;
        Ok(count)
    }
}

impl<T: Take> Manifest<'_, T> {
    /// Takes in a piece of the manifest as JSON spells it; its end is an empty piece. Whether all is well.
    fn take(&mut self, piece: &[u8]) -> bool {
        let Self { taker, text, hash, failure } = self;
        let mut give = |text: &str| {
            hash.update(text.as_bytes());
            taker.take(text)
        };
        let taken = if piece.is_empty() { text.end() } else { text.take(piece, &mut give) };
        if let Err(error) = taken {
            failure.get_or_insert(error);
        }
        failure.is_none()
    }
}

impl Values {
    /// Takes in what has come.
    fn settle(&mut self) {
        let Self { bytes, first, hash, .. } = self;
        let longest = NO_VALUES.iter().map(|none| none.len()).max().unwrap_or_default();
        // One more tells that there are others behind.
        let room = (longest + 1).saturating_sub(first.len());
        first.extend(bytes.iter().take(room));
        hash.update(&*bytes);
        bytes.clear();
    }

    /// The same for all ways to say that there are none.
    fn digest(self) -> [u8; 32] {
        match NO_VALUES.contains(&self.first.as_slice()) {
            true => Sha256::digest(b"").into(),
            false => self.hash.finalize().into(),
        }
    }
}

impl Sifting<'_> {
    /// Passes what is no part of the manifest, up to the next piece of it.
    fn sift<'c>(&mut self, rest: &mut &'c [u8]) -> Option<&'c [u8]> {
        while let Some((byte, behind)) = rest.split_first() {
            match *self.place {
                Place::Manifest { mut escaped } => {
                    let is_end = |byte: &u8| {
                        let ends = *byte == b'"' && !escaped;
                        escaped = *byte == b'\\' && !escaped;
                        ends
                    };
                    let Some(end) = rest.iter().position(is_end) else {
                        *self.place = Place::Manifest { escaped };
                        return Some(std::mem::take(rest));
                    };
                    if end > 0 {
                        let (piece, behind) = rest.split_at_checked(end)?;
                        *self.place = Place::Manifest { escaped: false };
                        *rest = behind;
                        return Some(piece);
                    }
                    *self.place = Place::Between;
                    self.passing.push(b'"');
                    *rest = behind;
                    return Some(&[]);
                }
                Place::Text { passed, escaped } => self.pass_text(*byte, passed, escaped),
                Place::Between => self.pass(*byte),
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
            *self.place = Place::Between;
            return;
        }
        // A cut starts with a whole letter.
        let is_whole = !escaped && byte & 0xc0 != 0x80;
        let is_cut = passed == usize::MAX || (passed >= PASSING && is_whole);
        if !is_cut {
            self.passing.push(byte);
            if *self.depth == 1 && !*self.is_value {
                self.key.push(byte);
            }
        }
        let passed = if is_cut { usize::MAX } else { passed + 1 };
        *self.place = Place::Text { passed, escaped: byte == b'\\' && !escaped };
    }

    fn pass(&mut self, byte: u8) {
        self.passing.push(byte);
        let is_top = *self.depth == 1;
        if is_top && matches!(byte, b',' | b'}') {
            self.values.are_coming = false;
        }
        if self.values.are_coming && !byte.is_ascii_whitespace() {
            self.values.bytes.push(byte);
        }
        match byte {
            b'"' if is_top && *self.is_value && self.key.as_slice() == MANIFEST => {
                *self.place = Place::Manifest { escaped: false };
            }
            b'"' => {
                if is_top && !*self.is_value {
                    self.key.clear();
                }
                *self.place = Place::Text { passed: 0, escaped: false };
            }
            b'{' | b'[' => *self.depth += 1,
            b'}' | b']' => *self.depth = self.depth.saturating_sub(1),
            b':' if is_top => {
                *self.is_value = true;
                self.values.are_coming = self.key.as_slice() == VALUES;
            }
            b',' if is_top => *self.is_value = false,
            _ => {}
        }
    }
}
