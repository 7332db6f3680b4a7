//! Values within a text, split one level at a time.
//!
//! Entry points: [`Part::entries`], and [`Part::each_in_step`] and [`Part::items_in_step`] for two maps or
//! lists at once. Invariant: at each place only valid JSON is accepted; anything else gives `None`. A value
//! is skipped by its outline alone.

use super::Outline;

/// Room for as many entries as most maps and lists have.
const USUAL: usize = 16;

/// The text of one value within a text whose outline is known.
#[derive(Clone, Copy)]
pub(in super::super) struct Part<'t, 'o> {
    pub(super) whole: &'t str,
    outline: &'o Outline,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// One entry of a map.
#[derive(Clone, Copy)]
pub(in super::super) struct Entry<'t, 'o> {
    /// The name as it is spelled between its quotes, escapes and all.
    pub(in super::super) name: &'t str,
    /// The value.
    pub(in super::super) value: Part<'t, 'o>,
    /// Where the entry begins, with its name's quote.
    start: usize,
}

/// A place in a text.
struct Cursor<'t, 'o> {
    whole: &'t str,
    outline: &'o Outline,
    at: usize,
}

impl<'t, 'o> Part<'t, 'o> {
    pub(super) fn new(whole: &'t str, outline: &'o Outline, start: usize, end: usize) -> Self {
        Self { whole, outline, start, end }
    }

    /// The text.
    pub(in super::super) fn text(self) -> &'t str {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether this is a map, by how it begins.
    pub(in super::super) fn is_map(self) -> bool {
        self.first() == Some(b'{')
    }

    /// Whether this is a list, by how it begins.
    pub(in super::super) fn is_list(self) -> bool {
        self.first() == Some(b'[')
    }

    /// The entries of a map, in their order; a name may occur twice.
    pub(in super::super) fn entries(self) -> Option<Vec<Entry<'t, 'o>>> {
        let mut entries = Vec::with_capacity(USUAL);
        self.each_entry(|entry| {
            entries.push(entry);
            Some(())
        })?;
        Some(entries)
    }

    /// The value of `name`, in exactly this spelling; the last one if the name occurs twice.
    pub(in super::super) fn entry(self, name: &str) -> Option<Self> {
        let mut found = None;
        self.each_entry(|entry| {
            if entry.name == name {
                found = Some(entry.value);
            }
            Some(())
        })?;
        found
    }

    /// Visits the entries of a map, as long as `visit` gives something.
    pub(in super::super) fn each_entry(
        self,
        mut visit: impl FnMut(Entry<'t, 'o>) -> Option<()>,
    ) -> Option<()> {
        self.each(b'{', b'}', |cursor| visit(cursor.entry()?))
    }

    /// Visits the items of a list.
    pub(super) fn each_item(self, mut visit: impl FnMut(Self)) -> Option<()> {
        self.each(b'[', b']', |cursor| cursor.value().map(&mut visit))
    }

    /// Visits the entries of this map and of `other` as long as they have the same names, in the same
    /// spelling and order. `visit` also receives whether their values are the same text. `None` if the maps
    /// have other names.
    pub(in super::super) fn each_in_step(
        self,
        other: Self,
        mut visit: impl FnMut(&'t str, Self, Self, bool) -> Option<()>,
    ) -> Option<()> {
        let mut cursor = Cursor { whole: other.whole, outline: other.outline, at: other.start };
        cursor.expect(b'{')?;
        cursor.skip_space();
        let mut is_first = true;
        self.each_entry(|own| {
            if !std::mem::take(&mut is_first) {
                cursor.skip_space();
                cursor.expect(b',')?;
                cursor.skip_space();
            }
            match cursor.repeats(own.start, own.value) {
                Some(value) => visit(own.name, own.value, value, true),
                None => {
                    let entry = cursor.entry().filter(|entry| entry.name == own.name)?;
                    visit(own.name, own.value, entry.value, entry.value.text() == own.value.text())
                }
            }
        })?;
        cursor.skip_space();
        cursor.expect(b'}')?;
        (cursor.at == other.end).then_some(())
    }

    /// The items of this list, each with that of `other` at the same place and
    /// whether both are the same text. None where the numbers differ.
    pub(in super::super) fn items_in_step(self, other: Self) -> Option<Vec<(Self, Self, bool)>> {
        let mut cursor = Cursor { whole: other.whole, outline: other.outline, at: other.start };
        cursor.expect(b'[')?;
        cursor.skip_space();
        let mut items = Vec::with_capacity(USUAL);
        self.each(b'[', b']', |own| {
            if !items.is_empty() {
                cursor.skip_space();
                cursor.expect(b',')?;
                cursor.skip_space();
            }
            let own = own.value()?;
            items.push(match cursor.repeats(own.start, own) {
                Some(item) => (own, item, true),
                None => cursor.value().map(|item| (own, item, item.text() == own.text()))?,
            });
            Some(())
        })?;
        cursor.skip_space();
        cursor.expect(b']')?;
        (cursor.at == other.end).then_some(items)
    }

    fn first(self) -> Option<u8> {
        self.whole.as_bytes().get(self.start).copied()
    }

    /// Visits the items between the brackets and the commas.
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
        let start = self.at;
        self.expect(b'"')?;
        let end = self.outline.first(self.at, |marks| marks.quotes)?;
        let name = self.whole.get(self.at..end)?;
        self.at = end + 1;
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Some(Entry { name, value: self.value()?, start })
    }

    /// Skips the current text if it equals the text from `from` to the end of `value`; returns its value.
    fn repeats(&mut self, from: usize, value: Part<'t, 'o>) -> Option<Part<'t, 'o>> {
        let length = value.start.checked_sub(from)?;
        let rest = self.whole.as_bytes().get(self.at..)?;
        let rest = rest.strip_prefix(value.whole.as_bytes().get(from..value.end)?)?;
        // A number may go on.
        matches!(rest.first(), Some(b',' | b'}' | b']')).then_some(())?;
        let start = self.at + length;
        self.at = start + (value.end - value.start);
        Some(Part { whole: self.whole, outline: self.outline, start, end: self.at })
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
