//! A verdict in words: the release of the object, the fields that the change would overwrite, and the remedies,
//! written as a denial, as warnings or as a log line.
//!
//! A message holds only values that [`crate::shown`] allows and no control characters except for the line ends of a
//! denial; every message about an object ends with the command that explains it. Where there is little room, values
//! are shortened before paths.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use jiff::Timestamp;
use smallvec::{SmallVec, smallvec};

use crate::claims::Dependant;
use crate::edit::{FieldFinding, Grounds, Verdict, VerdictReason};
use crate::records::{self, RecordViolation};
use crate::remedy::{LiveWriters, Remedy, RemedyKind, Upgrade, Upgrader, allow, argument, details};
use crate::revert::RevertedField;
use crate::shown::{Difference, Shown};
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::model::text::{one_line, shortened};
use kubemoor_declare::model::{ALLOW, ObjectId, Operation, ReleaseId};
use kubemoor_declare::path::Segment;
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_helm::values::Candidate;
use kubemoor_policy::Policy;
use kubemoor_policy::flaw::Flaw;

/// Room for most denials, in bytes.
const ROOM: usize = 2048;

/// The most characters of a warning that the API server passes on.
pub const WARNING: usize = 256;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EditMessage {
    /// The release of the object, as a clause.
    claim: String,
    short: String,
    /// What the change does, as a clause.
    what: String,
    /// The denial with its policy, as a clause.
    denied: String,
    listed: MessageList,
    /// Whether the user is not shown the values of the listed fields.
    hides_values: bool,
    /// Further facts and the remedies, a sentence each.
    remedies: Vec<Remedy>,
    /// The way to change the release permanently, if it is one of the remedies.
    upgrade: Option<Box<Upgrade>>,
}

/// The sources of a message about a declared object.
#[derive(Clone, Copy, Debug)]
pub struct MessageContext<'a> {
    pub object: &'a ObjectId,
    pub operation: Operation,
    /// The policy that decides; `None` where it is not known.
    pub policy: Option<&'a Policy>,
    /// The object as the release declares it; `None` where it is not known.
    pub declared: Option<&'a Arc<DeclaredObject>>,
    /// The release that declares it; `None` where it is not known.
    pub release: Option<&'a Release>,
    /// The live object before and after the edit; `None` if it did not exist or is deleted.
    pub live: [Option<&'a Excerpt<'a>>; 2],
}

impl MessageContext<'_> {
    /// The message about an edit of a declared object, with the remedies.
    pub fn of_edit(&self, verdict: &Verdict) -> EditMessage {
        let Some(grounds) = &verdict.grounds else {
            return EditMessage { claim: verdict.reason.as_str().to_owned(), ..EditMessage::default() };
        };
        let Grounds { release, fields, .. } = &**grounds;
        let upgrade = self.upgrade(release);
        let by = self.by_policy();
        if self.operation == Operation::Delete || verdict.reason == VerdictReason::Deletion {
            return EditMessage {
                what: "this change would delete it".to_owned(),
                denied: format!("Its deletion is not allowed{by}"),
                remedies: upgrade.for_deletion(self.object),
                ..EditMessage::about(self.object, grounds)
            };
        }
        EditMessage {
            what: "this change would overwrite fields that the release manages".to_owned(),
            denied: format!("This change is not allowed{by}"),
            listed: MessageList::Fields(Arc::clone(grounds)),
            remedies: upgrade.for_fields(self.object, fields.iter().map(|finding| &finding.path)),
            upgrade: Some(Box::new(upgrade)),
            ..EditMessage::about(self.object, grounds)
        }
    }

    /// The message about reverted fields of an edit: the release of the object, then each field.
    pub fn of_revert(&self, verdict: &Verdict, fields: &[RevertedField]) -> EditMessage {
        let Some(grounds) = &verdict.grounds else { return EditMessage::default() };
        let upgrade = self.upgrade(&grounds.release);
        EditMessage {
            what: "these fields were reverted to the release's values".to_owned(),
            listed: MessageList::SetBack(fields.to_vec()),
            remedies: upgrade.for_fields(self.object, fields.iter().map(|field| &field.path)),
            upgrade: Some(Box::new(upgrade)),
            ..EditMessage::about(self.object, grounds)
        }
    }

    fn upgrade(&self, release: &ReleaseId) -> Upgrade {
        let record = self.release.map(|release| &*release.latest);
        let live = || LiveWriters::of_review(self.live);
        let owner =
            self.declared.map_or(Upgrader::Helm, |declared| Upgrader::find(&declared.fields(), record, live));
        let chart = self.release.and_then(|release| release.state.chart.clone());
        Upgrade { release: release.clone(), owner, chart }
    }

    /// The policy that made the verdict, where it is not the default.
    fn by_policy(&self) -> String {
        let name = self.policy.and_then(|policy| policy.edits_by.as_ref());
        name.map(|name| format!(" by policy {name:?}")).unwrap_or_default()
    }
}

impl EditMessage {
    pub fn is_empty(&self) -> bool {
        self.claim.is_empty()
    }

    /// Names the chart values that probably set the fields; `values` has one entry for each field.
    pub fn suggest(&mut self, values: &[Vec<Candidate>]) {
        let Some(upgrade) = self.upgrade.as_ref().filter(|_| values.iter().any(|it| !it.is_empty())) else {
            return;
        };
        if let Some(way) = self.remedies.iter_mut().find(|way| way.kind == RemedyKind::Permanent) {
            *way = upgrade.remedy(values);
        }
    }

    /// For a user who may not run the command that allows changes temporarily: the message says to ask somebody who may
    /// create exceptions in this namespace.
    pub fn ask_others(&mut self, namespace: &str) {
        let temporary = self.remedies.iter_mut().filter(|way| way.kind == RemedyKind::Temporary);
        temporary.for_each(|way| way.ask_others(namespace));
    }

    /// Whether it shows values of the object that an edit overwrites.
    pub fn has_values(&self) -> bool {
        !self.hides_values
            && matches!(&self.listed, MessageList::Fields(grounds) if !grounds.fields.is_empty())
    }

    /// Leaves the values out of the denial and the warnings, because the user may not read the object. The line for the
    /// guard's own log keeps them.
    pub fn hide_values(&mut self) {
        self.hides_values = true;
        self.add("Values are shown only to users who may get the object.".to_owned());
    }

    /// Adds a sentence before the remedies.
    pub fn add(&mut self, sentence: String) {
        self.remedies.insert(0, sentence.into());
    }

    /// Adds the errors of a manifest's own annotations, on which the user of a denied edit may have relied.
    pub fn add_flaws(&mut self, flaws: &[Flaw]) {
        if !flaws.is_empty() {
            let told: Vec<_> = flaws.iter().map(ToString::to_string).collect();
            self.add(format!("INVALID ANNOTATION in the chart, which has no effect: {}.", told.join("; ")));
        }
    }

    /// The message for a denied edit: several lines.
    pub fn denial(&self) -> String {
        let mut text = String::with_capacity(ROOM);
        let mut line = OneLine(&mut text);
        let fields = self.listed.first(self.hides_values);
        // Writing to a String cannot fail.
        let _ = match (self.denied.as_str(), fields.is_empty()) {
            ("", _) => write!(line, "{}.", self.claim),
            (denied, true) => write!(line, "{}. {denied}.", self.claim),
            (denied, false) => write!(line, "{}. {denied}:", self.claim),
        };
        for field in fields {
            let _ = line.next("  ").and_then(|()| write!(line, "{field}"));
        }
        if let Some(others) = self.listed.others() {
            let _ = line.next("  ").and_then(|()| line.write_str(&others));
        }
        for way in &self.remedies {
            let _ = line.next("").and_then(|()| write!(line, "{way}"));
        }
        text
    }

    /// The warnings for an allowed edit: one line for each field, then the remedies, each short enough for the API
    /// server.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = match self.listed.first(self.hides_values).as_slice() {
            [] if self.what.is_empty() => vec![format!("{}.", self.claim)],
            [] => vec![format!("{}; {}.", self.claim, self.what)],
            fields => fields.iter().map(|field| field.within(WARNING, &[&self.claim, &self.short])).collect(),
        };
        warnings.extend(self.listed.others().map(|others| format!("{}: {others}", self.short)));
        let ways: Vec<String> = self.remedies.iter().filter_map(|way| way.within(WARNING)).collect();
        let all = Some(ways.join(" ")).filter(|all| !all.is_empty() && all.chars().count() <= WARNING);
        warnings.extend(all.map_or(ways, |all| vec![all]));
        warnings.into_iter().map(|warning| at_a_word(one_line(&warning).into_owned())).collect()
    }

    /// The message as one line of a log.
    pub fn line(&self) -> String {
        let mut parts = vec![self.claim.clone()];
        parts.extend(Some(self.what.clone()).filter(|what| !what.is_empty()));
        let fields = self.listed.first(false);
        let fields = fields.iter().map(ToString::to_string).chain(self.listed.others());
        let fields = fields.collect::<Vec<_>>().join("; ");
        let text = parts.join("; ");
        one_line(&if fields.is_empty() { text } else { format!("{text}: {fields}") }).into_owned()
    }

    fn about(object: &ObjectId, grounds: &Grounds) -> Self {
        let Grounds { release, revision, .. } = grounds;
        let (named, by) = (named(object, release), of_release(object, release));
        Self {
            claim: format!("{named} is managed by Helm release {by} (revision {revision})"),
            short: format!("{named} (Helm release {by})"),
            ..Self::default()
        }
    }

    fn with_remedies(claim: String, ways: Vec<Remedy>) -> Self {
        Self { short: claim.clone(), claim, remedies: ways, ..Self::default() }
    }
}

/// The message about an edit of a record, with the remedies.
pub fn of_record(object: &ObjectId, falsified: RecordViolation) -> EditMessage {
    let what = match falsified {
        RecordViolation::Manifest => "it would change the manifest of an existing revision",
        RecordViolation::LastDeployed => {
            "it would remove the last deployed revision while the release is installed"
        }
        RecordViolation::Disagreement => "the record's name, labels and content would no longer agree",
        RecordViolation::Stranger => {
            "a policy names the operators of the release, and only they may write its records"
        }
    };
    let way = match falsified {
        RecordViolation::Stranger => {
            "To change the release, run Helm as one of these operators, or add the user under `operators` of the policy."
        }
        _ => {
            "To change the release, use helm upgrade, helm rollback or helm uninstall, which write the records."
        }
    };
    let revision = records::names(object)
        .map(|(release, revision)| format!("revision {revision} of Helm release {:?}", release.name));
    let revision = revision.unwrap_or_else(|| "a Helm release".to_owned());
    EditMessage {
        what: what.to_owned(),
        denied: format!("This change is not allowed: {what}"),
        ..EditMessage::with_remedies(
            format!("{} {:?} is the record of {revision}", object.kind, object.name),
            vec![way.to_owned().into(), details(object, None)],
        )
    }
}

/// The message about a deletion that also deletes declared objects, or about an update with a new owner, after which
/// the garbage collector may do the same.
pub fn of_dependants(object: &ObjectId, operation: Operation, dependants: &[Dependant]) -> EditMessage {
    let change = if operation == Operation::Delete { "Deletion" } else { "A new owner reference" };
    let named = |it: &Dependant| {
        let ReleaseId { namespace, name } = &it.release.id;
        format!("{} {:?} of Helm release {name:?} in namespace {namespace:?}", it.object.kind, it.object.name)
    };
    let first = dependants.first().map(|it| &it.release.id);
    let way = first.map(|ReleaseId { namespace, name }| {
        let others = if dependants.len() > 1 { ", and the others in the same way" } else { "" };
        Remedy::from(format!("Uninstall these releases first: helm uninstall {name} -n {namespace}{others}"))
    });
    EditMessage {
        what: "this would also delete objects that Helm releases manage".to_owned(),
        denied: "This would also delete objects that Helm releases manage".to_owned(),
        listed: MessageList::Objects(dependants.iter().map(named).collect()),
        ..EditMessage::with_remedies(
            format!("{change} of {} {:?} is not allowed", object.kind, object.name),
            way.into_iter().chain([details(object, None)]).collect(),
        )
    }
}

/// The message for an edit that is too large or too deep to be judged.
pub fn of_beyond_judgement(object: &ObjectId, is_record: bool) -> EditMessage {
    EditMessage {
        denied: "This change is too large or too deeply nested to be checked: send a smaller one".to_owned(),
        what: "this change is too large or too deeply nested to be checked".to_owned(),
        ..of_unread(object, is_record)
    }
}

/// The message for an edit that was not checked because too many large ones arrived at once.
pub fn of_overload(object: &ObjectId, is_record: bool) -> EditMessage {
    EditMessage {
        denied: "Too many large changes arrive at once: try again".to_owned(),
        what: "too many large changes arrive at once to check this one".to_owned(),
        ..of_unread(object, is_record)
    }
}

/// One field of a live object in words.
pub fn live_field(finding: &FieldFinding) -> String {
    let FieldFinding { path, declared, new, added, .. } = finding;
    // For an element with changed keys, the new keys are shown.
    let is_moved =
        |new: &Shown| matches!(path.0.last(), Some(Segment::Key(_))) && new.as_str().starts_with('{');
    let text = match (declared, new) {
        (None, None) => path.plain().to_string(),
        (None, Some(new)) if !added && is_moved(new) => format!("{} (moved: is now {new})", path.plain()),
        _ => FieldWords::of_live(finding).to_string(),
    };
    one_line(&text).into_owned()
}

fn of_unread(object: &ObjectId, is_record: bool) -> EditMessage {
    let whose = if is_record { "is a Helm release record" } else { "is managed by a Helm release" };
    if object.name.is_empty() {
        return EditMessage::with_remedies(format!("An object of kind {} {whose}", object.kind), Vec::new());
    }
    let claim = format!("{} {:?} {whose}", object.kind, object.name);
    EditMessage::with_remedies(claim, vec![details(object, None)])
}

/// The name of an object in a sentence, with its namespace if it differs from its release's.
fn named(object: &ObjectId, release: &ReleaseId) -> String {
    match &object.namespace {
        Some(namespace) if *namespace != release.namespace => {
            format!("{} {:?} in namespace {namespace:?}", object.kind, object.name)
        }
        _ => format!("{} {:?}", object.kind, object.name),
    }
}

/// The name of a release in a sentence about its object.
fn of_release(object: &ObjectId, release: &ReleaseId) -> String {
    match object.namespace.as_ref() == Some(&release.namespace) {
        true => format!("{:?}", release.name),
        false => format!("{:?} in namespace {:?}", release.name, release.namespace),
    }
}

/// The most characters of a path that are shown.
const PATH: usize = 300;

/// The fewest characters to which a value is shortened.
const VALUE: usize = 12;

/// Room for most paths, in bytes.
const PATH_ROOM: usize = 128;

/// The text for an absent value.
const ABSENT: &str = "absent";

#[derive(Clone)]
struct FieldWords<'a> {
    path: Cow<'a, str>,
    values: SmallVec<[Cow<'a, str>; 3]>,
    /// The texts before each value and after the last one.
    between: &'static [&'static str],
}

impl<'a> FieldWords<'a> {
    fn plain(text: &'a str) -> Self {
        Self { path: text.into(), values: SmallVec::new(), between: &[] }
    }

    fn of_edit(finding: &'a FieldFinding) -> Self {
        let (path, [declared, old, new]) = first(finding);
        let between = &[": ", " -> ", " (release: ", ")"];
        Self { path, values: smallvec![old, new, declared], between }
    }

    /// Only the path of the field, without its values and the place below it at which they differ.
    fn of_path(finding: &'a FieldFinding) -> Self {
        let path = front_cut(finding.path.plain().to_string().into(), PATH);
        Self { path, values: SmallVec::new(), between: &[] }
    }

    fn of_live(finding: &'a FieldFinding) -> Self {
        let (path, [declared, _, new]) = first(finding);
        Self { path, values: smallvec![new, declared], between: &[": ", " (release: ", ")"] }
    }

    fn of_revert(field: &'a RevertedField) -> Self {
        let RevertedField { path, wanted, now } = field;
        let path = front_cut(path.plain().to_string().into(), PATH);
        let values = smallvec![text(wanted), text(now)];
        Self { path, values, between: &[": ", " was reverted to ", ""] }
    }

    /// The field after the first of these clauses with which it fits into `limit` characters. If it fits with none, it
    /// follows the last clause, with its values shortened, then its path.
    fn within(&self, limit: usize, clauses: &[&str]) -> String {
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
        let values = self.values.iter().map(|value| shortened(&**value, most)).collect();
        format!("{clause}: {}", FieldWords { path, values, between: self.between })
    }
}

impl fmt::Display for FieldWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = self.between.iter();
        f.write_str(&self.path)?;
        for (value, before) in self.values.iter().zip(between.by_ref()) {
            write!(f, "{before}{value}")?;
        }
        f.write_str(between.next().unwrap_or(&""))
    }
}

/// The shown place and its values: declared, old and new.
fn first(finding: &FieldFinding) -> (Cow<'_, str>, [Cow<'_, str>; 3]) {
    let FieldFinding { path, declared, old, new, difference, .. } = finding;
    let mut place = String::with_capacity(PATH_ROOM);
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

fn front_cut(text: Cow<'_, str>, most: usize) -> Cow<'_, str> {
    // A text has no more characters than bytes.
    if text.len() <= most {
        return text;
    }
    match text.chars().count().checked_sub(most) {
        None | Some(0) => text,
        Some(more) => ['…'].into_iter().chain(text.chars().skip(more + 1)).collect(),
    }
}

struct OneLine<'t>(&'t mut String);

impl OneLine<'_> {
    fn next(&mut self, begin: &str) -> fmt::Result {
        self.0.push('\n');
        self.write_str(begin)
    }
}

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(&one_line(text));
        Ok(())
    }
}

/// `text`, cut to the length of a warning, after a whole word if possible.
fn at_a_word(text: String) -> String {
    if text.chars().nth(WARNING).is_none() {
        return text;
    }
    let kept: String = text.chars().take(WARNING - 2).collect();
    let end = kept.rfind(' ').filter(|end| *end > WARNING / 2).unwrap_or(kept.len());
    format!("{} …", kept.get(..end).unwrap_or(&kept))
}

/// The most fields or objects that a message names.
const NAMED: usize = 8;

/// The list of a message.
#[derive(Clone, Debug, Default, PartialEq)]
enum MessageList {
    #[default]
    Nothing,
    /// The fields that an edit overwrites.
    Fields(Arc<Grounds>),
    /// Fields that were reverted.
    SetBack(Vec<RevertedField>),
    Objects(Vec<String>),
}

impl MessageList {
    /// The first entries in words; with `hides_values`, without the values of fields that an edit overwrites.
    fn first(&self, hides_values: bool) -> Vec<FieldWords<'_>> {
        let words = |finding| match hides_values {
            true => FieldWords::of_path(finding),
            false => FieldWords::of_edit(finding),
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Fields(grounds) => grounds.fields.iter().take(NAMED).map(words).collect(),
            Self::SetBack(fields) => fields.iter().take(NAMED).map(FieldWords::of_revert).collect(),
            Self::Objects(named) => named.iter().take(NAMED).map(|named| FieldWords::plain(named)).collect(),
        }
    }

    /// The number of the other entries, in words.
    fn others(&self) -> Option<String> {
        let (all, one, many) = match self {
            Self::Nothing => (0, "", ""),
            Self::Fields(grounds) => (grounds.fields.len(), " field", " fields"),
            Self::SetBack(fields) => (fields.len(), " field", " fields"),
            Self::Objects(named) => (named.len(), "", ""),
        };
        let more = all.saturating_sub(NAMED);
        (more > 0).then(|| format!("and {more} more{}", if more == 1 { one } else { many }))
    }
}

/// Why a repair order leaves an object unrepaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnrepairedReason<'a> {
    /// The rights that a write of the object needs depend on its values.
    OnlyHelm,
    NoRight {
        user: &'a str,
        /// `create` or `update`.
        verb: &'a str,
    },
    /// The guard could not ask the API server whether the user may do this to the object.
    Unchecked {
        user: &'a str,
        verb: &'a str,
        /// Why it could not ask.
        error: &'a str,
        /// Whether the API server did not answer, so that a retry may help.
        is_outage: bool,
    },
    /// The order has more objects than the guard checks for one order.
    TooManyObjects,
}

/// The warning that a repair order leaves an object as it is: one line, short enough for the API server.
pub fn of_order(object: &ObjectId, release: &ReleaseId, why: UnrepairedReason<'_>) -> String {
    let named = format!("{} (Helm release {})", named(object, release), of_release(object, release));
    let text = match why {
        UnrepairedReason::OnlyHelm => {
            format!("{named} stays as it is: only a write by Helm can confirm its values")
        }
        UnrepairedReason::NoRight { user, verb } => format!(
            "{named} stays as it is: the guard has never seen its declared values, and {user} may not {verb} it"
        ),
        UnrepairedReason::Unchecked { user, verb, error, is_outage: true } => format!(
            "{named} stays as it is: order the repair once more, because the guard could not check if {user} may {verb} it: {error}"
        ),
        UnrepairedReason::Unchecked { user, verb, error, is_outage: false } => {
            format!("{named} stays as it is: the guard may not check if {user} may {verb} it: {error}")
        }
        UnrepairedReason::TooManyObjects => {
            format!("{named} stays as it is: order the repair once more for it")
        }
    };
    at_a_word(one_line(&text).into_owned())
}

/// The message for a denied edit whose requested exception is not granted.
pub fn refused(object: &ObjectId, release: &ReleaseId, reason: &str) -> EditMessage {
    let claim =
        format!("{} is managed by Helm release {}", named(object, release), of_release(object, release));
    let way = allow(object, release, &["PATH".to_owned()]);
    EditMessage {
        what: format!("its annotation {ALLOW} requests an exception that is not granted: {reason}"),
        denied: format!("Its annotation {ALLOW} requests an exception that is not granted: {reason}"),
        ..EditMessage::with_remedies(
            claim,
            vec![
                format!(
                    "Remove the annotation, or ask a user with the right to create DriftAllowances to run: {way}"
                )
                .into(),
                details(object, Some(release)),
            ],
        )
    }
}

/// The message for an allowed edit whose requested exception is not granted.
pub fn without_effect(object: &ObjectId, reason: &str) -> EditMessage {
    let ObjectId { kind, name, .. } = object;
    let claim = format!("{ALLOW} of {kind} {name:?} has no effect here: {reason}");
    EditMessage::with_remedies(claim, vec![details(object, None)])
}

/// The message for an edit that removes the annotation of exceptions that stay open.
pub fn withdrawn(object: &ObjectId, release: &ReleaseId) -> EditMessage {
    let ObjectId { kind, name, namespace, .. } = object;
    let namespace = namespace.as_ref().unwrap_or(&release.namespace);
    let claim = format!("Exceptions for {kind} {name:?} stay open without its annotation {ALLOW}");
    EditMessage::with_remedies(
        claim,
        vec![format!("To end them: kubectl moor revoke {} -n {namespace}", argument(object)).into()],
    )
}

/// The message for an exception that was created, or would be.
pub fn granted(
    object: &ObjectId,
    (namespace, name): (&str, &str),
    (paths, until): (&[String], Timestamp),
    is_dry_run: bool,
) -> EditMessage {
    let verb = if is_dry_run { "would be" } else { "was" };
    let paths = paths.join(", ");
    let claim = format!(
        "DriftAllowance {name:?} {verb} created in namespace {namespace:?}: {paths} of {} {:?} may change until {until}",
        object.kind, object.name
    );
    EditMessage::with_remedies(claim, vec![details(object, None)])
}

/// The JSON Patch operations that would restore the declared values, on one line of at most `limit` characters.
pub fn patch(findings: &[FieldFinding], limit: usize) -> String {
    let mut text = String::from("[");
    for finding in findings {
        if text.len() > 1 {
            text.push(',');
        }
        let path = serde_json::Value::from(finding.path.to_string());
        // Writing to a String cannot fail.
        let _ = match (&finding.declared, &finding.new) {
            (None, _) => write!(text, r#"{{"op":"remove","path":{path}}}"#),
            (Some(declared), None) => write!(text, r#"{{"op":"add","path":{path},"value":{declared}}}"#),
            (Some(declared), Some(_)) => {
                write!(text, r#"{{"op":"replace","path":{path},"value":{declared}}}"#)
            }
        };
        // Text beyond the limit is cut off anyway.
        if text.len() > limit.saturating_mul(4) {
            break;
        }
    }
    text.push(']');
    shortened(one_line(&text), limit).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
