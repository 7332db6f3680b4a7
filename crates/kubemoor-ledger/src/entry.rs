//! The form in which a row is stored, shown and sent: bounded text, with values of Secrets hashed or masked. The caps
//! hold for any input, and no entry contains a character that a database refuses.

use super::id;
use super::row::{LedgerRow, RowChange, RowChanges, RowKind};
use jiff::Timestamp;
use kubemoor_declare::model::text::shortened;
use kubemoor_verdict::edit::{EditOutcome, VerdictReason};
use kubemoor_verdict::shown::{Difference, SealingKey, Shown};
use serde::{Deserialize, Serialize};

/// The approximate maximum size of an entry's fields, in bytes.
const FIELDS_CAP: usize = 4 << 10;

/// The maximum size of an entry's groups, in bytes.
const GROUPS_CAP: usize = 2 << 10;

/// The prefix of the last group of an entry if groups were left out.
const MORE: &str = "… ";

/// The maximum length of any other text, in characters.
const TEXT_CAP: usize = 600;

/// The reasons for which `Deny` refuses an edit. With other reasons, an edit passes in every mode.
const REFUSED: [VerdictReason; 7] = [
    VerdictReason::Request,
    VerdictReason::Drift,
    VerdictReason::Deletion,
    VerdictReason::Dependants,
    VerdictReason::Record,
    VerdictReason::TooLarge,
    VerdictReason::TooDeep,
];

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Entry")]
pub struct LedgerEntry {
    /// The id, which orders rows by time; a string, because JSON numbers cannot hold it exactly.
    #[serde(with = "id_text")]
    #[schemars(with = "String")]
    pub id: i64,
    /// The time of the event.
    pub time: Timestamp,
    /// `verdict`, `record`, `repair`, `allowance` or `act`.
    pub kind: String,
    /// The cluster's name.
    pub cluster: String,
    /// The release's namespace; without a release, the object's; empty for
    /// cluster-scoped objects.
    pub namespace: String,
    /// The release's name.
    pub release: Option<String>,
    /// The revision of its record.
    pub revision: Option<i64>,
    /// The object.
    pub object: EntryObject,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: Option<String>,
    /// The user; empty for events without a user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// The outcome, as one word.
    pub verdict: String,
    /// The reason, as one word; may be empty.
    pub reason: String,
    /// Details, as a sentence; may be empty.
    pub detail: String,
    /// The declared fields that decided the verdict.
    pub fields: Vec<EntryField>,
    /// The number of further fields, which are not stored.
    pub more_fields: i64,
    /// The number of equal denials in the following minute, which have no row of their own.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub repeats: i64,
    /// The data with which other policies can judge the change; only if the request asks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub facts: Option<String>,
    /// The uid of the admission review; may be empty.
    pub uid: String,
    /// Set if every guard of a cluster sees the same event, which is stored once.
    /// Not shown.
    #[serde(skip)]
    pub(super) same: Option<i64>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Object")]
pub struct EntryObject {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; null for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// A field, with the values of Secrets as keyed hashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Field")]
pub struct EntryField {
    /// The path.
    pub path: String,
    /// The declared value.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub declared: Option<String>,
    /// The value before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub old: Option<String>,
    /// The value after.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub new: Option<String>,
    /// The first place where long or nested values differ.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub difference: Option<Box<EntryField>>,
    /// The line of a long text, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
}

impl LedgerEntry {
    /// Converts `row` for storage under this id and cluster. Without a key, values of Secrets are masked instead of
    /// hashed.
    pub(super) fn seal(row: LedgerRow, id: i64, cluster: &str, key: Option<&SealingKey>) -> Self {
        let LedgerRow { release, object, actor, .. } = row;
        let RowChanges { listed, more: beyond } = row.fields;
        let own_namespace = release.as_ref().map(|(release, _)| release.namespace.clone());
        let (release, revision) = release.map(|(release, revision)| (release.name, revision)).unzip();
        let (fields, more_fields) = seal_fields(&listed, key);
        let namespace = own_namespace.or_else(|| object.namespace.clone()).unwrap_or_default();
        Self {
            id,
            time: id::time(id),
            kind: row.kind.as_str().to_owned(),
            cluster: cluster.to_owned(),
            namespace: cut(&namespace),
            release: release.as_deref().map(cut),
            revision: revision.map(|revision| i64::try_from(revision).unwrap_or(i64::MAX)),
            object: EntryObject {
                group: cut(&object.group),
                kind: cut(&object.kind),
                namespace: object.namespace.as_deref().map(cut),
                name: cut(&object.name),
            },
            operation: row.operation.map(|operation| operation.as_str().to_owned()),
            user: cut(&actor.user),
            groups: some(&actor.groups),
            verdict: row.verdict.to_owned(),
            reason: row.reason.to_owned(),
            detail: cut(&row.detail),
            fields,
            more_fields: i64::try_from(more_fields.saturating_add(beyond)).unwrap_or(i64::MAX),
            repeats: 0,
            // Facts are JSON, in which a NUL is escaped.
            facts: row.facts,
            uid: cut(&row.uid),
            same: row.same.as_deref().map(id::number_of_same),
        }
    }

    /// Whether all groups of the user are kept.
    pub fn has_all_groups(&self) -> bool {
        !self.groups.last().is_some_and(|group| group.starts_with(MORE))
    }

    /// Whether the edit passed under a milder mode and `Deny` would have refused it.
    pub fn would_be_denied(&self) -> bool {
        let is = |outcomes: &[EditOutcome]| outcomes.iter().any(|outcome| outcome.as_str() == self.verdict);
        let because = |reasons: &[VerdictReason]| reasons.iter().any(|reason| reason.as_str() == self.reason);
        // An edit that passes in every mode gets no warning, unless its reason is `Unsettled`.
        self.kind == RowKind::Verdict.as_str()
            && (is(&[EditOutcome::Warn]) && !because(&[VerdictReason::Unsettled])
                || is(&[EditOutcome::Record, EditOutcome::Revert]) && because(&REFUSED))
    }
}

impl EntryField {
    /// The approximate size in bytes.
    fn length(&self) -> usize {
        let texts = [&self.declared, &self.old, &self.new].into_iter().flatten();
        let below = self.difference.as_ref().map_or(0, |difference| difference.length());
        self.path.len() + texts.map(String::len).sum::<usize>() + below
    }
}

impl EntryObject {
    /// `Deployment/web`.
    pub fn short(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

/// Shortens a text and replaces NULs, which PostgreSQL cannot store.
pub(super) fn cut(text: &str) -> String {
    shortened(text, TEXT_CAP).replace('\0', "\u{fffd}")
}

/// As many fields as the cap allows, and how many were left out.
fn seal_fields(changes: &[RowChange], key: Option<&SealingKey>) -> (Vec<EntryField>, usize) {
    let shown = |value: &Option<Shown>| {
        value.as_ref().map(|value| cut(&key.map_or_else(|| value.to_string(), |key| value.sealed(key))))
    };
    let mut fields = Vec::new();
    let mut size = 0;
    for change in changes {
        let RowChange { path, declared, old, new, difference } = change;
        let field = |path: &str, [declared, old, new]: [&Option<Shown>; 3]| EntryField {
            path: cut(path),
            declared: shown(declared),
            old: shown(old),
            new: shown(new),
            difference: None,
            line: None,
        };
        let of_place = |it: &Difference| {
            let field = field(&it.path, [&it.declared, &it.old, &it.new]);
            Box::new(EntryField { line: it.line, ..field })
        };
        let difference = difference.as_deref().map(of_place);
        let field = EntryField { difference, ..field(path, [declared, old, new]) };
        size += field.length();
        if size > FIELDS_CAP {
            break;
        }
        fields.push(field);
    }
    let more = changes.len().saturating_sub(fields.len());
    (fields, more)
}

/// As many groups as the cap allows; if some are left out, the last element says how many.
fn some(groups: &[String]) -> Vec<String> {
    let mut size = 0;
    let mut kept: Vec<String> = groups
        .iter()
        .map(|group| cut(group))
        .take_while(|group| {
            size += group.len();
            size <= GROUPS_CAP
        })
        .collect();
    if kept.len() < groups.len() {
        kept.push(format!("{MORE}{} more", groups.len() - kept.len()));
    }
    kept
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

mod id_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
