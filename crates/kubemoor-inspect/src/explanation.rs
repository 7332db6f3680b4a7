//! Explains the state of an object or a field, and how to change it, from the same records, policies and comparison as
//! the guard's verdicts. Every command in the advice can be pasted.

mod pasted;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

pub use self::pasted::ExplainQuery;
use super::failure::InspectError;
use super::reading::{ClusterReader, FoundObject, is_repaired, resolve_object};
use kubemoor_declare::equality::FieldAgreement;
use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::fields::FieldChange;
use kubemoor_declare::model::{Autoscaler, NamedObject, ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::chart_source::is_secret;
use kubemoor_helm::record::{ChartSource, ReleaseStatus, parse_record_name};
use kubemoor_helm::release::{DeclaredObject, Release};
use kubemoor_helm::{state, values};
use kubemoor_policy::Policy;
use kubemoor_policy::allowance::{Allowance, AllowanceOrigin, StandingAllowance};
use kubemoor_policy::mask::{Mask, Seal};
use kubemoor_policy::pattern::Pattern;
use kubemoor_verdict::diff::{ChangeKind, ChangedField};
use kubemoor_verdict::drift::{self, LiveVerdict};
use kubemoor_verdict::edit::{DryRunEvidence, FieldFinding, VerdictReason};
use kubemoor_verdict::exceptions::{ExceptionSource, ObjectExceptions};
use kubemoor_verdict::health::ReportedHealth;
use kubemoor_verdict::owners::{self, FieldManager, Owners};
use kubemoor_verdict::ownership::{self, NextUpgrade, TakenFields};
use kubemoor_verdict::remedy::{self, LiveWriters, Upgrade, Upgrader};
use kubemoor_verdict::sealed;
use kubemoor_verdict::shown::{Difference, Shown};

/// The guard's status, as messages name it if it cannot be read.
pub const GUARD: &str = "the guard's status of the release";

/// The states of an object that tests and advice ask for by name.
const MISSING: &str = "missing";
const ALLOWED_TO_DIFFER: &str = "differs, as an exception allows";

const PATHS: usize = 8;

/// Notes on a field that the manifest does not declare: a free one, a sealed one, and one below a sealed path.
const UNDECLARED: &str = "the release does not manage this field, so it may be changed. Name list elements by their keys, such as [name=app].";
const SEALED: &str = "the release does not set this field, but the guard checks changes of it: once set, it stops the object from following its release.";
const ADDED: &str =
    "the release does not set this field, and a policy seals it: the guard checks what is added there.";

/// Explains an object, in `namespace` if the query names none.
pub async fn explain(
    reader: &ClusterReader,
    query: ExplainQuery,
    namespace: String,
    now: Timestamp,
) -> Result<Explanation, InspectError> {
    let ExplainQuery { object: text, namespace: named, release, paths } = query;
    let namespace = named.unwrap_or(namespace);
    let named: Result<NamedObject, _> = text.parse();
    let named = named.map_err(|error: &str| InspectError::InvalidInput(format!("{text:?}: {error}")))?;
    let object = resolve_object(&named, &reader.connection, &reader.kinds, &namespace).await?;
    let preferred = reader
        .kinds
        .catalog()
        .facts(&object.group, &object.kind)
        .and_then(|facts| facts.versions.first().cloned());
    let live = match reader.live(&object, &preferred.unwrap_or_default()).await {
        FoundObject::Object(live) => Some(live),
        FoundObject::Absent => None,
        FoundObject::NotServed => {
            let (kind, group) = (&object.kind, &object.group);
            return Err(InspectError::InvalidInput(format!(
                "the API server serves no {kind} in the group {group:?}"
            )));
        }
        FoundObject::Unread(reason) => {
            return Err(InspectError::InvalidInput(format!("cannot read {object}: {reason}")));
        }
    };
    let named = live.as_ref().and_then(ReleaseId::named_by);
    // The release that the object or the denial names, else any in its namespace.
    let named: Vec<ReleaseId> = named.into_iter().chain(release).collect();
    let mut release = declaring(reader, named, &object).await;
    if release.is_none() && object.namespace.is_some() {
        release = declaring(reader, reader.list(Some(&namespace)).await?, &object).await;
    }
    let patterns = paths.iter().filter_map(|path| Pattern::parse(path).ok()).collect();
    Ok(match release {
        Some(release) => explain_declared(reader, object, live, &release, patterns, now).await,
        None => explain_undeclared(reader, object, live.is_some()),
    })
}

/// A path as people write it, such as `/spec/replicas` or `spec.replicas`.
pub fn parse_path(text: &str) -> Result<String, String> {
    let pointer = match text.starts_with('/') {
        true => None,
        false => Path::from_plain(text).map(|path| path.to_string()),
    };
    let pointer = pointer.unwrap_or_else(|| text.to_owned());
    Pattern::parse(&pointer).map(|_| pointer.clone()).map_err(|error| error.to_string())
}

/// The first of these releases that declares the object. Unreadable releases are skipped: annotations and denials can
/// name anything.
async fn declaring(
    reader: &ClusterReader,
    releases: Vec<ReleaseId>,
    object: &ObjectId,
) -> Option<Arc<Release>> {
    for id in releases {
        match reader.release(&id).await {
            Ok(release) if release.objects.contains_key(object) => return Some(release),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

/// The explanation of an object.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub object: ObjectId,
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyFacts>,
    /// The status that the guard reports for the release, with policies, flags and the emergency switch
    /// taken into account; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<ReportedHealth>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<String>,
    /// What is wrong with the manifest's own annotations, which then have no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flaws: Vec<String>,
    pub fields: Vec<ExplainedField>,
    /// What to do.
    pub advice: Vec<String>,
    /// Sources that could not be read and might change the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

fn explain_undeclared(reader: &ClusterReader, object: ObjectId, is_live: bool) -> Explanation {
    Explanation {
        state: if is_live { "not managed by a release" } else { "absent, and not managed by a release" },
        advice: advice_on_undeclared(&object),
        unread: reader.unread_records(object.namespace.as_deref()),
        object,
        ..Explanation::default()
    }
}

async fn explain_declared(
    reader: &ClusterReader,
    object: ObjectId,
    live: Option<Value>,
    release: &Release,
    patterns: Vec<Pattern>,
    now: Timestamp,
) -> Explanation {
    let surroundings = reader.release_inputs(release).await;
    let policy = reader.resolver.policy(&release.id);
    let declared = release.declared(&object);
    // A list element may be named by its index, as in a JSON Pointer.
    let patterns = match declared {
        Some(declared) => Mask(patterns).with_list_keys(&declared.fields()).into_owned().0,
        None => patterns,
    };
    // Read again in the declared version.
    let live = match (live, declared) {
        (Some(_), Some(declared)) => match reader.live(&object, &declared.version).await {
            FoundObject::Object(live) => Some(live),
            FoundObject::Absent | FoundObject::NotServed | FoundObject::Unread(_) => None,
        },
        (live, _) => live,
    };
    let rules = declared.map(|declared| policy.rules(&object, declared)).unwrap_or_default();
    let mut unread = surroundings.unread.clone();
    let guard = reader.pulses.status(&release.id).await.unwrap_or_else(|error| {
        unread.push(format!("{GUARD} cannot be read: {error}"));
        None
    });
    let guard = guard.map(|(health, _)| health);
    unread.extend(reader.pulses.notes().await);
    let sources = reader.sources(release, &mut unread).await;
    let circumstances = surroundings.circumstances(release, &object);
    let standing = state::current_claim(release, &object, policy.operation_timeout, now);
    let (mut state, mut exceptions) = ("not managed, by the state of the record", Vec::new());
    let (mut fields, mut taken) = (Vec::new(), None);
    if let (Some(standing), Some(declared)) = (&standing, declared) {
        let (object, policy, circumstances) = (&object, &*policy, &circumstances);
        let subject = drift::DriftContext { object, claim: standing, policy, circumstances, now };
        let explained = ExplainedObject::new(subject, declared, live.as_ref(), &sources);
        let stands = drift::compare(&subject, live.as_ref(), DryRunEvidence::None);
        (state, fields, exceptions) =
            (state_of(&stands, release), explained.fields(&patterns), explained.exceptions());
        if is_repaired(guard.as_ref(), policy) && matches!(stands, LiveVerdict::AsDeclared(_)) {
            taken = explained.taken();
        }
        if taken.is_some() {
            state = "as declared, but another field manager owns some of its fields";
        }
    }
    let text = live.as_ref().map(Value::to_string);
    let writers =
        || text.as_deref().and_then(Excerpt::new).map(|text| LiveWriters::read(&text)).unwrap_or_default();
    let record = Some(&*release.latest);
    let owner =
        declared.map_or(Upgrader::Helm, |declared| Upgrader::find(&declared.fields(), record, writers));
    let upgrade = Upgrade { release: release.id.clone(), owner, chart: release.state.chart.clone() };
    let mut explanation = Explanation {
        state,
        release: Some(ReleaseFacts::new(release, &policy, now)),
        policy: Some(PolicyFacts::new(&policy)),
        flaws: rules.flaws.iter().map(ToString::to_string).collect(),
        advice: Vec::new(),
        exceptions,
        fields,
        guard,
        unread,
        object,
    };
    explanation.advise(&upgrade, &patterns, &rules.sealed, taken.as_ref());
    explanation
}

/// The release that declares the object.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseFacts {
    #[serde(flatten)]
    pub release: ReleaseId,
    pub revision: u64,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// The chart of the revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
    /// How the state of its record affects changes.
    pub effect: &'static str,
}

/// The effect of policies on the release.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyFacts {
    /// The policies that match.
    pub matched: Vec<String>,
    /// Null if no policy sets it; the guard's flag then applies.
    pub edits: Option<String>,
    pub drift: Option<String>,
}

impl ReleaseFacts {
    fn new(release: &Release, policy: &Policy, now: Timestamp) -> Self {
        Self {
            release: release.id.clone(),
            revision: release.state.revision,
            status: release.state.status.to_string(),
            invalid: release.invalid.as_ref().map(|invalid| invalid.reason.clone()),
            chart: release.state.chart.as_ref().map(ToString::to_string),
            effect: record_effect(release, policy.operation_timeout, now),
        }
    }
}

impl PolicyFacts {
    fn new(policy: &Policy) -> Self {
        let by_policy = |name: &Option<String>, value: String| {
            name.as_ref().map(|name| format!("{value} (policy {name})"))
        };
        Self {
            matched: policy.matched().map(str::to_owned).collect(),
            edits: by_policy(&policy.edits_by, format!("{:?}", policy.edits)),
            drift: by_policy(&policy.drift_by, format!("{:?}", policy.drift)),
        }
    }
}

fn state_of(live: &LiveVerdict<'_>, release: &Release) -> &'static str {
    match live {
        LiveVerdict::OptedOut => "opted out by its manifest",
        LiveVerdict::BeingDeleted => "being deleted",
        LiveVerdict::NotCreated if release.state.status == ReleaseStatus::Failed => {
            "not created: the Helm operation failed"
        }
        LiveVerdict::NotCreated => "not there yet",
        LiveVerdict::Dropped => "absent: the latest manifest does not declare it",
        LiveVerdict::Allowed => "missing, as an exception allows",
        LiveVerdict::Expired => "missing, as its ttlSecondsAfterFinished demands",
        LiveVerdict::Missing => MISSING,
        LiveVerdict::AsDeclared(Some(agreed)) if !agreed.permitted.is_empty() => ALLOWED_TO_DIFFER,
        LiveVerdict::AsDeclared(_) => "as declared",
        LiveVerdict::MatchesPrevious => "as declared before the operation under way",
        LiveVerdict::Drifted(drift) if drift.is_doubt() => "in doubt",
        LiveVerdict::Drifted(_) => "drifted",
    }
}

/// One declared field.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedField {
    pub path: String,
    pub state: FieldState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Shown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<Shown>,
    /// For long or nested values, the first place where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Box<Difference>>,
    /// Its owners in `managedFields`.
    pub managers: Vec<FieldManager>,
    /// The chart values that probably set it, most likely first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<values::Candidate>,
    /// The rules and allowances that cover it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covered_by: Vec<String>,
    /// What the next Helm upgrade does to the field, if a rule or allowance covers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upgrade: Option<String>,
}

/// The state of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub enum FieldState {
    /// It matches the manifest.
    AsDeclared,
    /// It differs from the manifest.
    Drifted,
    /// It may differ from the manifest.
    InDoubt,
    /// There is no live object.
    Absent,
}

struct ExplainedObject<'a> {
    subject: drift::DriftContext<'a, 'a>,
    declared: &'a Arc<DeclaredObject>,
    live: Option<&'a Value>,
    exceptions: ObjectExceptions<'a>,
    next_upgrade: Option<NextUpgrade>,
    /// What the latest revisions were rendered from, newest first.
    sources: &'a [ChartSource],
}

impl<'a> ExplainedObject<'a> {
    fn new(
        subject: drift::DriftContext<'a, 'a>,
        declared: &'a Arc<DeclaredObject>,
        live: Option<&'a Value>,
        sources: &'a [ChartSource],
    ) -> Self {
        let method = subject.claim.release.state.apply_method;
        let next_upgrade = live.map(|live| {
            // One object shows which field manager Helm uses.
            let helm = owners::find_helm_manager([&Owners::from_object(live)], method);
            NextUpgrade::new(subject.object, &declared.fields(), live, (helm.as_ref(), method))
        });
        Self { exceptions: subject.exceptions(declared), subject, declared, live, next_upgrade, sources }
    }

    fn is_deployed(&self) -> bool {
        self.subject.claim.release.state.status == ReleaseStatus::Deployed
    }

    /// The fields that another field manager than Helm's owns.
    fn taken(&self) -> Option<TakenFields> {
        let live = self.live.filter(|_| self.is_deployed())?;
        let method = self.subject.claim.release.state.apply_method;
        ownership::find_taken_fields(&self.declared.fields(), live, method, &self.exceptions.mask(live))
    }

    /// The declared fields that `patterns` name; without any, those that are not as declared.
    fn fields(&self, patterns: &[Pattern]) -> Vec<ExplainedField> {
        let is_asked =
            |path: &Path| patterns.iter().any(|pattern| pattern.covers(path) || pattern.reaches_below(path));
        let mut changes = self.live.map(|live| self.drift(live)).unwrap_or_default();
        if !patterns.is_empty() {
            let unchanged = self.unchanged(&changes);
            changes.extend(unchanged);
            changes.retain(|change| is_asked(&change.path));
        }
        let owners = self.live.map(Owners::from_object).unwrap_or_default();
        changes.iter().map(|change| self.field(change, &owners)).collect()
    }

    /// All that differs, additions included, each path once.
    fn drift(&self, live: &Value) -> Vec<FieldChange> {
        let mut changes: Vec<FieldChange> = Vec::new();
        for ChangedField { change, kind, .. } in
            self.subject.diff(self.declared, live, DryRunEvidence::None).changes
        {
            if kind == ChangeKind::Declared || changes.iter().all(|known| known.path != change.path) {
                changes.push(change);
            }
        }
        changes
    }

    /// The declared fields that no change reports: those neither at nor below the path of a change.
    fn unchanged(&self, changes: &[FieldChange]) -> Vec<FieldChange> {
        let is_told = |path: &Path| changes.iter().any(|change| path.0.starts_with(&change.path.0));
        let leaves = self.declared.fields().leaves().into_iter().filter(|(path, _)| !is_told(path));
        let unchanged = leaves.map(|(path, value)| FieldChange {
            new: self.live.and_then(|live| path.get(live).first().map(|value| (*value).clone())),
            path,
            declared: Some(value),
            old: None,
            agreement: FieldAgreement::Agrees,
        });
        unchanged.collect()
    }

    /// The chart values that probably set a field; if it drifted, with the setting for its live value.
    fn candidates(
        &self,
        change: &FieldChange,
        state: FieldState,
        difference: Option<&Difference>,
    ) -> Vec<values::Candidate> {
        let object = self.subject.object;
        let of = |place: Option<&str>, new| {
            values::candidates(self.sources, values::ValueQuestion { object, path: &change.path, place, new })
        };
        match difference {
            Some(difference) => {
                let new = difference.new.as_ref().filter(|_| difference.line.is_none());
                let new = new.and_then(|new| serde_json::from_str(new.as_str()).ok());
                of(Some(&difference.path), new.as_ref())
            }
            None => {
                of(None, change.new.as_ref().filter(|_| state == FieldState::Drifted && !is_secret(object)))
            }
        }
    }

    fn field(&self, change: &FieldChange, owners: &Owners) -> ExplainedField {
        let FieldChange { path, declared, new, agreement, .. } = change;
        let state = match agreement {
            _ if self.live.is_none() => FieldState::Absent,
            FieldAgreement::Doubt => FieldState::InDoubt,
            FieldAgreement::Agrees => FieldState::AsDeclared,
            _ => FieldState::Drifted,
        };
        let spared = self.exceptions.sources().into_iter();
        let spared = spared.filter(|source| self.is_spared_by(source, change, state));
        let covered_by: Vec<_> = spared.flat_map(|source| self.words_for(source, Some(path))).collect();
        let next_upgrade = self.next_upgrade.as_ref().filter(|_| !covered_by.is_empty());
        let values = [declared.as_ref(), None, new.as_ref()];
        let FieldFinding { declared, new, difference, .. } =
            FieldFinding::new(self.subject.object, path, values);
        let difference = difference.filter(|_| state != FieldState::AsDeclared);
        ExplainedField {
            path: path.to_string(),
            state,
            declared,
            live: new,
            values: self.candidates(change, state, difference.as_deref()),
            difference,
            managers: owners.of_path(path).into_iter().cloned().collect(),
            next_upgrade: next_upgrade.map(|next| next.effect(change).to_string()),
            covered_by,
        }
    }

    fn is_spared_by(&self, source: &ExceptionSource<'_>, change: &FieldChange, state: FieldState) -> bool {
        let path = &change.path;
        let differs = matches!(state, FieldState::Drifted | FieldState::InDoubt);
        let excused = differs.then(|| self.exceptions.of_field(change)).flatten();
        let covers = |mask: &Mask| mask.covers(path) || (excused.is_some() && mask.reaches_below(path));
        match source {
            ExceptionSource::Ignored(mask) | ExceptionSource::Allowance(_, mask) => covers(mask),
            ExceptionSource::Standing(standing) => covers(&standing.grant.mask),
            ExceptionSource::Autoscaler(_, replicas) => {
                **replicas == *path && (!differs || excused == Some(VerdictReason::Autoscaled))
            }
        }
    }

    /// All exceptions of the object, including closed windows.
    fn exceptions(&self) -> Vec<String> {
        let mut told: Vec<String> = self.ignored(None);
        let rules = self.subject.policy.rules(self.subject.object, self.declared);
        told.extend(rules.standing.iter().map(|standing| self.words_for_standing(standing)));
        let others = self.exceptions.sources().into_iter();
        let others =
            others.filter(|it| !matches!(it, ExceptionSource::Ignored(_) | ExceptionSource::Standing(_)));
        told.extend(others.flat_map(|source| self.words_for(source, None)));
        told
    }

    /// One exception in words; for fields that policies ignore, only those that cover the path.
    fn words_for(&self, source: ExceptionSource<'_>, path: Option<&Path>) -> Vec<String> {
        match source {
            ExceptionSource::Ignored(_) => self.ignored(path),
            ExceptionSource::Standing(standing) => vec![self.words_for_standing(standing)],
            ExceptionSource::Allowance(Allowance { name, by, until, reason, .. }, mask) => {
                let by = if by.user.is_empty() { String::new() } else { format!(" of {}", by.user) };
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                vec![format!("allowance {name}{by} until {until}{reason}{}", at(mask))]
            }
            ExceptionSource::Autoscaler(Autoscaler { minimum, maximum, .. }, _) => {
                vec![format!("an autoscaler sets {minimum} to {maximum} replicas")]
            }
        }
    }

    fn ignored(&self, path: Option<&Path>) -> Vec<String> {
        let rules = self.subject.policy.ignoring(self.subject.object, self.declared);
        let covers = |mask: &Mask| path.is_none_or(|path| mask.covers(path) || mask.reaches_below(path));
        rules
            .filter(|(_, mask)| covers(mask))
            .map(|(policy, mask)| format!("ignored by policy {policy}{}", at(&mask)))
            .collect()
    }

    fn words_for_standing(&self, standing: &StandingAllowance) -> String {
        let StandingAllowance { origin, grant, schedule, until, subjects } = standing;
        let origin = match origin {
            AllowanceOrigin::Policy { policy, name } => format!("allowed by policy {policy}, rule {name}"),
            AllowanceOrigin::Manifest { .. } => "allowed by the chart's own annotation".to_owned(),
        };
        let what = if grant.allows_delete {
            format!("{} and its deletion", at(&grant.mask))
        } else {
            at(&grant.mask)
        };
        let names: Vec<_> = subjects.iter().map(ToString::to_string).collect();
        let whom = if names.is_empty() { "everyone".to_owned() } else { names.join(", ") };
        let change = standing.next_change(self.subject.now);
        let when = match (standing.is_active(self.subject.now), change, until) {
            (true, Some(end), _) => format!("open until {end}"),
            (true, None, _) => "open".to_owned(),
            (false, Some(start), _) => format!("CLOSED, opens at {start}"),
            (false, None, Some(end)) => format!("CLOSED, ended at {end}"),
            (false, None, None) => "CLOSED".to_owned(),
        };
        let window = schedule.as_ref().map_or_else(String::new, |schedule| format!(", window {schedule}"));
        format!("{origin}{what}, for {whom}: {when}{window}")
    }
}

fn at(mask: &Mask) -> String {
    let paths: Vec<_> = mask.0.iter().take(8).map(ToString::to_string).collect();
    match (paths.is_empty(), mask.0.len().saturating_sub(paths.len())) {
        (true, _) => String::new(),
        (false, 0) => format!(" at {}", paths.join(", ")),
        (false, more) => format!(" at {} and {more} more", paths.join(", ")),
    }
}

fn advice_on_undeclared(object: &ObjectId) -> Vec<String> {
    if matches!(object.kind.as_str(), "Secret" | "ConfigMap")
        && object.group.is_empty()
        && parse_record_name(&object.name).is_some()
    {
        return vec![
            "It is a Helm release record. The guard denies changes of its manifest, the removal of the last deployed revision, \
             and labels that no longer agree with its content; and every change by others than the `operators` of a policy."
                .to_owned(),
            "Use helm upgrade, helm rollback or helm uninstall, which write the records.".to_owned(),
        ];
    }
    let mut advice =
        vec!["No release that you may read manages it. If no other does, it may be changed.".to_owned()];
    if matches!(object.kind.as_str(), "Namespace" | "CustomResourceDefinition") {
        advice.push(
            "The guard denies its deletion while releases manage objects in it: `kubectl moor get releases -A` lists them."
                .to_owned(),
        );
    }
    advice
}

fn record_effect(release: &Release, timeout: Duration, now: Timestamp) -> &'static str {
    if release.invalid.is_some() {
        return "the latest record cannot be read: the last valid revision is used, and nothing is repaired";
    }
    if state::is_locked(release, timeout, now) {
        return "the Helm operation is stuck: changes to its values or to those of the revision before are allowed, and nothing is repaired";
    }
    match release.state.status {
        ReleaseStatus::Deployed | ReleaseStatus::Superseded => "its manifest says what the guard protects",
        ReleaseStatus::PendingInstall | ReleaseStatus::PendingUpgrade | ReleaseStatus::PendingRollback => {
            "a Helm operation is in progress: what it writes is allowed"
        }
        ReleaseStatus::Uninstalling => "Helm uninstalls it: its deletions are allowed",
        ReleaseStatus::Failed if release.baseline.is_none() => {
            "its installation failed: correct the cause and run `helm upgrade --install`, or `helm uninstall`"
        }
        ReleaseStatus::Failed => {
            "its last operation failed: objects may match it or the revision deployed before; `helm upgrade` or `helm rollback` ends that, with `--force-conflicts` if Helm reports a conflict"
        }
        ReleaseStatus::Uninstalled | ReleaseStatus::Unknown => "it manages nothing",
    }
}

impl Explanation {
    /// Sets the advice; `sealed` holds the fields of the object that policies seal.
    fn advise(
        &mut self,
        upgrade: &Upgrade,
        patterns: &[Pattern],
        sealed: &Seal,
        taken: Option<&TakenFields>,
    ) {
        let ReleaseId { namespace, name } = &upgrade.release;
        let is_managed = |pattern: &&Pattern| {
            let mut paths = self.fields.iter().filter_map(|field| field.path.parse::<Path>().ok());
            paths.any(|path| pattern.covers(&path) || pattern.reaches_below(&path))
        };
        let note = |pattern: &Pattern| {
            if sealed::paths(&self.object).any(|path| pattern.covers(&path)) {
                return SEALED;
            }
            let path = pattern.to_string().parse::<Path>();
            if path.is_ok_and(|path| sealed.covers(&path)) { ADDED } else { UNDECLARED }
        };
        let unmanaged = patterns.iter().filter(|pattern| !is_managed(pattern));
        let unmanaged: Vec<_> = unmanaged.map(|pattern| (pattern, note(pattern))).collect();
        let mut advice: Vec<_> =
            unmanaged.iter().map(|(pattern, note)| format!("{pattern}: {note}")).collect();
        if patterns.is_empty()
            || unmanaged.iter().any(|(_, note)| *note != UNDECLARED)
            || !self.fields.is_empty()
        {
            advice.extend(self.ways_to_change(upgrade, patterns));
        }
        if let Some(TakenFields { by, paths, .. }) = taken {
            let first = paths.first().map(ToString::to_string).unwrap_or_default();
            advice.push(format!(
                "Field manager {by} owns {first}, so the next helm upgrade may fail with a conflict. To return it to Helm: kubectl moor reconcile {name} -n {namespace}"
            ));
        }
        if self.guard.is_some() {
            let audit = remedy::audit(&self.object, &upgrade.release);
            advice.push(format!("To see who changed it in the last month: {audit}"));
        }
        self.advice = advice;
    }

    /// How to change the object permanently, repair it, or change it for a time.
    fn ways_to_change(&self, upgrade: &Upgrade, patterns: &[Pattern]) -> Vec<String> {
        let Self { object, fields, .. } = self;
        let ReleaseId { namespace, name } = &upgrade.release;
        let values: Vec<_> = fields.iter().map(|field| values::likeliest(field.values.clone())).collect();
        let mut advice = vec![upgrade.text(&values)];
        let has_drifted =
            |field: &ExplainedField| field.state == FieldState::Drifted && field.covered_by.is_empty();
        if fields.iter().any(has_drifted) || self.state == MISSING {
            advice.push(format!("To see all drift of the release: kubectl moor diff {name} -n {namespace}"));
            if self.guard.is_some() {
                advice.push(format!("To repair it now: kubectl moor reconcile {name} -n {namespace}"));
            }
        }
        if fields.iter().all(|field| field.covered_by.is_empty()) {
            let mut paths: Vec<_> = fields.iter().map(|field| field.path.clone()).take(PATHS).collect();
            if paths.is_empty() {
                paths = patterns.iter().map(ToString::to_string).collect();
            }
            if paths.is_empty() {
                paths.push(if self.state == MISSING { "delete" } else { "PATH" }.to_owned());
            }
            let allow = remedy::allow(object, &upgrade.release, &paths);
            advice.push(format!("To change it for a while: {allow}"));
        }
        advice
    }
}
