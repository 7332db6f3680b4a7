//! A row of the ledger as cells of text.
//!
//! Entry points: [`COLUMNS`] and [`columns`] for spreadsheets, [`changes`] for people. Invariant: whatever
//! an editor wrote moves no cursor and colours no terminal.

use kubemoor_declare::model::text::one_line;
use kubemoor_ledger::entry::{Entry, Field};

/// The columns of a spreadsheet. They stay as they are: others may only be added behind them.
pub const COLUMNS: [&str; 21] = [
    "time",
    "kind",
    "verdict",
    "reason",
    "cluster",
    "namespace",
    "release",
    "revision",
    "objectGroup",
    "objectKind",
    "objectNamespace",
    "objectName",
    "operation",
    "user",
    "groups",
    "changes",
    "detail",
    "moreFields",
    "uid",
    "id",
    "repeats",
];

/// The cells of [`COLUMNS`].
pub fn columns(entry: &Entry) -> [String; 21] {
    let Entry { id, time, kind, cluster, namespace, release, revision, object, .. } = entry;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        time.to_string(),
        kind.clone(),
        entry.verdict.clone(),
        entry.reason.clone(),
        cluster.clone(),
        namespace.clone(),
        text(release),
        revision.map(|revision| revision.to_string()).unwrap_or_default(),
        object.group.clone(),
        object.kind.clone(),
        text(&object.namespace),
        object.name.clone(),
        text(&entry.operation),
        entry.user.clone(),
        entry.groups.join("; "),
        changes(entry, usize::MAX).join("; "),
        entry.detail.clone(),
        entry.more_fields.to_string(),
        entry.uid.clone(),
        id.to_string(),
        entry.repeats.to_string(),
    ]
}

/// The first fields, with old and new values.
pub fn changes(entry: &Entry, most: usize) -> Vec<String> {
    let value = |value: &Option<String>| value.as_deref().map_or_else(|| "absent".to_owned(), plain);
    // Only a change has an old and a new value; the loop finds one value.
    let is_edit = entry.kind == "verdict";
    let field = |field: &Field| {
        // Of long values the place at which they differ.
        let Field { path, declared, old, new, line, .. } = field.difference.as_deref().unwrap_or(field);
        let place = line.map_or_else(|| plain(path), |line| format!("{} line {line}", plain(path)));
        match (old, new, declared) {
            (None, None, None) => place,
            (_, live, declared) if !is_edit => {
                format!("{place} live {} (declared {})", value(live), value(declared))
            }
            (old, new, declared) => {
                format!("{place} {} -> {} (declared {})", value(old), value(new), value(declared))
            }
        }
    };
    entry.fields.iter().take(most).map(field).collect()
}

/// Whatever an editor wrote, it moves no cursor and colours no terminal.
pub fn plain(text: &str) -> String {
    one_line(text).into_owned()
}
