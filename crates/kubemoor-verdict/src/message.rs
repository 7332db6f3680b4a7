//! A verdict in words: the release of the object, the fields that the change would overwrite, and
//! the remedies.
//!
//! Entry points: [`Context::of_edit`] and [`Context::of_revert`] for declared objects,
//! [`of_record`] for records, [`of_dependants`] for deletions that also delete other objects. Each
//! returns a [`Message`], which can be written as a denial, as warnings or as a log line.
//! Invariant: a message holds only values that [`super::shown`] allows, and every message about an
//! object ends with the command that explains it. A message must not contain control characters
//! except for the line ends of a denial.

mod field;
mod lines;
mod listed;
mod owner;
mod remedy;
mod request;

use std::fmt::Write as _;
use std::sync::Arc;

use self::field::FieldWords;
use self::lines::{OneLine, at_a_word};
use self::listed::Listed;
pub use self::owner::{LiveWriters, Owner};
pub use self::remedy::{Upgrade, allow, audit};
use self::remedy::{Way, WayKind, Ways, details};
pub use self::request::{Unwritten, granted, of_order, refused, withdrawn, without_effect};
use super::dependants::Dependant;
use super::edit::{Finding, Grounds, Reason, Verdict};
use super::records::{self, Falsified};
use super::revert::SetBack;
use super::shown::Shown;
use kubemoor_declare::model::text::one_line;
use kubemoor_declare::model::{ObjectId, Operation, ReleaseId};
use kubemoor_declare::outline::Excerpt;
use kubemoor_declare::path::Segment;
use kubemoor_helm::release::{Declared, Release};
use kubemoor_helm::values::Candidate;
use kubemoor_policy::flaw::Flaw;
use kubemoor_policy::{Policy, Source};

/// Room for most denials, in bytes.
const ROOM: usize = 2048;

/// The characters of a warning that the API server passes on.
pub const WARNING: usize = 256;

/// A verdict in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The release of the object, as a clause.
    claim: String,
    /// The same in a few words.
    short: String,
    /// What the change does, as a clause.
    what: String,
    /// The denial with its policy, as a clause.
    denied: String,
    /// The listed fields or objects.
    listed: Listed,
    /// Whether the user is not shown the values of the listed fields.
    hides_values: bool,
    /// Further facts and the remedies, a sentence each.
    ways: Vec<Way>,
    /// The way to change the release permanently, if it is one of the remedies.
    upgrade: Option<Box<Upgrade>>,
}

/// The sources of a message about a declared object.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The object.
    pub object: &'a ObjectId,
    /// The operation.
    pub operation: Operation,
    /// The policy that decides; `None` where it is not known.
    pub policy: Option<&'a Policy>,
    /// The object as the release declares it; `None` where it is not known.
    pub declared: Option<&'a Arc<Declared>>,
    /// The release that declares it; `None` where it is not known.
    pub release: Option<&'a Release>,
    /// The live object before and after the edit; `None` if the object did not exist or does not stay.
    pub live: [Option<&'a Excerpt<'a>>; 2],
}

impl Context<'_> {
    /// The message about an edit of a declared object, with the remedies.
    pub fn of_edit(&self, verdict: &Verdict) -> Message {
        let Some(grounds) = &verdict.grounds else {
            return Message { claim: verdict.reason.as_str().to_owned(), ..Message::default() };
        };
        let Grounds { release, fields, .. } = &**grounds;
        let upgrade = self.upgrade(release);
        let ways = Ways { object: self.object, upgrade: &upgrade };
        let by = self.by_policy();
        if self.operation == Operation::Delete || verdict.reason == Reason::Deletion {
            return Message {
                what: "this change would delete it".to_owned(),
                denied: format!("Its deletion is not allowed{by}"),
                ways: ways.of_deletion(),
                ..Message::about(self.object, grounds)
            };
        }
        Message {
            what: "this change would overwrite fields that the release manages".to_owned(),
            denied: format!("This change is not allowed{by}"),
            listed: Listed::Fields(Arc::clone(grounds)),
            ways: ways.of_fields(fields.iter().map(|finding| &finding.path)),
            upgrade: Some(Box::new(upgrade)),
            ..Message::about(self.object, grounds)
        }
    }

    /// The message about reverted fields of an edit: the release of the object, then each field.
    pub fn of_revert(&self, verdict: &Verdict, fields: &[SetBack]) -> Message {
        let Some(grounds) = &verdict.grounds else { return Message::default() };
        let upgrade = self.upgrade(&grounds.release);
        let ways = Ways { object: self.object, upgrade: &upgrade };
        Message {
            what: "these fields were reverted to the release's values".to_owned(),
            listed: Listed::set_back(fields),
            ways: ways.of_fields(fields.iter().map(|field| &field.path)),
            upgrade: Some(Box::new(upgrade)),
            ..Message::about(self.object, grounds)
        }
    }

    /// The way to change the release permanently.
    fn upgrade(&self, release: &ReleaseId) -> Upgrade {
        let record = self.release.map(|release| &*release.latest);
        let live = || LiveWriters::of_review(self.live);
        let owner = self.declared.map_or(Owner::Helm, |declared| Owner::of(&declared.fields(), record, live));
        let chart = self.release.and_then(|release| release.state.chart.clone());
        Upgrade { release: release.clone(), owner, chart }
    }

    /// The policy that made the verdict, where it is not the default.
    fn by_policy(&self) -> String {
        match self.policy.map(|policy| &policy.sources.edits) {
            Some(Source::Policy(name)) => format!(" by policy {name:?}"),
            Some(Source::Default) | None => String::new(),
        }
    }
}

impl Message {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.claim.is_empty()
    }

    /// Names the chart values that probably set the fields, of each field one or none.
    pub fn suggest(&mut self, values: &[Vec<Candidate>]) {
        let Some(upgrade) = self.upgrade.as_ref().filter(|_| values.iter().any(|it| !it.is_empty())) else {
            return;
        };
        if let Some(way) = self.ways.iter_mut().find(|way| way.kind == WayKind::Permanent) {
            *way = upgrade.way(values);
        }
    }

    /// Has it say that the user may not run the command that allows changes for a time: somebody else has to, who may
    /// create exceptions in this namespace.
    pub fn ask_others(&mut self, namespace: &str) {
        let temporary = self.ways.iter_mut().filter(|way| way.kind == WayKind::Temporary);
        temporary.for_each(|way| way.ask_others(namespace));
    }

    /// Whether it shows values of the object that an edit overwrites.
    pub fn has_values(&self) -> bool {
        !self.hides_values && matches!(&self.listed, Listed::Fields(grounds) if !grounds.fields.is_empty())
    }

    /// Has its denial and its warnings name the fields without their values: the user may not read the object. The line
    /// for the guard's own log stays whole.
    pub fn hide_values(&mut self) {
        self.hides_values = true;
        self.add("Values are shown only to users who may get the object.".to_owned());
    }

    /// The first of the listed fields or objects, as the user is told them.
    fn told(&self) -> Vec<FieldWords<'_>> {
        if self.hides_values { self.listed.first_paths() } else { self.listed.first() }
    }

    /// Adds a sentence before those that say what to do.
    pub fn add(&mut self, sentence: String) {
        self.ways.insert(0, sentence.into());
    }

    /// Adds the errors of a manifest's own annotations, on which the user of a denied edit may have
    /// relied.
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
        let fields = self.told();
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
        for way in &self.ways {
            let _ = line.next("").and_then(|()| write!(line, "{way}"));
        }
        text
    }

    /// The warnings for an allowed edit: one line for each field, then the remedies, each short
    /// enough for the API server.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = match self.told().as_slice() {
            [] if self.what.is_empty() => vec![format!("{}.", self.claim)],
            [] => vec![format!("{}; {}.", self.claim, self.what)],
            fields => fields.iter().map(|field| field.within(WARNING, &[&self.claim, &self.short])).collect(),
        };
        warnings.extend(self.listed.others().map(|others| format!("{}: {others}", self.short)));
        let ways: Vec<String> = self.ways.iter().filter_map(|way| way.within(WARNING)).collect();
        let all = Some(ways.join(" ")).filter(|all| !all.is_empty() && all.chars().count() <= WARNING);
        warnings.extend(all.map_or(ways, |all| vec![all]));
        warnings.into_iter().map(|warning| at_a_word(one_line(&warning).into_owned())).collect()
    }

    /// The message as one line of a log.
    pub fn line(&self) -> String {
        let mut parts = vec![self.claim.clone()];
        parts.extend(Some(self.what.clone()).filter(|what| !what.is_empty()));
        let fields = self.listed.first();
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

    /// The message of these sentences about an object.
    fn of(claim: String, ways: Vec<Way>) -> Self {
        Self { short: claim.clone(), claim, ways, ..Self::default() }
    }
}

/// The message about an edit of a record, with the remedies.
pub fn of_record(object: &ObjectId, falsified: Falsified) -> Message {
    let what = match falsified {
        Falsified::Manifest => "it would change the manifest of an existing revision",
        Falsified::LastDeployed => {
            "it would remove the last deployed revision while the release is installed"
        }
        Falsified::Disagreement => "the record's name, labels and content would no longer agree",
        Falsified::Stranger => {
            "a policy names the operators of the release, and only they may write its records"
        }
    };
    let way = match falsified {
        Falsified::Stranger => {
            "To change the release, run Helm as one of these operators, or add the user under `operators` of the policy."
        }
        _ => {
            "To change the release, use helm upgrade, helm rollback or helm uninstall, which write the records."
        }
    };
    let revision = records::names(object)
        .map(|(release, revision)| format!("revision {revision} of Helm release {:?}", release.name));
    let revision = revision.unwrap_or_else(|| "a Helm release".to_owned());
    Message {
        what: what.to_owned(),
        denied: format!("This change is not allowed: {what}"),
        ..Message::of(
            format!("{} {:?} is the record of {revision}", object.kind, object.name),
            vec![way.to_owned().into(), details(object, None, &[])],
        )
    }
}

/// The message about a deletion that also deletes declared objects, or about an update with a new
/// owner, after which the garbage collector may do the same.
pub fn of_dependants(object: &ObjectId, operation: Operation, dependants: &[Dependant]) -> Message {
    let change = if operation == Operation::Delete { "Deletion" } else { "A new owner reference" };
    let named = |it: &Dependant| {
        let ReleaseId { namespace, name } = &it.release.id;
        format!("{} {:?} of Helm release {name:?} in namespace {namespace:?}", it.object.kind, it.object.name)
    };
    let first = dependants.first().map(|it| &it.release.id);
    let way = first.map(|ReleaseId { namespace, name }| {
        let others = if dependants.len() > 1 { ", and the others in the same way" } else { "" };
        Way::from(format!("Uninstall these releases first: helm uninstall {name} -n {namespace}{others}"))
    });
    Message {
        what: "this would also delete objects that Helm releases manage".to_owned(),
        denied: "This would also delete objects that Helm releases manage".to_owned(),
        listed: Listed::objects(dependants.iter().map(named)),
        ..Message::of(
            format!("{change} of {} {:?} is not allowed", object.kind, object.name),
            way.into_iter().chain([details(object, None, &[])]).collect(),
        )
    }
}

/// The message for an edit that is too large or too deep to be judged.
pub fn of_beyond_judgement(object: &ObjectId, is_record: bool) -> Message {
    Message {
        denied: "This change is too large or too deeply nested to be checked: send a smaller one".to_owned(),
        what: "this change is too large or too deeply nested to be checked".to_owned(),
        ..of_unread(object, is_record)
    }
}

/// The message for an edit for which the guard had no room.
pub fn of_no_room(object: &ObjectId, is_record: bool) -> Message {
    Message {
        denied: "Too many large changes arrive at once: try again".to_owned(),
        what: "too many large changes arrive at once to check this one".to_owned(),
        ..of_unread(object, is_record)
    }
}

/// One field of a live object in words.
pub fn live_field(finding: &Finding) -> String {
    let Finding { path, declared, new, added, .. } = finding;
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

fn of_unread(object: &ObjectId, is_record: bool) -> Message {
    let whose = if is_record { "is a Helm release record" } else { "is managed by a Helm release" };
    if object.name.is_empty() {
        return Message::of(format!("An object of kind {} {whose}", object.kind), Vec::new());
    }
    let claim = format!("{} {:?} {whose}", object.kind, object.name);
    Message::of(claim, vec![details(object, None, &[])])
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

#[cfg(test)]
pub(crate) mod tests;
