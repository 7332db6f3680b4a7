//! Finds the positions of values in a JSON text without parsing them. One pass over any text marks its structure, 64 bytes
//! at a time; then [`JsonPart`] splits it one level at a time. In valid JSON every part is the text of exactly one value;
//! invalid JSON gives `None`, or a text that every parser rejects. Never recurses, and checks nothing within a value that
//! is not requested.

use std::fmt;
use std::sync::{Arc, LazyLock};

use fearless_simd::{Level, Simd, SimdBase, dispatch, prelude::*, u8x64};

/// The number of bytes that one word of marks covers.
const BLOCK: usize = 64;

const USUAL: usize = 16;

static LEVEL: LazyLock<Level> = LazyLock::new(Level::new);

#[derive(Clone)]
pub struct Excerpt<'a> {
    whole: &'a str,
    start: usize,
    end: usize,
    outline: Arc<JsonOutline>,
}

struct JsonOutline {
    blocks: Box<[Marks]>,
}

/// The structure of 64 bytes, the first in the lowest bit.
#[derive(Clone, Copy, Default)]
struct Marks {
    quotes: u64,
    opens: u64,
    closes: u64,
    /// The bracket depth before them. Invalid JSON may close more brackets than it opens.
    depth: i32,
    /// No fewer brackets are open anywhere among them.
    floor: i32,
}

/// The state that one block passes to the next.
#[derive(Default)]
struct Marker {
    /// All ones within a string.
    within: u64,
    /// One if the next byte is escaped.
    escaped: u64,
    depth: i32,
}

/// The text of one value within a text whose outline is known.
#[derive(Clone, Copy)]
pub(super) struct JsonPart<'t, 'o> {
    whole: &'t str,
    outline: &'o JsonOutline,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy)]
pub(super) struct MapEntry<'t, 'o> {
    /// The name as it is spelled between its quotes, escapes and all.
    pub(super) name: &'t str,
    pub(super) value: JsonPart<'t, 'o>,
}

struct Cursor<'t, 'o> {
    whole: &'t str,
    outline: &'o JsonOutline,
    at: usize,
}

impl<'a> Excerpt<'a> {
    /// All of `whole`, without white space around it.
    pub fn new(whole: &'a str) -> Self {
        let text = whole.trim_ascii();
        Self { whole: text, start: 0, end: text.len(), outline: Arc::new(JsonOutline::new(text)) }
    }

    pub fn get(&self) -> &'a str {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }

    /// The value at `path`, a chain of names in nested maps; `None` if a map lacks its name. Of a name that occurs twice,
    /// the last value counts. Names match only in the API server's spelling, without escapes.
    pub fn at(&self, path: &[&str]) -> Option<Self> {
        let part = path.iter().try_fold(self.part(), |map, name| map.entry(name))?;
        Some(self.within(part))
    }

    /// The items of a list; `None` of anything else.
    pub fn items(&self) -> Option<Vec<Self>> {
        let items = Some(self.part()).filter(|part| part.is_list())?.entries()?;
        Some(items.into_iter().map(|item| self.within(item.value)).collect())
    }

    /// The texts of these names in the map at `path`; `None` where there is no map, and for values that are
    /// not texts. Names match only in the API server's spelling, without escapes.
    pub fn texts<const N: usize>(&self, path: &[&str], names: [&str; N]) -> [Option<String>; N] {
        let map = path.iter().try_fold(self.part(), |map, name| map.entry(name));
        let entries = map.and_then(JsonPart::fields).unwrap_or_default();
        names.map(|name| {
            let entry = entries.iter().rev().find(|entry| entry.name == name)?;
            serde_json::from_str(entry.value.text()).ok()
        })
    }

    pub(super) fn part(&self) -> JsonPart<'a, '_> {
        JsonPart::new(self.whole, &self.outline, self.start, self.end)
    }

    fn within(&self, part: JsonPart<'a, '_>) -> Self {
        Self { start: part.start, end: part.end, ..self.clone() }
    }
}

impl JsonOutline {
    fn new(text: &str) -> Self {
        let blocks = dispatch!(*LEVEL, simd => marks(simd, text.as_bytes()));
        Self { blocks }
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
        let block = self.blocks.get(index)?;
        let below = (1_u64 << (from % BLOCK)) - 1;
        let outside = block.depth + balance(block.opens & below, block.closes & below);
        if let Some(place) = block.falls_to(outside, outside, !below) {
            return Some(index * BLOCK + place);
        }
        let behind = self.blocks.iter().enumerate().skip(index + 1);
        let mut behind = behind.filter(|(_, block)| block.floor <= outside);
        behind
            .find_map(|(index, block)| Some(index * BLOCK + block.falls_to(outside, block.depth, u64::MAX)?))
    }
}

impl Marks {
    /// The place among those in `mask` at which the bracket depth falls to `outside`; `depth` is the depth before them.
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

/// The marks of all blocks, the last one filled up.
// All that runs per block is inlined into this, as only then it is compiled for the vectors at hand.
#[inline(always)]
fn marks<S: Simd>(simd: S, text: &[u8]) -> Box<[Marks]> {
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    let mut last = [0; BLOCK];
    for (padded, byte) in last.iter_mut().zip(rest) {
        *padded = *byte;
    }
    let mut marker = Marker::default();
    let mut marks = Vec::with_capacity(blocks.len() + 1);
    for block in blocks {
        marks.push(marker.mark(simd, block));
    }
    marks.push(marker.mark(simd, &last));
    marks.into_boxed_slice()
}

#[inline(always)]
fn are<S: Simd>(bytes: u8x64<S>, byte: u8) -> u64 {
    bytes.simd_eq(byte).to_bitmask()
}

/// How many more brackets these open than close: at most a block's.
#[inline(always)]
fn balance(opens: u64, closes: u64) -> i32 {
    count(opens) - count(closes)
}

#[inline(always)]
fn count(brackets: u64) -> i32 {
    brackets.count_ones().cast_signed()
}

impl Marker {
    #[inline(always)]
    fn mark<S: Simd>(&mut self, simd: S, block: &[u8; BLOCK]) -> Marks {
        let bytes = u8x64::from_slice(simd, block);
        let slashes = are(bytes, b'\\');
        // This bit makes curly brackets of square ones, and of nothing else.
        let curly = bytes | u8x64::splat(simd, 0x20);
        let (mut quotes, opens, closes) = (are(bytes, b'"'), are(curly, b'{'), are(curly, b'}'));
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

    /// The bytes that a backslash before them escapes: those behind an odd number of backslashes in a row. Where such a
    /// row begins at an odd place, adding its begin to it moves the odd number from odd places to even ones.
    #[inline(always)]
    fn escapes(&mut self, slashes: u64) -> u64 {
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let slashes = slashes & !self.escaped;
        let behind = (slashes << 1) | self.escaped;
        let odd = slashes & !EVEN & !behind;
        let (ends, over) = slashes.overflowing_add(odd);
        self.escaped = u64::from(over);
        (EVEN ^ (ends << 1)) & behind
    }
}

/// In each place whether the number of ones up to there is odd.
#[inline(always)]
fn up_to_each(mut ones: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        ones ^= ones << shift;
    }
    ones
}

impl<'t, 'o> JsonPart<'t, 'o> {
    fn new(whole: &'t str, outline: &'o JsonOutline, start: usize, end: usize) -> Self {
        Self { whole, outline, start, end }
    }

    pub(super) fn text(self) -> &'t str {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }

    pub(super) fn is_map(self) -> bool {
        self.first() == Some(b'{')
    }

    pub(super) fn is_list(self) -> bool {
        self.first() == Some(b'[')
    }

    /// The value of `name`, in exactly this spelling; the last one if the name occurs twice.
    pub(super) fn entry(self, name: &str) -> Option<Self> {
        let entries = self.fields()?;
        entries.iter().rev().find(|entry| entry.name == name).map(|entry| entry.value)
    }

    fn first(self) -> Option<u8> {
        self.whole.as_bytes().get(self.start).copied()
    }

    /// The entries of a map; `None` of anything else.
    pub(super) fn fields(self) -> Option<Vec<MapEntry<'t, 'o>>> {
        if self.is_map() { self.entries() } else { None }
    }

    /// The entries of a map in their order, where a name may occur twice; the items of a list as entries without a name.
    pub(super) fn entries(self) -> Option<Vec<MapEntry<'t, 'o>>> {
        let (is_map, mut cursor) =
            (self.is_map(), Cursor { whole: self.whole, outline: self.outline, at: self.start });
        cursor.consume(if is_map { b'{' } else { b'[' })?;
        let close = if is_map { b'}' } else { b']' };
        let end = self.end.checked_sub(1).filter(|end| self.whole.as_bytes().get(*end) == Some(&close))?;
        cursor.skip_space();
        if cursor.at == end {
            return Some(Vec::new());
        }
        let mut entries = Vec::with_capacity(USUAL);
        loop {
            entries.push(cursor.entry(is_map)?);
            cursor.skip_space();
            if cursor.at >= end {
                return (cursor.at == end).then_some(entries);
            }
            cursor.consume(b',')?;
            cursor.skip_space();
        }
    }
}

impl<'t, 'o> Cursor<'t, 'o> {
    fn byte(&self) -> Option<u8> {
        self.whole.as_bytes().get(self.at).copied()
    }

    fn consume(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// An entry of a map, or an item of a list.
    fn entry(&mut self, is_named: bool) -> Option<MapEntry<'t, 'o>> {
        if !is_named {
            return Some(MapEntry { name: "", value: self.value()? });
        }
        self.consume(b'"')?;
        let end = self.outline.first(self.at, |marks| marks.quotes)?;
        let name = self.whole.get(self.at..end)?;
        self.at = end + 1;
        self.skip_space();
        self.consume(b':')?;
        self.skip_space();
        Some(MapEntry { name, value: self.value()? })
    }

    fn value(&mut self) -> Option<JsonPart<'t, 'o>> {
        let start = self.at;
        self.at = match self.byte()? {
            b'"' => self.outline.first(start + 1, |marks| marks.quotes)? + 1,
            b'{' | b'[' => self.outline.closing(start)? + 1,
            b'-' | b'0'..=b'9' | b'a'..=b'z' => {
                let rest = self.whole.as_bytes().get(start..)?;
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                start + rest.iter().position(ends).unwrap_or(rest.len())
            }
            _ => return None,
        };
        Some(JsonPart { whole: self.whole, outline: self.outline, start, end: self.at })
    }
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Excerpt({} bytes)", self.end - self.start)
    }
}

#[cfg(test)]
mod tests;
