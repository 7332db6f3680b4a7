//! One field in words: its path, its values, and the release's.
//!
//! Entry points: the constructors of [`FieldWords`], [`FieldWords::within`]. Invariant: where there
//! is little room, the values are shortened before the path, and a shortened path keeps its end.
//! Long values are shown by their first difference. Must not mask values: `Shown` has done so.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use smallvec::{SmallVec, smallvec};

use crate::difference::Difference;
use crate::edit::Finding;
use crate::revert::SetBack;
use crate::shown::Shown;

/// The characters of a path that are shown.
const PATH: usize = 300;

/// The fewest characters that a shortened value has.
const VALUE: usize = 12;

/// Room for most paths, in bytes.
const ROOM: usize = 128;

/// What stands for no value.
const ABSENT: &str = "absent";

/// One field in words.
#[derive(Clone)]
pub(super) struct FieldWords<'a> {
    path: Cow<'a, str>,
    values: SmallVec<[Cow<'a, str>; 3]>,
    form: Form,
}

/// The form of the values after the path.
#[derive(Clone, Copy)]
enum Form {
    /// Nothing but a text in place of the path.
    Plain,
    /// The old and the new value, and the release's.
    Edit,
    /// The old and the new value.
    Revert,
    /// The live value, and the release's.
    Live,
}

impl<'a> FieldWords<'a> {
    pub(super) fn plain(text: &'a str) -> Self {
        Self { path: text.into(), values: SmallVec::new(), form: Form::Plain }
    }

    /// A field that an edit changes.
    pub(super) fn of_edit(finding: &'a Finding) -> Self {
        let (path, [declared, old, new]) = first(finding);
        Self { path, values: smallvec![old, new, declared], form: Form::Edit }
    }

    /// The same without its values, and without the place below it at which they begin to differ.
    pub(super) fn of_path(finding: &'a Finding) -> Self {
        let path = front_cut(finding.path.plain().to_string().into(), PATH);
        Self { path, values: SmallVec::new(), form: Form::Plain }
    }

    /// A field of a live object.
    pub(super) fn of_live(finding: &'a Finding) -> Self {
        let (path, [declared, _, new]) = first(finding);
        Self { path, values: smallvec![new, declared], form: Form::Live }
    }

    /// A field that was reverted.
    pub(super) fn of_revert(field: &'a SetBack) -> Self {
        let SetBack { path, wanted, now } = field;
        let path = front_cut(path.plain().to_string().into(), PATH);
        Self { path, values: smallvec![text(wanted), text(now)], form: Form::Revert }
    }

    /// The field after the first of these clauses with which it fits into `limit` characters. After
    /// the last clause, its values are shortened, then its path.
    pub(super) fn within(&self, limit: usize, clauses: &[&str]) -> String {
        for clause in clauses {
            let whole = format!("{clause}: {self}");
            if whole.chars().count() <= limit {
                return whole;
            }
        }
        let clause = clauses.last().copied().unwrap_or_default();
        let empty = Self { values: smallvec![Cow::Borrowed(""); self.values.len()], ..self.clone() };
        let fixed = format!("{clause}: {empty}").chars().count();
        let room = limit.saturating_sub(fixed);
        let lengths: Vec<_> = self.values.iter().map(|value| value.chars().count()).collect();
        let total = |most: usize| lengths.iter().map(|length| *length.min(&most)).sum::<usize>();
        let lacking = (fixed + total(VALUE)).saturating_sub(limit);
        let path = match lacking {
            0 => self.path.clone(),
            _ => front_cut(self.path.clone(), self.path.chars().count().saturating_sub(lacking).max(VALUE)),
        };
        let room = room.max(total(VALUE));
        // Long values get the room that short values leave.
        let most = (VALUE..=room).rev().find(|most| total(*most) <= room).unwrap_or(VALUE);
        let values = self.values.iter().map(|value| back_cut(value, most)).collect();
        format!("{clause}: {}", FieldWords { path, values, form: self.form })
    }
}

impl fmt::Display for FieldWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, values, form } = self;
        match (form, values.as_slice()) {
            (Form::Edit, [old, new, declared]) => {
                write!(f, "{path}: {old} -> {new} (release: {declared})")
            }
            (Form::Revert, [wanted, now]) => write!(f, "{path}: {wanted} was reverted to {now}"),
            (Form::Live, [live, declared]) => write!(f, "{path}: {live} (release: {declared})"),
            _ => f.write_str(path),
        }
    }
}

/// The shown place and its values: declared, old and new.
fn first(finding: &Finding) -> (Cow<'_, str>, [Cow<'_, str>; 3]) {
    let Finding { path, declared, old, new, difference, .. } = finding;
    let mut place = String::with_capacity(ROOM);
    // Writing to a String cannot fail.
    let _ = path.plain().spell(&mut place);
    let values = match difference.as_deref() {
        None => [declared, old, new],
        Some(Difference { plain: below, line, declared, old, new, .. }) => {
            place.push_str(below);
            if let Some(line) = line {
                let _ = write!(place, " line {line}");
            }
            [declared, old, new]
        }
    };
    (front_cut(place.into(), PATH), values.map(text))
}

fn text(value: &Option<Shown>) -> Cow<'_, str> {
    value.as_ref().map_or(ABSENT, Shown::as_str).into()
}

/// The end of a text.
fn front_cut(text: Cow<'_, str>, most: usize) -> Cow<'_, str> {
    // Of fewer bytes there are no more characters.
    if text.len() <= most {
        return text;
    }
    match text.chars().count().checked_sub(most) {
        None | Some(0) => text,
        Some(more) => ['…'].into_iter().chain(text.chars().skip(more + 1)).collect(),
    }
}

/// The front of a text.
fn back_cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.chars().nth(most) {
        None => text.into(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}
