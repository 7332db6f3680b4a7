//! A row as it is kept, shown and sent: text, sealed and bounded.
//!
//! Entry point: `Entry::seal`. Invariant: no entry is larger than its caps
//! allow, whatever an editor wrote, and none holds a character that a database
//! refuses. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::id;
use super::row::{Change, Kind, Row};
use kubemoor_verdict::difference::Difference;
use kubemoor_verdict::edit::{Outcome, Reason};
use kubemoor_verdict::shown::{SealingKey, Shown};

/// The most bytes of the fields of one entry, as JSON.
const FIELDS_CAP: usize = 4 << 10;

/// The most bytes of the groups of one entry.
const GROUPS_CAP: usize = 2 << 10;

/// What begins the mark of groups that are not kept.
const MORE: &str = "… ";

/// The most characters of any other text.
const TEXT_CAP: usize = 600;

/// Why edits are refused under `Deny`. Other reasons let an edit pass in every mode.
const REFUSED: [Reason; 7] = [
    Reason::Request,
    Reason::Drift,
    Reason::Deletion,
    Reason::Dependants,
    Reason::Record,
    Reason::TooLarge,
    Reason::TooDeep,
];

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The id, which orders rows by time; a text, because JSON numbers cannot hold it exactly.
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
    pub object: Object,
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
    /// The declared fields that decided.
    pub fields: Vec<Field>,
    /// The number of fields that are not kept.
    pub more_fields: i64,
    /// How many equal refusals within the minute after this one have no row of their own.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub repeats: i64,
    /// The data of a change by which other policies can judge it; only if the request asks for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub facts: Option<String>,
    /// The uid of the admission review; may be empty.
    pub uid: String,
    /// Set where every guard of a cluster sees the same, which is kept once.
    /// Not shown.
    #[serde(skip)]
    pub(super) same: Option<i64>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Object {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; none for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// A field, with the values of Secrets as keyed hashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Field {
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
    pub difference: Option<Box<Field>>,
    /// The line of a long text, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
}

impl Entry {
    /// `row` as it is kept under this id in the name of `cluster`. Without a
    /// key, values of Secrets show as nothing but masked.
    pub(super) fn seal(row: Row, id: i64, cluster: &str, key: Option<&SealingKey>) -> Self {
        let Row {
            kind,
            release,
            object,
            operation,
            actor,
            verdict,
            reason,
            detail,
            fields,
            facts,
            uid,
            same,
            ..
        } = row;
        let (fields, beyond) = fields.into_listed();
        let beyond = i64::try_from(beyond).unwrap_or(i64::MAX);
        let own_namespace = release.as_ref().map(|(release, _)| release.namespace.clone());
        let (release, revision) = release.map(|(release, revision)| (release.name, revision)).unzip();
        let (fields, more_fields) = seal_fields(&fields, key);
        let namespace = own_namespace.or_else(|| object.namespace.clone()).unwrap_or_default();
        Self {
            id,
            time: id::time(id),
            kind: kind.as_str().to_owned(),
            cluster: cluster.to_owned(),
            namespace: cut(&namespace),
            release: release.as_deref().map(cut),
            revision: revision.map(|revision| i64::try_from(revision).unwrap_or(i64::MAX)),
            object: Object {
                group: cut(&object.group),
                kind: cut(&object.kind),
                namespace: object.namespace.as_deref().map(cut),
                name: cut(&object.name),
            },
            operation: operation.map(|operation| operation.as_str().to_owned()),
            user: cut(&actor.user),
            groups: some(&actor.groups),
            verdict: verdict.to_owned(),
            reason: reason.to_owned(),
            detail: cut(&detail),
            fields,
            more_fields: more_fields.saturating_add(beyond),
            repeats: 0,
            // A NUL stands there as six letters.
            facts,
            uid: cut(&uid),
            same: same.as_deref().map(id::of_same),
        }
    }
}

impl Entry {
    /// Whether all groups of the user are kept.
    pub fn has_all_groups(&self) -> bool {
        !self.groups.last().is_some_and(|group| group.starts_with(MORE))
    }

    /// Whether the edit passed under a milder mode and `Deny` would have refused it.
    pub fn would_be_denied(&self) -> bool {
        let is = |outcomes: &[Outcome]| outcomes.iter().any(|outcome| outcome.as_str() == self.verdict);
        let because = |reasons: &[Reason]| reasons.iter().any(|reason| reason.as_str() == self.reason);
        // Nobody is warned of an edit that passes in every mode, unless it stays in doubt.
        self.kind == Kind::Verdict.as_str()
            && (is(&[Outcome::Warn]) && !because(&[Reason::Unsettled])
                || is(&[Outcome::Record, Outcome::Revert]) && because(&REFUSED))
    }
}

impl Field {
    /// About what it takes, in bytes.
    fn length(&self) -> usize {
        let texts = [&self.declared, &self.old, &self.new].into_iter().flatten();
        let below = self.difference.as_ref().map_or(0, |difference| difference.length());
        self.path.len() + texts.map(String::len).sum::<usize>() + below
    }
}

impl Object {
    /// `Deployment/web`.
    pub fn short(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }
}

/// PostgreSQL keeps no NUL in a text.
pub(super) fn cut(text: &str) -> String {
    let mut kept: String =
        text.chars().take(TEXT_CAP).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect();
    if kept.len() < text.len() && text.chars().nth(TEXT_CAP).is_some() {
        kept.push('…');
    }
    kept
}

/// As many fields as the cap allows, and how many were left out.
fn seal_fields(changes: &[Change], key: Option<&SealingKey>) -> (Vec<Field>, i64) {
    let shown = |value: &Option<Shown>| {
        value.as_ref().map(|value| cut(&key.map_or_else(|| value.to_string(), |key| value.sealed(key))))
    };
    let mut fields = Vec::new();
    let mut size = 0;
    for change in changes {
        let Change { path, declared, old, new, difference } = change;
        let field = |path: &str, [declared, old, new]: [&Option<Shown>; 3]| Field {
            path: cut(path),
            declared: shown(declared),
            old: shown(old),
            new: shown(new),
            difference: None,
            line: None,
        };
        let of_place = |it: &Difference| {
            let field = field(&it.path, [&it.declared, &it.old, &it.new]);
            Box::new(Field { line: it.line, ..field })
        };
        let difference = difference.as_deref().map(of_place);
        let field = Field { difference, ..field(path, [declared, old, new]) };
        size += field.length();
        if size > FIELDS_CAP {
            break;
        }
        fields.push(field);
    }
    let more = changes.len().saturating_sub(fields.len());
    (fields, i64::try_from(more).unwrap_or(i64::MAX))
}

/// As many groups as the cap allows; the last one tells of others.
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::{GuardedObject, Repaired};
    use kubemoor_declare::model::{Actor, ObjectId, ReleaseId};

    fn object(kind: &str) -> ObjectId {
        ObjectId::namespaced("", kind, "shop", "a")
    }

    fn of<'a>(release: &'a ReleaseId, object: &'a ObjectId) -> GuardedObject<'a> {
        GuardedObject { release, revision: 2, object }
    }

    fn entry(object: &ObjectId, fields: Vec<Change>, actor: Actor) -> Entry {
        let release = ReleaseId { namespace: "apps".into(), name: "web".into() };
        let row = Row::repair(Timestamp::now(), of(&release, object), Repaired::Restored, fields, "");
        Entry::seal(Row { actor, ..row }, 1 << 40, "east", Some(&SealingKey::new([3; 32])))
    }

    fn change(object: &ObjectId, path: &str, value: &serde_json::Value) -> Change {
        let shown = Shown::of(object, &path.parse().unwrap(), value);
        Change {
            path: path.to_owned(),
            declared: Some(shown.clone()),
            old: Some(shown.clone()),
            new: Some(shown),
            difference: None,
        }
    }

    #[test]
    fn no_row_grows_beyond_its_caps() {
        let long = "x".repeat(100_000);
        let config = object("ConfigMap");
        let fields = (0..5000).map(|n| change(&config, &format!("/data/{n}{long}"), &json!(long))).collect();
        let groups = (0..5000).map(|n| format!("{n}{long}")).collect();
        let entry = entry(&config, fields, Actor { user: long.clone(), groups, ..Actor::default() });
        let size = serde_json::to_string(&entry).unwrap().len();
        assert!(size < 16 << 10, "{size}");
        assert_eq!(i64::try_from(entry.fields.len()).unwrap() + entry.more_fields, 5000);
        assert!(entry.groups.last().unwrap().starts_with("… ") && entry.user.ends_with('…'), "{entry:?}");
    }

    #[test]
    fn row_namespace_comes_from_release_or_else_from_object() {
        let config = object("ConfigMap");
        let of_release = entry(&config, Vec::new(), Actor::default());
        assert_eq!(
            (of_release.namespace.as_str(), of_release.object.namespace.as_deref()),
            ("apps", Some("shop"))
        );
        let release = ReleaseId { namespace: "".into(), name: "".into() };
        let row = Row::repair(Timestamp::now(), of(&release, &config), Repaired::Restored, Vec::new(), "");
        let alone = Entry::seal(Row { release: None, ..row }, 1, "east", None);
        assert_eq!((alone.namespace.as_str(), alone.release), ("shop", None));
    }

    #[test]
    fn without_a_key_a_secret_shows_nothing() {
        let secret = object("Secret");
        let release = ReleaseId { namespace: "apps".into(), name: "web".into() };
        let fields = vec![change(&secret, "/data/password", &json!("aHVudGVyMg=="))];
        let row = Row::repair(Timestamp::now(), of(&release, &secret), Repaired::Restored, fields, "");
        let entry = Entry::seal(row, 1, "east", None);
        assert_eq!(entry.fields[0].new.as_deref(), Some("(redacted)"));
    }

    #[test]
    fn deny_mode_would_refuse_recorded_drift_but_not_excused_changes() {
        let edit = |verdict: &str, reason: &str| {
            let entry = entry(&object("ConfigMap"), Vec::new(), Actor::default());
            let (kind, verdict, reason) = ("verdict".to_owned(), verdict.to_owned(), reason.to_owned());
            Entry { kind, verdict, reason, ..entry }
        };
        for verdict in ["Record", "Warn", "Revert"] {
            for reason in ["request", "drift", "deletion", "dependants", "record", "too-large", "too-deep"] {
                assert!(edit(verdict, reason).would_be_denied(), "{verdict} {reason}");
            }
        }
        for (verdict, reason) in [
            ("Record", "allowed"),
            ("Record", "exempt"),
            ("Record", "unsettled"),
            ("Record", "busy"),
            ("Record", "late"),
            ("Warn", "unsettled"),
            ("Deny", "drift"),
            ("Error", "unreached"),
        ] {
            assert!(!edit(verdict, reason).would_be_denied(), "{verdict} {reason}");
        }
        let transition = Entry { kind: "record".to_owned(), ..edit("Record", "drift") };
        assert!(!transition.would_be_denied());
    }
}
