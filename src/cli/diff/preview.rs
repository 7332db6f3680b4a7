//! The changes that repairs would make now: `kubemoor reconcile --dry-run`.
//!
//! Entry points: [`Previews::of`], [`Previews::text`]. Invariant: the preview matches the comparison. If the
//! guard would refuse to write, the preview quotes the guard's reason.

use json_patch::Patch;
use serde::Serialize;

use super::super::connect::spoken;
use super::super::output::{BAD, GOOD, HEAD, NOTE, PLAIN, Text};
use super::Report;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_inspect::comparison::object::State;
use kubemoor_inspect::comparison::{ObjectReport, ReleaseReport};
use kubemoor_verdict::health::Reason;
use kubemoor_verdict::health::reported::ReportedHealth;

/// The changes that repairs of releases would make.
#[derive(Debug)]
pub(super) struct Previews(pub(super) Vec<Preview>);

/// What repairs of one release would change.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Preview {
    #[serde(flatten)]
    release: ReleaseId,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    changes: Vec<Change>,
    /// Why the guard may leave some of it as it is, by its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_up: Option<String>,
    /// What could not be read and may spare some of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_considered: Vec<String>,
}

/// What a repair would do with one object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Change {
    #[serde(flatten)]
    object: ObjectId,
    action: Action,
    /// What would change; not for Secrets, whose values it would show.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Patch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
enum Action {
    /// Fields would be set back.
    Restore,
    /// The object would be made anew.
    Recreate,
    /// Fields would be given back to Helm's field manager.
    ReturnFields,
    /// Nothing, before somebody can tell whether it drifted.
    Nothing,
}

impl Previews {
    /// Previews the repairs of the releases in a comparison.
    pub(super) fn of(report: Report) -> Self {
        Self(report.releases.into_iter().map(Preview::of).collect())
    }

    /// Whether anything would change.
    pub(super) fn has_changes(&self) -> bool {
        self.0.iter().flat_map(|release| &release.changes).any(|change| change.action != Action::Nothing)
    }

    pub(super) fn text(&self) -> Text {
        let mut text = Text::default();
        for Preview { release, revision, changes, held_up, not_considered } in &self.0 {
            text.add(HEAD, &spoken(release));
            let revision = revision.map(|revision| format!(" (revision {revision})")).unwrap_or_default();
            let none = if changes.is_empty() { ": nothing to repair" } else { "" };
            text.add(PLAIN, &format!("{revision}{none}")).line();
            for change in changes {
                change.add(&mut text);
            }
            if let Some(held_up) = held_up {
                text.add(NOTE, &format!("  {held_up}")).line();
            }
            for unread in not_considered {
                text.add(NOTE, &format!("  Not considered: {unread}")).line();
            }
        }
        text
    }
}

impl Preview {
    fn of(release: ReleaseReport) -> Self {
        let holds = |told: &ReportedHealth| {
            told.is_stale() || told.reason.as_deref() == Some(Reason::Unconfirmed.as_str())
        };
        let held_up = release.guard.filter(holds).map(|told| told.message);
        let changes: Vec<Change> = release.objects.into_iter().filter_map(Change::of).collect();
        let held_up = held_up.filter(|_| !changes.is_empty());
        Self {
            release: release.release,
            revision: release.revision,
            changes,
            held_up,
            not_considered: release.not_considered,
        }
    }
}

impl Change {
    /// Previews the repair of an object; `None` where there is nothing to do.
    fn of(report: ObjectReport) -> Option<Self> {
        let ObjectReport { object, state, reason, patch, .. } = report;
        let action = match state {
            State::Drifted => Action::Restore,
            State::Missing => Action::Recreate,
            State::Ownership => Action::ReturnFields,
            State::InDoubt | State::NotServed | State::Unread => Action::Nothing,
            _ => return None,
        };
        let reason = match (action, state, &patch) {
            (Action::Restore, _, None) => Some("its values are secret, so the patch is not shown".to_owned()),
            (_, State::InDoubt, _) => Some("only a dry run can tell: `kubemoor diff --settle`".to_owned()),
            _ => reason,
        };
        Some(Self { object, action, patch, reason })
    }

    fn add(&self, text: &mut Text) {
        let Self { object, action, patch, reason } = self;
        let (style, what) = match action {
            Action::Restore => (BAD, "would be restored"),
            Action::Recreate => (BAD, "would be re-created"),
            Action::ReturnFields => (BAD, "its fields would be given back to Helm"),
            Action::Nothing => (NOTE, "would stay as it is"),
        };
        text.add(PLAIN, &format!("  {object}: ")).add(style, what);
        if let Some(reason) = reason {
            text.add(PLAIN, &format!(" ({reason})"));
        }
        text.line();
        for operation in patch.iter().flat_map(|patch| &patch.0) {
            // The operation was already serialized once, to check that it holds no secret.
            let line = serde_json::to_string(operation).unwrap_or_default();
            text.add(GOOD, &format!("    {line}")).line();
        }
    }
}
