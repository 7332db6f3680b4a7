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
}

/// The text of one value within a text whose outline is known.
#[derive(Clone, Copy)]
pub struct Part<'t, 'o> {
    whole: &'t str,
    outline: &'o Outline,
    start: usize,
    end: usize,
}

/// One entry of a map.
#[derive(Clone, Copy)]
pub struct Entry<'t, 'o> {
    /// The name as it is spelled between its quotes, escapes and all.
    pub name: &'t str,
    /// The value.
    pub value: Part<'t, 'o>,
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

    /// The outline of what this is a part of.
    pub(super) fn outline(&self) -> Arc<Outline> {
        self.outline.as_ref().map_or_else(|| Arc::new(Outline::of(self.whole)), Arc::clone)
    }

    /// This text; `outline` is its own.
    pub(super) fn part<'o>(&self, outline: &'o Outline) -> Part<'a, 'o> {
        Part { whole: self.whole, outline, start: self.start, end: self.end }
    }
}

impl Outline {
    /// The outline of `text`.
    pub fn of(text: &str) -> Self {
        let (blocks, rest) = text.as_bytes().as_chunks::<BLOCK>();
        let mut last = [0; BLOCK];
        last.iter_mut().zip(rest).for_each(|(padded, byte)| *padded = *byte);
        let mut marker = Marker::default();
        Self { blocks: blocks.iter().chain([&last]).map(|block| marker.mark(block)).collect() }
    }

    /// The value that `whole` is, of which this is the outline.
    pub fn root<'t>(&self, whole: &'t str) -> Option<Part<'t, '_>> {
        let mut cursor = Cursor { whole, outline: self, at: 0 };
        cursor.skip_space();
        let part = cursor.value()?;
        cursor.skip_space();
        (cursor.at == whole.len()).then_some(part)
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
        let mut index = from / BLOCK;
        let mut depth = 0_usize;
        let mut mask = u64::MAX << (from % BLOCK);
        loop {
            let marks = self.blocks.get(index)?;
            let opens = marks.opens & mask;
            let mut brackets = (marks.opens | marks.closes) & mask;
            while brackets != 0 {
                let lowest = brackets & brackets.wrapping_neg();
                if opens & lowest != 0 {
                    depth += 1;
                } else {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(index * BLOCK + lowest.trailing_zeros() as usize);
                    }
                }
                brackets ^= lowest;
            }
            mask = u64::MAX;
            index += 1;
        }
    }
}

/// What goes over from one block to the next.
#[derive(Default)]
struct Marker {
    /// All ones within a string.
    within: u64,
    /// One if the next byte is escaped.
    escaped: u64,
}

impl Marker {
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
        Marks { quotes, opens: opens & !within, closes: closes & !within }
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

/// A place in a text.
struct Cursor<'t, 'o> {
    whole: &'t str,
    outline: &'o Outline,
    at: usize,
}

impl<'t, 'o> Part<'t, 'o> {
    /// The text.
    pub fn text(self) -> &'t str {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether this is a map, by how it begins.
    pub fn is_map(self) -> bool {
        self.first() == Some(b'{')
    }

    /// Whether this is a list, by how it begins.
    pub fn is_list(self) -> bool {
        self.first() == Some(b'[')
    }

    fn first(self) -> Option<u8> {
        self.whole.as_bytes().get(self.start).copied()
    }

    /// The entries of a map, in their order; a name may stand twice.
    pub fn entries(self) -> Option<Vec<Entry<'t, 'o>>> {
        let mut entries = Vec::new();
        self.each_entry(|entry| {
            entries.push(entry);
            Some(())
        })?;
        Some(entries)
    }

    /// Visits the entries of a map, as long as `visit` gives something.
    pub fn each_entry(self, mut visit: impl FnMut(Entry<'t, 'o>) -> Option<()>) -> Option<()> {
        self.each(b'{', b'}', |cursor| visit(cursor.entry()?))
    }

    /// The items of a list.
    pub fn items(self) -> Option<Vec<Self>> {
        let mut items = Vec::new();
        self.each(b'[', b']', |cursor| {
            items.push(cursor.value()?);
            Some(())
        })?;
        Some(items)
    }

    /// Takes what stands between the brackets and the commas.
    fn each(
        self,
        open: u8,
        close: u8,
        mut take: impl FnMut(&mut Cursor<'t, 'o>) -> Option<()>,
    ) -> Option<()> {
        let mut cursor = Cursor { whole: self.whole, outline: self.outline, at: self.start };
        cursor.expect(open)?;
        let end = self.end.checked_sub(1).filter(|end| self.whole.as_bytes().get(*end) == Some(&close))?;
        cursor.skip_space();
        if cursor.at == end {
            return Some(());
        }
        loop {
            take(&mut cursor)?;
            cursor.skip_space();
            if cursor.at >= end {
                return (cursor.at == end).then_some(());
            }
            cursor.expect(b',')?;
            cursor.skip_space();
        }
    }
}

impl<'t, 'o> Cursor<'t, 'o> {
    fn byte(&self) -> Option<u8> {
        self.whole.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn entry(&mut self) -> Option<Entry<'t, 'o>> {
        self.expect(b'"')?;
        let start = self.at;
        let end = self.outline.first(start, |marks| marks.quotes)?;
        self.at = end + 1;
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Some(Entry { name: self.whole.get(start..end)?, value: self.value()? })
    }

    fn value(&mut self) -> Option<Part<'t, 'o>> {
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
        Some(Part { whole: self.whole, outline: self.outline, start, end: self.at })
    }
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Excerpt({} bytes)", self.end - self.start)
    }
}

#[cfg(test)]
mod tests;
