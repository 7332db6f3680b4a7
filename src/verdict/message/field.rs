//! One field in words: its path, its values, and the release's.
//!
//! Entry points: the constructors of [`FieldWords`], [`FieldWords::within`].
//! Invariant: where there is little room the values are shortened before the path,
//! and of a path its end stays. Long values are told by their first difference.

use std::fmt;

use crate::declaration::path::Path;
use crate::verdict::difference::Difference;
use crate::verdict::edit::Finding;
use crate::verdict::revert::SetBack;
use crate::verdict::shown::Shown;

/// The characters of a path that are shown.
const PATH: usize = 300;

/// The fewest characters that a shortened value has.
const VALUE: usize = 12;

/// What stands for no value.
const ABSENT: &str = "absent";

/// One field in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldWords {
    path: String,
    values: Vec<String>,
    form: Form,
}

/// How the values stand behind the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    /// Nothing but a text in place of the path.
    #[default]
    Plain,
    /// From what to what, and the release's value.
    Edit,
    /// From what to what.
    Revert,
    /// The live value, and the release's.
    Live,
}

impl FieldWords {
    pub(super) fn plain(text: String) -> Self {
        Self { path: text, values: Vec::new(), form: Form::Plain }
    }

    /// A field that an edit changes.
    pub(super) fn of_edit(finding: &Finding) -> Self {
        let Finding { path, declared, old, new, difference, .. } = finding;
        let (path, [declared, old, new]) = first(path, difference.as_deref(), [declared, old, new]);
        Self { path, values: vec![old, new, declared], form: Form::Edit }
    }

    /// A field of a live object.
    pub(super) fn of_live(finding: &Finding) -> Self {
        let Finding { path, declared, old, new, difference, .. } = finding;
        let (path, [declared, _, new]) = first(path, difference.as_deref(), [declared, old, new]);
        Self { path, values: vec![new, declared], form: Form::Live }
    }

    /// A field that was reverted.
    pub(super) fn of_revert(field: &SetBack) -> Self {
        let SetBack { path, wanted, now } = field;
        let path = front_cut(&path.plain().to_string(), PATH);
        Self { path, values: vec![text(wanted), text(now)], form: Form::Revert }
    }

    /// The field behind the first of these clauses with which it stays within so
    /// many characters. Behind the last its values are shortened, then its path.
    pub(super) fn within(&self, limit: usize, clauses: &[&str]) -> String {
        for clause in clauses {
            let whole = format!("{clause}: {self}");
            if whole.chars().count() <= limit {
                return whole;
            }
        }
        let clause = clauses.last().copied().unwrap_or_default();
        let empty = Self { values: vec![String::new(); self.values.len()], ..self.clone() };
        let fixed = format!("{clause}: {empty}").chars().count();
        let room = limit.saturating_sub(fixed);
        let lengths: Vec<_> = self.values.iter().map(|value| value.chars().count()).collect();
        let total = |most: usize| lengths.iter().map(|length| *length.min(&most)).sum::<usize>();
        let lacking = (fixed + total(VALUE)).saturating_sub(limit);
        let path = match lacking {
            0 => self.path.clone(),
            _ => front_cut(&self.path, self.path.chars().count().saturating_sub(lacking).max(VALUE)),
        };
        let room = room.max(total(VALUE));
        // What short values leave is the long ones'.
        let most = (VALUE..=room).rev().find(|most| total(*most) <= room).unwrap_or(VALUE);
        let values = self.values.iter().map(|value| back_cut(value, most)).collect();
        format!("{clause}: {}", Self { path, values, form: self.form })
    }
}

impl fmt::Display for FieldWords {
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

/// The place that is told, and its values.
fn first(path: &Path, difference: Option<&Difference>, values: [&Option<Shown>; 3]) -> (String, [String; 3]) {
    let plain = path.plain();
    let (path, values) = match difference {
        None => (plain.to_string(), values),
        Some(Difference { plain: below, line, declared, old, new, .. }) => {
            let line = line.map_or_else(String::new, |line| format!(" line {line}"));
            (format!("{plain}{below}{line}"), [declared, old, new])
        }
    };
    (front_cut(&path, PATH), values.map(text))
}

fn text(value: &Option<Shown>) -> String {
    value.as_ref().map_or(ABSENT, Shown::as_str).to_owned()
}

/// The end of a text.
fn front_cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    match length.checked_sub(most) {
        None | Some(0) => text.to_owned(),
        Some(more) => ['…'].into_iter().chain(text.chars().skip(more + 1)).collect(),
    }
}

/// The front of a text.
fn back_cut(text: &str, most: usize) -> String {
    match text.chars().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}
