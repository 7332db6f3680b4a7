//! Where the values of a JSON text begin and end, found without reading them.
//!
//! Entry points: [`Excerpt`], a value's text; [`Part::entries`] and
//! [`Part::items`] take it apart one level at a time. Invariant: one pass over
//! the text marks its structure, 64 bytes at a time, whatever it holds; of
//! valid JSON every part is the text of exactly one value, and what is no JSON
//! is `None` or the text of something that no parser reads. Never recurses.
//! Checks nothing within a value that nobody asks for.

use std::fmt;
use std::sync::Arc;

use wide::u8x16;

use self::parts::Cursor;
pub use self::parts::{Entry, Part};

mod parts;

/// The bytes that one word of marks stands for.
const BLOCK: usize = 64;

/// The text of one value, within a larger text of which the outline may be
/// known already.
#[derive(Clone)]
pub struct Excerpt<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
    outline: Option<Arc<Outline>>,
}

/// The structure of a whole text.
pub struct Outline {
    blocks: Box<[Marks]>,
}

/// What 64 bytes hold, the first in the lowest bit.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// Quotes that begin or end a string.
    quotes: u64,
    /// Opening brackets outside of strings.
    opens: u64,
    /// Closing brackets outside of strings.
    closes: u64,
    /// How many brackets are open in front of them. What is no JSON may close
    /// more than it opens.
    depth: i32,
    /// No fewer brackets are open anywhere among them.
    floor: i32,
}

impl<'a> Excerpt<'a> {
    /// All of `whole`, without white space around it.
    pub fn of(whole: &'a str) -> Self {
        let text = whole.trim_ascii();
        Self { whole: text, start: 0, end: text.len(), outline: None }
    }

    /// A part of a text whose outline is known.
    pub fn within(part: Part<'a, '_>, outline: &Arc<Outline>) -> Self {
        Self { whole: part.whole, start: part.start, end: part.end, outline: Some(Arc::clone(outline)) }
    }

    /// The text.
    pub fn get(&self) -> &'a str {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }

    /// The texts that the map at `path` has under these names; none where it
    /// is no map, and for what is no text. Names are told apart as the API
    /// server spells them, without escapes.
    pub fn texts<const N: usize>(&self, path: &[&str], names: [&str; N]) -> [Option<String>; N] {
        let outline = self.outline();
        let map = path.iter().try_fold(self.part(&outline), |map, name| map.entry(name));
        names.map(|name| serde_json::from_str(map?.entry(name)?.text()).ok())
    }

    /// The outline of what this is a part of.
    pub(super) fn outline(&self) -> Arc<Outline> {
        self.outline.as_ref().map_or_else(|| Arc::new(Outline::of(self.whole)), Arc::clone)
    }

    /// This text; `outline` is its own.
    pub(super) fn part<'o>(&self, outline: &'o Outline) -> Part<'a, 'o> {
        Part::new(self.whole, outline, self.start, self.end)
    }
}

impl Outline {
    /// The outline of `text`.
    pub fn of(text: &str) -> Self {
        let (blocks, rest) = text.as_bytes().as_chunks::<BLOCK>();
        let mut last = [0; BLOCK];
        last.iter_mut().zip(rest).for_each(|(padded, byte)| *padded = *byte);
        let mut marker = Marker::default();
        let mut marks = Vec::with_capacity(blocks.len() + 1);
        for block in blocks {
            marks.push(marker.mark(block));
        }
        marks.push(marker.mark(&last));
        Self { blocks: marks.into_boxed_slice() }
    }

    /// The value that `whole` is, of which this is the outline.
    pub fn root<'t>(&self, whole: &'t str) -> Option<Part<'t, '_>> {
        Cursor::root(whole, self)
    }

    /// The first of some marks at or behind `from`.
    fn first(&self, from: usize, marks: impl Fn(&Marks) -> u64) -> Option<usize> {
        let mut index = from / BLOCK;
        let mut bits = marks(self.blocks.get(index)?) & (u64::MAX << (from % BLOCK));
        while bits == 0 {
            index += 1;
            bits = marks(self.blocks.get(index)?);
        }
        Some(index * BLOCK + bits.trailing_zeros() as usize)
    }

    /// The place of the bracket that closes the one at `from`.
    fn closing(&self, from: usize) -> Option<usize> {
        let index = from / BLOCK;
        let mut block = self.blocks.get(index)?;
        let below = (1_u64 << (from % BLOCK)) - 1;
        let outside = block.depth + balance(block.opens & below, block.closes & below);
        if let Some(place) = block.falls_to(outside, outside, !below) {
            return Some(index * BLOCK + place);
        }
        let mut blocks = self.blocks.iter().enumerate().skip(index + 1);
        loop {
            let (index, next) = blocks.find(|(_, marks)| marks.floor <= outside)?;
            block = next;
            if let Some(place) = block.falls_to(outside, block.depth, u64::MAX) {
                return Some(index * BLOCK + place);
            }
        }
    }
}

impl Marks {
    /// The place among those in `mask` at which no more than `outside` brackets
    /// are open again, of which `depth` are open in front of them.
    fn falls_to(&self, outside: i32, mut depth: i32, mask: u64) -> Option<usize> {
        let mut brackets = (self.opens | self.closes) & mask;
        while brackets != 0 {
            let lowest = brackets & brackets.wrapping_neg();
            depth += if self.opens & lowest == 0 { -1 } else { 1 };
            if depth <= outside {
                return Some(lowest.trailing_zeros() as usize);
            }
            brackets ^= lowest;
        }
        None
    }
}

/// How many more brackets these open than close: at most a block's.
fn balance(opens: u64, closes: u64) -> i32 {
    count(opens) - count(closes)
}

fn count(brackets: u64) -> i32 {
    brackets.count_ones().cast_signed()
}

/// What goes over from one block to the next.
#[derive(Default)]
struct Marker {
    /// All ones within a string.
    within: u64,
    /// One if the next byte is escaped.
    escaped: u64,
    /// How many brackets are open.
    depth: i32,
}

impl Marker {
    #[inline]
    fn mark(&mut self, block: &[u8; BLOCK]) -> Marks {
        let (mut quotes, mut slashes, mut opens, mut closes) = (0_u64, 0_u64, 0_u64, 0_u64);
        let (lanes, _) = block.as_chunks::<16>();
        for (lane, place) in lanes.iter().zip([0, 16, 32, 48]) {
            let bytes = u8x16::new(*lane);
            let of =
                |bytes: u8x16, byte: u8| u64::from(bytes.simd_eq(u8x16::splat(byte)).to_bitmask()) << place;
            quotes |= of(bytes, b'"');
            slashes |= of(bytes, b'\\');
            // This bit makes curly brackets of square ones, and of nothing else.
            let curly = bytes | u8x16::splat(0x20);
            opens |= of(curly, b'{');
            closes |= of(curly, b'}');
        }
        quotes &= !self.escapes(slashes);
        let within = up_to_each(quotes) ^ self.within;
        // The last bit spread over all of them.
        self.within = 0_u64.wrapping_sub(within >> 63);
        let (opens, closes) = (opens & !within, closes & !within);
        let depth = self.depth;
        let floor = depth - count(closes);
        self.depth = floor + count(opens);
        Marks { quotes, opens, closes, depth, floor }
    }

    /// The bytes that a backslash before them escapes.
    fn escapes(&mut self, mut slashes: u64) -> u64 {
        let mut escaped = self.escaped;
        self.escaped = 0;
        slashes &= !escaped;
        while slashes != 0 {
            let slash = slashes & slashes.wrapping_neg();
            let next = slash << 1;
            if next == 0 {
                self.escaped = 1;
            }
            escaped |= next;
            slashes &= !(slash | next);
        }
        escaped
    }
}

/// In each place whether the number of ones up to there is odd.
fn up_to_each(mut ones: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        ones ^= ones << shift;
    }
    ones
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Excerpt({} bytes)", self.end - self.start)
    }
}

#[cfg(test)]
mod tests;
