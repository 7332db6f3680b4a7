//! What is known of an object, and what may be done.
//!
//! Entry point: [`of`].

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::super::output::{BAD, GOOD, HEAD, NOTE, PLAIN, Table, Text};
use super::super::reading::{Found, Reader};
use super::fields::{self, Field, FieldState};
use crate::declaration::path::Path;
use crate::helm::record::{Status, parse_record_name};
use crate::helm::release::Release;
use crate::helm::state;
use crate::model::{DriftMode, ObjectId, ReleaseId};
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::verdict::drift::{self, Live};
use crate::verdict::edit::Evidence;
use crate::verdict::health::told::Told;
use crate::verdict::ownership::{self, Taken};
use crate::verdict::sealed;

/// The state of an object that matches.
const AS_DECLARED: &str = "as declared";

/// The state of an object that matches and that the next upgrade may fail on.
const TAKEN: &str = "as declared, but another field manager owns some of its fields";

/// What may not be read where a right is missing.
const GUARD: &str = "what the guard says of the release";

/// What to know of a field that the manifest does not declare.
const UNDECLARED: &str = "The manifest does not declare this field: edits of it pass. List elements are named by their keys, such as [name=app].";

/// The same of a sealed one.
const SEALED: &str = "The manifest does not declare this field, and edits that set it are judged all the same: set, it stops the object from following its release.";

/// The same of one below a sealed path.
const ADDED: &str = "The manifest does not declare this field, and a policy seals it: edits that add something there are judged.";

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    object: ObjectId,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<ReleaseFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<PolicyFacts>,
    /// What the guard says of the release: its policies, its flags and the emergency
    /// switch together; none where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<Told>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exceptions: Vec<String>,
    /// What is wrong with the manifest's own annotations, which then allow nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flaws: Vec<String>,
    fields: Vec<Field>,
    /// What to do.
    advice: Vec<String>,
    /// What could not be read, and may change the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReleaseFacts {
    #[serde(flatten)]
    release: ReleaseId,
    revision: u64,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    invalid: Option<String>,
    /// What its record's state means for edits.
    means: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyFacts {
    /// The policies that match.
    matched: Vec<String>,
    /// `None`: the flag of the guard holds.
    edits: Option<String>,
    drift: Option<String>,
}

/// What is known of `object`, which `release` declares.
pub(super) async fn of(
    reader: &Reader,
    object: ObjectId,
    live: Option<Value>,
    release: Option<Arc<Release>>,
    patterns: Vec<Pattern>,
    now: Timestamp,
) -> anyhow::Result<Report> {
    let Some(release) = release else {
        let state = if live.is_some() { "not declared" } else { "absent, and not declared" };
        let advice = undeclared(&object);
        let (fields, exceptions, flaws) = (Vec::new(), Vec::new(), Vec::new());
        let unread = reader.unread_records(object.namespace.as_deref());
        let (release, policy, guard) = (None, None, None);
        return Ok(Report {
            object,
            state,
            release,
            policy,
            guard,
            exceptions,
            flaws,
            fields,
            advice,
            unread,
        });
    };
    let surroundings = reader.surroundings(&release).await;
    let policy = reader.book.of(&release.id);
    let declared = release.declared(&object);
    // An element may be named by its place, as in a JSON Pointer.
    let patterns = match declared {
        Some(declared) => Mask(patterns).placed(&declared.fields).into_owned().0,
        None => patterns,
    };
    // In the version in which it is declared.
    let live = match (live, declared) {
        (Some(_), Some(declared)) => match reader.live(&object, &declared.version).await {
            Found::Object(live) => Some(live),
            Found::Absent | Found::NotServed | Found::Unread(_) => None,
        },
        (live, _) => live,
    };
    let flaws = declared.map(|declared| policy.rules(&object, declared).flaws.clone()).unwrap_or_default();
    let flaws = flaws.iter().map(ToString::to_string).collect();
    let circumstances = surroundings.of(&release, &object);
    let standing = state::standing(&release, &object, policy.operation_timeout, now);
    let subject = standing.as_ref().map(|standing| drift::Subject {
        object: &object,
        standing,
        policy: &policy,
        circumstances: &circumstances,
        now,
    });
    let mut unread = surroundings.unread.clone();
    let guard = reader.pulses.of(&release.id).await.unwrap_or_else(|error| {
        unread.push(format!("{GUARD} cannot be read: {error}"));
        None
    });
    unread.extend(reader.pulses.notes().await);
    // The guard's own flags count as well, which nothing else tells.
    let repair = format!("{:?}", DriftMode::Repair);
    let is_deployed = release.state.status == Status::Deployed;
    let is_repaired = guard.as_ref().map_or(policy.drift == DriftMode::Repair, |guard| guard.drift == repair)
        && is_deployed;
    let mut taken = None;
    let (state, exceptions, fields) = match (&subject, declared) {
        (Some(subject), Some(declared)) => {
            let exceptions = subject.exceptions(declared);
            let mut state = stands(&drift::compare(subject, live.as_ref(), Evidence::None), &release);
            if let Some(live) = live.as_ref().filter(|_| is_repaired && state == AS_DECLARED) {
                let method = release.state.apply_method;
                taken = ownership::taken(&declared.fields, live, method, &exceptions.mask(live));
            }
            if taken.is_some() {
                state = TAKEN;
            }
            (
                state,
                exceptions.sources().into_iter().map(fields::named).collect(),
                fields::of(&object, declared, live.as_ref(), &patterns, &exceptions, is_deployed),
            )
        }
        _ => ("not declared by the state of the record", Vec::new(), Vec::new()),
    };
    let is_undeclared = !patterns.is_empty() && fields.is_empty();
    let is_sealed = sealed::paths(&object).any(|path| patterns.iter().any(|it| it.covers(&path)));
    let seal = declared.map(|declared| policy.rules(&object, declared).sealed.clone()).unwrap_or_default();
    let paths = || patterns.iter().filter_map(|pattern| pattern.to_string().parse::<Path>().ok());
    let mut advice = match (is_undeclared, is_sealed) {
        (true, false) if paths().any(|path| seal.covers(&path)) => vec![ADDED.to_owned()],
        (true, true) => vec![SEALED.to_owned()],
        (true, false) => vec![UNDECLARED.to_owned()],
        (false, _) => advice(&object, &release.id, state, &fields, guard.is_some()),
    };
    advice.extend(taken.map(|Taken { by, paths, .. }| {
        let ReleaseId { namespace, name } = &release.id;
        let first = paths.first().map(ToString::to_string).unwrap_or_default();
        format!(
            "Field manager {by} owns {first}, so the next `helm upgrade` may fail with a conflict. To return it to Helm: `kubemoor reconcile {name} -n {namespace}`."
        )
    }));
    let said = |source: &crate::policy::Source, value: String| match source {
        crate::policy::Source::Default => None,
        crate::policy::Source::Policy(name) => Some(format!("{value} (policy {name})")),
    };
    Ok(Report {
        state,
        release: Some(ReleaseFacts {
            release: release.id.clone(),
            revision: release.state.revision,
            status: release.state.status.to_string(),
            invalid: release.invalid.as_ref().map(|invalid| invalid.reason.clone()),
            means: means(&release, policy.operation_timeout, now),
        }),
        policy: Some(PolicyFacts {
            matched: policy.matched().map(str::to_owned).collect(),
            edits: said(&policy.sources.edits, format!("{:?}", policy.edits)),
            drift: said(&policy.sources.drift, format!("{:?}", policy.drift)),
        }),
        exceptions,
        flaws,
        fields,
        advice,
        guard,
        unread,
        object,
    })
}

/// What to know of an object that no release declares.
fn undeclared(object: &ObjectId) -> Vec<String> {
    if matches!(object.kind.as_str(), "Secret" | "ConfigMap")
        && object.group.is_empty()
        && parse_record_name(&object.name).is_some()
    {
        return vec!["It is a record of Helm's: what of it may be changed is a rule of its own.".to_owned()];
    }
    let mut advice = vec![
        "No release that you may read declares it; if none does, edits of it are not judged.".to_owned(),
    ];
    if matches!(object.kind.as_str(), "Namespace" | "CustomResourceDefinition") {
        advice.push("Its deletion is judged by what releases declare in it.".to_owned());
    }
    advice
}

/// How a live object of `release` stands, in a word.
fn stands(live: &Live<'_>, release: &Release) -> &'static str {
    match live {
        Live::OptedOut => "opted out by its manifest",
        Live::BeingDeleted => "being deleted",
        Live::Awaited if release.state.status == Status::Failed => "not created: the Helm operation failed",
        Live::Awaited => "not there yet",
        Live::Allowed => "missing, as an exception allows",
        Live::Missing => "missing",
        Live::AsDeclared(_) => AS_DECLARED,
        Live::AsBefore => "as declared before the operation under way",
        Live::Drifted(drift) if drift.is_doubt() => "in doubt",
        Live::Drifted(_) => "drifted",
    }
}

fn means(release: &Release, timeout: std::time::Duration, now: Timestamp) -> &'static str {
    if release.invalid.is_some() {
        return "its latest record cannot be believed: the last good one counts, and nothing is repaired";
    }
    if state::is_locked(release, timeout, now) {
        return "its Helm operation is stuck: what agrees with its manifest or the one before passes, nothing is repaired";
    }
    match release.state.status {
        Status::Deployed | Status::Superseded => "its manifest is the declaration",
        Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => {
            "a Helm operation is under way: what it writes is the declaration"
        }
        Status::Uninstalling => "it is being uninstalled: its deletions pass",
        Status::Failed if release.baseline.is_none() => {
            "its installation failed: correct the cause and run `helm upgrade --install`, or `helm uninstall`"
        }
        Status::Failed => {
            "its last operation failed: objects may match it or the revision deployed before; `helm upgrade` or `helm rollback` ends that, with `--force-conflicts` if Helm reports a conflict"
        }
        Status::Uninstalled | Status::Unknown => "it declares nothing",
    }
}

fn advice(
    object: &ObjectId,
    release: &ReleaseId,
    state: &str,
    fields: &[Field],
    guarded: bool,
) -> Vec<String> {
    let ReleaseId { namespace, name } = release;
    let mut advice = vec![format!(
        "To change it for good: change the chart's values and run `helm upgrade {name} -n {namespace}`."
    )];
    let drifted = fields.iter().any(|field| field.state == FieldState::Drifted && field.spared_by.is_empty());
    if drifted || state == "missing" {
        advice.push(format!("To see all that has drifted: `kubemoor diff {name} -n {namespace}`."));
        if guarded {
            advice.push(format!("To have it put right now: `kubemoor reconcile {name} -n {namespace}`."));
        }
    }
    if fields.iter().all(|field| field.spared_by.is_empty()) {
        let nothing_named = if state == "missing" { "delete" } else { "PATH" };
        let path = fields.first().map_or(nothing_named, |field| field.path.as_str());
        let place = object.namespace.as_ref().map_or(String::new(), |namespace| format!(" -n {namespace}"));
        let kind = object.kind.to_lowercase();
        advice.push(format!(
            "To change it for a time: `kubemoor allow {kind}/{} --path '{path}' --for 2h --reason WHY{place}`.",
            object.name
        ));
    }
    advice
}

impl Report {
    /// The answer in words.
    pub(super) fn text(&self) -> Text {
        let mut rows = Table::new(["OBJECT", &self.object.to_string()]);
        rows.row(["STATE", self.state]);
        if let Some(ReleaseFacts { release, revision, status, invalid, means }) = &self.release {
            rows.row(["RELEASE", &format!("{} in namespace {}", release.name, release.namespace)]);
            rows.row(["RECORD", &format!("revision {revision}, {status}: {means}")]);
            if let Some(invalid) = invalid {
                rows.row(["INVALID", invalid]);
            }
        }
        if let Some(PolicyFacts { matched, edits, drift }) = &self.policy {
            let of_guard = || "as the guard's own flag says".to_owned();
            let names = if matched.is_empty() { "none matches".to_owned() } else { matched.join(", ") };
            rows.row(["POLICIES", &names]);
            rows.row(["EDITS", &edits.clone().unwrap_or_else(of_guard)]);
            rows.row(["DRIFT", &drift.clone().unwrap_or_else(of_guard)]);
        }
        match &self.guard {
            Some(Told { edits, drift, ready, reason, message, .. }) => {
                let reason = reason.as_ref().unwrap_or(ready);
                rows.row(["GUARD", &format!("edits {edits}, drift {drift}; {reason}: {message}")]);
            }
            None if self.release.is_some() && !self.unread.iter().any(|unread| unread.starts_with(GUARD)) => {
                rows.row(["GUARD", "says nothing of the release: `kubemoor get releases` says why"]);
            }
            None => {}
        }
        for exception in &self.exceptions {
            rows.row(["EXCEPTION", exception]);
        }
        for flaw in &self.flaws {
            rows.row(["ALLOWS NOTHING", flaw]);
        }
        let mut text = rows.text();
        for field in &self.fields {
            add_field(&mut text, field);
        }
        text.line();
        for advice in &self.advice {
            text.add(PLAIN, advice).line();
        }
        for unread in &self.unread {
            text.add(NOTE, &format!("Not considered: {unread}")).line();
        }
        text
    }
}

fn add_field(text: &mut Text, field: &Field) {
    let (style, state) = match field.state {
        FieldState::AsDeclared => (GOOD, "as declared"),
        FieldState::Drifted => (BAD, "drifted"),
        FieldState::InDoubt => (NOTE, "in doubt"),
        FieldState::Absent => (BAD, "absent with its object"),
    };
    text.line().add(HEAD, &field.path).add(PLAIN, ": ").add(style, state).line();
    let shown = |value: &Option<_>| value.as_ref().map_or_else(|| "absent".to_owned(), ToString::to_string);
    let mut rows = Table::default();
    rows.row(["  declared", &shown(&field.declared)]);
    rows.row(["  live", &shown(&field.live)]);
    let managers = field.managers.iter().map(|manager| format!("{} ({:?})", manager.name, manager.operation));
    let managers = managers.collect::<Vec<_>>().join(", ");
    rows.row(["  owned by", if managers.is_empty() { "nobody" } else { &managers }]);
    for spared in &field.spared_by {
        rows.row(["  spared", spared]);
    }
    text.append(&rows.text());
}
