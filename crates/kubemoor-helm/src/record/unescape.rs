//! Decodes a JSON text's content, piece by piece.
//!
//! Entry point: [`Unescape`]. Invariant: accepts and produces the same as a parser of the whole text; holds
//! at most one piece.

use super::RecordError;

/// The size of an output piece in bytes.
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

    /// Ends the text.
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
