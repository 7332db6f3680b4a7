//! A release's JSON on its way to the parser, with its manifest taken out. Holds no more than a part of any text, however
//! long it is: the manifest goes to its keeper, piece by piece, and an empty text to the parser; of every other text no more
//! passes than any field of a record may have. What passes is JSON if what came is.

use std::io::{self, BufRead, Read};

use sha2::{Digest, Sha256};

use super::{KeptManifest, RecordError};

/// The key of the manifest, at the top of the JSON.
const MANIFEST: &[u8] = b"manifest";

/// The key of the user's values, at the top of the JSON.
const VALUES: &[u8] = b"config";

/// Helm's spellings of absent values, besides leaving the key out.
const NO_VALUES: [&[u8]; 3] = [b"", b"{}", b"null"];

/// The maximum length of a text for the parser, in bytes. No name, time or word of a record is as long.
const PASSING: usize = 1 << 12;

pub(super) struct RecordFilter<'t, R> {
    source: R,
    /// How many of the passing bytes the parser has read.
    read: usize,
    state: FilterState,
    manifest: ManifestDigester<'t>,
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
    /// Their first bytes, which show whether there are any values.
    first: Vec<u8>,
    hash: Sha256,
}

struct ManifestDigester<'t> {
    kept: &'t mut KeptManifest,
    text: Unescape,
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
    pub(super) fn new(source: R, kept: &'t mut KeptManifest) -> Self {
        let manifest =
            ManifestDigester { kept, text: Unescape::default(), hash: Sha256::new(), failure: None };
        Self { source, read: 0, state: FilterState::default(), manifest }
    }

    /// Why the manifest was not taken, else the digests.
    pub(super) fn finish(self) -> Result<Digests, RecordError> {
        match self.manifest.failure {
            Some(failure) => Err(failure),
            None => Ok(Digests {
                manifest: self.manifest.hash.finalize().into(),
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

impl ManifestDigester<'_> {
    /// Takes in a piece of the manifest as JSON spells it; its end is an empty piece. Whether all is well.
    fn take(&mut self, piece: &[u8]) -> bool {
        let Self { kept, text, hash, failure } = self;
        let mut give = |text: &str| {
            hash.update(text.as_bytes());
            kept.take(text)
        };
        let taken = if piece.is_empty() { text.end() } else { text.take(piece, &mut give) };
        if let Err(error) = taken {
            failure.get_or_insert(error);
        }
        failure.is_none()
    }
}

impl UserValues {
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

const PIECE: usize = 1 << 14;

/// Takes the escapes out of a text that comes in pieces.
#[derive(Default)]
pub(super) struct Unescape {
    /// The output that is not passed on yet.
    held: Vec<u8>,
    escape: Escape,
    /// The first half of a letter that takes two escapes.
    high: Option<u32>,
}

#[derive(Clone, Copy, Default)]
enum Escape {
    #[default]
    None,
    Begun,
    /// The number of digits read, of four, and their value.
    Digits(u8, u32),
}

impl Unescape {
    /// Decodes a piece of the text and passes the result on.
    pub(super) fn take(
        &mut self,
        piece: &[u8],
        give: &mut impl FnMut(&str) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        for byte in piece {
            self.byte(*byte).ok_or_else(syntax)?;
            if self.held.len() >= PIECE {
                self.give(give)?;
            }
        }
        self.give(give)
    }

    pub(super) fn end(&mut self) -> Result<(), RecordError> {
        let is_whole = self.held.is_empty() && matches!(self.escape, Escape::None) && self.high.is_none();
        *self = Self::default();
        if is_whole { Ok(()) } else { Err(syntax()) }
    }

    /// None where the text is no JSON.
    fn byte(&mut self, byte: u8) -> Option<()> {
        match self.escape {
            Escape::None if byte == b'\\' => self.escape = Escape::Begun,
            Escape::None => {
                (byte >= 0x20 && self.high.is_none()).then_some(())?;
                self.held.push(byte);
            }
            Escape::Begun => {
                self.escape = Escape::None;
                let letter = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'u' => {
                        self.escape = Escape::Digits(0, 0);
                        return Some(());
                    }
                    _ => return None,
                };
                self.high.is_none().then_some(())?;
                self.held.push(letter);
            }
            Escape::Digits(count, sum) => {
                let sum = sum * 16 + char::from(byte).to_digit(16)?;
                self.escape = Escape::Digits(count + 1, sum);
                if count == 3 {
                    self.escape = Escape::None;
                    self.unit(sum)?;
                }
            }
        }
        Some(())
    }

    /// Takes in a unit of UTF-16.
    fn unit(&mut self, unit: u32) -> Option<()> {
        let letter = match (self.high.take(), unit) {
            (None, 0xd800..=0xdbff) => {
                self.high = Some(unit);
                return Some(());
            }
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high - 0xd800) << 10) + (unit - 0xdc00),
            (Some(_), _) => return None,
            (None, unit) => unit,
        };
        let letter = char::from_u32(letter)?;
        self.held.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Some(())
    }

    /// Gives on all whole letters.
    fn give(&mut self, give: &mut impl FnMut(&str) -> Result<(), RecordError>) -> Result<(), RecordError> {
        let whole = match std::str::from_utf8(&self.held) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() => {
                let whole = self.held.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(whole).unwrap_or_default()
            }
            Err(_) => return Err(syntax()),
        };
        let count = whole.len();
        if count > 0 {
            give(whole)?;
        }
        self.held.drain(..count);
        Ok(())
    }
}

fn syntax() -> RecordError {
    RecordError::Json { what: "a syntax error", at: 0 }
}
