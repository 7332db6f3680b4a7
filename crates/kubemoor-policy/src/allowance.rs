//! Allowances: permitted changes to fields that a release manages. A [`Grant`] lists the fields. An [`Allowance`] is
//! a temporary exception for one object, from a `DriftAllowance`; a [`RequestedAllowance`] is a request for one, from
//! annotations. A [`StandingAllowance`] comes from a policy or a chart, and may have a [`Schedule`]. An allowance with
//! a flaw permits nothing, not even in part.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{RoundMode, SignedDuration, Timestamp, Unit, Zoned, ZonedRound};

use crate::flaw::{Flaw, FlawReason, Flaws};
use crate::mask::Mask;
use crate::pattern::Pattern;
use crate::resource::{DriftAllowance, DriftAllowanceSpec, MAX_PATHS, MAX_REASON, ScheduleSpec, SubjectSpec};
use crate::spelling;
use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::model::{ALLOW, ALLOW_REASON, ALLOW_UNTIL, Actor, ObjectId, ReleaseId};
use kubemoor_helm::release::{AllowAnnotations, DeclaredObject};

/// Permits the deletion of the object, in a list of paths.
pub const DELETE: &str = "delete";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grant {
    pub mask: Mask,
    /// Whether the object may be deleted; the guard then does not re-create it.
    pub allows_delete: bool,
}

impl Grant {
    /// Reads a list of paths, which may contain `delete`.
    pub(crate) fn read<'t>(
        texts: impl Iterator<Item = &'t str>,
        at: impl Fn(usize) -> String,
        flaws: &mut Flaws,
    ) -> Self {
        let mut grant = Self::default();
        for (index, text) in texts.enumerate() {
            match text {
                DELETE => grant.allows_delete = true,
                text => grant.mask.0.extend(pattern(text, &at(index), flaws)),
            }
        }
        grant
    }

    /// The grant of these texts; `None` if one of them is invalid.
    pub fn parse<'t>(texts: impl Iterator<Item = &'t str>) -> Option<Self> {
        let mut flaws = Flaws::default();
        let grant = Self::read(texts, |_| String::new(), &mut flaws);
        flaws.or(grant).ok()
    }

    pub fn paths(&self) -> impl Iterator<Item = String> {
        let fields = self.mask.0.iter().map(ToString::to_string);
        fields.chain(self.allows_delete.then(|| DELETE.to_owned()))
    }
}

pub(crate) fn pattern(text: &str, at: &str, flaws: &mut Flaws) -> Option<Pattern> {
    flaws.take(at, FlawReason::InvalidPath, Pattern::parse(text))
}

/// How long an allowance, and a window of a schedule, may last.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// A validated `DriftAllowance`.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowance {
    pub name: String,
    pub namespace: String,
    /// The object as the allowance names it. Without a namespace, it is in the allowance's namespace or
    /// cluster-scoped.
    pub object: ObjectId,
    pub grant: Grant,
    pub until: Timestamp,
    /// The reason; empty if none was given.
    pub reason: String,
    /// The user who requested it; an empty name if unknown.
    pub by: Actor,
    /// The resource's uid and generation, which distinguish one allowance from another and from its earlier state.
    /// Empty before the API server has stored it.
    pub version: (String, i64),
    /// The creation time of the resource; `None` before it is created.
    pub created: Option<Timestamp>,
}

impl Allowance {
    /// Validates an allowance.
    ///
    /// # Errors
    /// All flaws of the allowance, which then has no effect.
    pub fn compile(resource: &DriftAllowance) -> Result<Self, Vec<Flaw>> {
        let DriftAllowanceSpec { object, paths, until, reason, requested_by } = &resource.spec;
        let mut flaws = Flaws::default();
        let namespace = resource.metadata.namespace.clone().unwrap_or_default();
        if object.namespace.as_ref().is_some_and(|other| *other != namespace) {
            let message = format!("an allowance only covers objects in its own namespace, {namespace}");
            flaws.add("spec.object.namespace", FlawReason::ForeignNamespace, message);
        }
        for (field, text) in [("spec.object.kind", &object.kind), ("spec.object.name", &object.name)] {
            if text.is_empty() {
                flaws.add(field, FlawReason::Missing, "an allowance needs the kind and name of one object");
            }
        }
        let grant = granted(paths.iter().map(String::as_str), paths.len(), "spec.paths", &mut flaws);
        let created = resource.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let until = time(until, "spec.until", created, &mut flaws);
        let by = requested_by.clone().unwrap_or_default();
        let until = flaws.or(until)?.ok_or_else(Vec::new)?;
        Ok(Self {
            name: resource.metadata.name.clone().unwrap_or_default(),
            object: ObjectId {
                group: object.group.clone().into(),
                kind: object.kind.clone().into(),
                namespace: object.namespace.as_deref().map(Into::into),
                name: object.name.clone().into(),
            },
            namespace,
            grant,
            until,
            reason: reason.clone().unwrap_or_default(),
            by: Actor { user: by.user, groups: by.groups, ..Actor::default() },
            version: (
                resource.metadata.uid.clone().unwrap_or_default(),
                resource.metadata.generation.unwrap_or_default(),
            ),
            created,
        })
    }

    /// A message for each path that objects of its kind cannot have; only for built-in kinds.
    pub fn unknown_fields(&self) -> Vec<String> {
        let schema = spelling::schemas(Some(&self.object.group), &self.object.kind).into_iter().next();
        schema.map(|schema| self.grant.mask.unknown_fields(&schema)).unwrap_or_default()
    }

    pub fn is_active(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Whether the allowance applies to this object of this release: an object in the allowance's namespace, or a
    /// cluster-scoped object of a release in that namespace.
    pub fn is_for(&self, object: &ObjectId, release: &ReleaseId) -> bool {
        let same = self.object.group == object.group
            && self.object.kind == object.kind
            && self.object.name == object.name;
        same && match &object.namespace {
            Some(namespace) => *namespace == self.namespace,
            None => self.object.namespace.is_none() && release.namespace == self.namespace,
        }
    }

    /// The objects that the allowance may apply to, for an index of allowances by object.
    pub fn objects(&self) -> Vec<ObjectId> {
        let inside = ObjectId { namespace: Some(self.namespace.clone().into()), ..self.object.clone() };
        match self.object.namespace {
            Some(_) => vec![inside],
            None => vec![inside, self.object.clone()],
        }
    }
}

fn granted<'t>(paths: impl Iterator<Item = &'t str>, count: usize, at: &str, flaws: &mut Flaws) -> Grant {
    if count == 0 {
        flaws.add(at, FlawReason::Missing, "name at least one path, * or delete");
    }
    match flaws.check_count(at, count, MAX_PATHS) {
        true => Grant::read(paths, |index| format!("{at}[{index}]"), flaws),
        false => Grant::default(),
    }
}

fn time(text: &str, at: &str, from: Option<Timestamp>, flaws: &mut Flaws) -> Option<Timestamp> {
    let time = text
        .parse::<Timestamp>()
        .map_err(|_| format!("{text:?} is not a valid time: use RFC 3339, such as 2026-12-24T18:00:00Z"));
    let time = flaws.take(at, FlawReason::InvalidTime, time)?;
    match from {
        Some(from) => flaws.take(at, FlawReason::TooFar, bounded(time, from)),
        None => Some(time),
    }
}

fn bounded(until: Timestamp, from: Timestamp) -> Result<Timestamp, String> {
    if until.duration_since(from) <= LONGEST {
        return Ok(until);
    }
    let days = LONGEST.as_hours() / 24;
    Err(format!("{until} is more than {days} days away: request a shorter time and renew it later"))
}

/// A request for an allowance, in annotations.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedAllowance {
    pub grant: Grant,
    pub until: Option<Timestamp>,
    pub reason: Option<String>,
}

impl RequestedAllowance {
    /// Reads the texts of the three annotations.
    ///
    /// # Errors
    /// All flaws of the annotations.
    pub fn read(allow: &str, until: Option<&str>, reason: Option<&str>) -> Result<Self, Vec<Flaw>> {
        let mut flaws = Flaws::default();
        let paths: Vec<&str> = split(allow).into_iter().map(str::trim).filter(|it| !it.is_empty()).collect();
        let grant = granted(paths.iter().copied(), paths.len(), ALLOW, &mut flaws);
        let until = until.and_then(|until| time(until.trim(), ALLOW_UNTIL, None, &mut flaws));
        if reason.is_some_and(|reason| reason.chars().count() > MAX_REASON) {
            let message = format_args!("the reason is longer than {MAX_REASON} characters");
            flaws.add(ALLOW_REASON, FlawReason::InvalidValue, message);
        }
        flaws.or(Self { grant, until, reason: reason.map(str::to_owned) })
    }

    /// The end of an allowance that is requested at `now`.
    ///
    /// # Errors
    /// The end is missing, in the past or too far in the future.
    pub fn until_from(&self, now: Timestamp) -> Result<Timestamp, Flaw> {
        let flaw = |reason, message: String| Flaw { field: ALLOW_UNTIL.to_owned(), reason, message };
        let until = self.until.ok_or_else(|| {
            let message = "set an end time, such as 2026-12-24T18:00:00Z".to_owned();
            flaw(FlawReason::Missing, message)
        })?;
        if until <= now {
            return Err(flaw(FlawReason::InvalidTime, format!("{until} is in the past")));
        }
        bounded(until, now).map_err(|message| flaw(FlawReason::TooFar, message))
    }
}

/// Splits at commas outside brackets: `[a=1,b=2]` is one segment.
fn split(text: &str) -> Vec<&str> {
    let (mut bracketed, mut quoted, mut escaped, mut before) = (false, false, false, ' ');
    text.split(|c: char| {
        let splits = c == ',' && !bracketed;
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' if bracketed => quoted = !quoted,
            '[' if before == '/' => bracketed = true,
            ']' if !quoted => bracketed = false,
            _ => {}
        }
        before = c;
        splits
    })
    .collect()
}

#[derive(Clone, Debug, PartialEq)]
pub struct StandingAllowance {
    pub origin: AllowanceOrigin,
    pub grant: Grant,
    /// The times at which it applies; always if `None`.
    pub schedule: Option<Schedule>,
    /// Its end; never if `None`.
    pub until: Option<Timestamp>,
    /// The users who may make the changes; all users if empty.
    pub subjects: Vec<SubjectSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowanceOrigin {
    Policy {
        policy: String,
        /// The name of its rule.
        name: String,
    },
    Manifest {
        /// The text of its `kubemoor.dev/allow-reason`.
        reason: Option<String>,
    },
}

impl StandingAllowance {
    /// Whether the allowance is in effect at `now`. The reconcile loop checks nothing else, because it does not know
    /// which user changed a field.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
            && self.schedule.as_ref().is_none_or(|schedule| schedule.is_window_open(now))
    }

    pub fn applies_to(&self, actor: &Actor) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|subject| subject.matches(actor))
    }

    /// The next time at which the result of [`StandingAllowance::is_active`] changes, or at which to check again; `None` if
    /// it never changes.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        if self.until.is_some_and(|until| until <= now) {
            return None;
        }
        let scheduled = self.schedule.as_ref().and_then(|schedule| schedule.next_change(now));
        scheduled.into_iter().chain(self.until).min()
    }
}

impl fmt::Display for AllowanceOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { policy, name } => write!(f, "allowance {name} of policy {policy}"),
            Self::Manifest { reason: Some(reason) } => {
                write!(f, "annotation {ALLOW} of the chart ({reason})")
            }
            Self::Manifest { reason: None } => write!(f, "annotation {ALLOW} of the chart"),
        }
    }
}

/// The allowance in the annotations of an object's manifest; `None` without such annotations.
///
/// # Errors
/// All flaws of the annotations, which then have no effect.
pub fn allowance_from_annotations(
    declared: &DeclaredObject,
) -> Result<Option<Arc<StandingAllowance>>, Vec<Flaw>> {
    let Some(AllowAnnotations { allow: Some(allow), until, reason }) = declared.allow.as_deref() else {
        return Ok(None);
    };
    let RequestedAllowance { grant, until, reason } =
        RequestedAllowance::read(allow, until.as_deref(), reason.as_deref())?;
    let origin = AllowanceOrigin::Manifest { reason };
    Ok(Some(Arc::new(StandingAllowance { origin, grant, schedule: None, until, subjects: Vec::new() })))
}

/// The allowance for one object: positions of list elements are replaced by their keys.
pub(crate) fn with_list_keys(
    standing: &Arc<StandingAllowance>,
    fields: &DeclaredFields,
) -> Arc<StandingAllowance> {
    let Cow::Owned(mask) = standing.grant.mask.with_list_keys(fields) else { return Arc::clone(standing) };
    let grant = Grant { mask, allows_delete: standing.grant.allows_delete };
    Arc::new(StandingAllowance { grant, ..StandingAllowance::clone(standing) })
}

/// The search for the end of adjoining windows computes at most this many starts, then returns the last end it found.
const MAX_CHAIN: usize = 1000;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Recurring time windows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schedule(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: String,
    /// One cron for each fixed time of day, or one for the whole expression.
    crons: Vec<Cron>,
    length: SignedDuration,
    zone: TimeZone,
}

impl Schedule {
    /// Whether a window is open at `now`. A window includes its start and excludes its end.
    pub fn is_window_open(&self, now: Timestamp) -> bool {
        self.end(now).is_some_and(|end| now < end)
    }

    /// The next time at which the result of [`Schedule::is_window_open`] changes; if windows adjoin without end, a time at which
    /// to check again. `None` if it never changes again.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(mut end) = self.end(now).filter(|end| now < *end) else { return self.next(now) };
        let mut start = now;
        for _ in 0..MAX_CHAIN / self.0.crons.len().max(1) {
            match self.next(start) {
                Some(next) if next <= end => {
                    start = next;
                    end = next.checked_add(self.0.length).ok()?;
                }
                _ => break,
            }
        }
        Some(end)
    }

    pub(crate) fn compile(spec: &ScheduleSpec, at: &str, flaws: &mut Flaws) -> Option<Self> {
        let ScheduleSpec { cron, duration, time_zone } = spec;
        let crons = flaws.take(&format!("{at}.cron"), FlawReason::InvalidSchedule, crons(cron));
        // The crons differ only in the time of day, and in UTC every day has every time: the first stands for all.
        if let Some(first) = crons.as_ref().and_then(|crons| crons.first())
            && !has_occurrence(first)
        {
            let message = format!("{cron:?} never matches: no year has such a day");
            flaws.add(&format!("{at}.cron"), FlawReason::NeverFires, message);
        }
        let length = flaws.take(&format!("{at}.duration"), FlawReason::InvalidSchedule, length(duration));
        let name = time_zone.as_deref().unwrap_or("UTC");
        let zone = ZONES
            .get(name)
            .map_err(|_| format!("{name:?} is not an IANA time zone: use one such as Europe/Berlin or UTC"));
        let zone = flaws.take(&format!("{at}.timeZone"), FlawReason::UnknownTimeZone, zone);
        let text = format!("{cron} for {duration} ({name})");
        Some(Self(Arc::new(Inner { text, crons: crons?, length: length?, zone: zone? })))
    }

    /// The end of the window that opened last.
    fn end(&self, now: Timestamp) -> Option<Timestamp> {
        // Cron occurrences are whole seconds.
        let now = Zoned::new(now, self.0.zone.clone()).round(floor()).ok()?;
        let starts = self.0.crons.iter().filter_map(|cron| cron.find_previous_occurrence(&now, true).ok());
        starts.map(|start| start.timestamp()).max()?.checked_add(self.0.length).ok()
    }

    /// The first start after `now`.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let now = Zoned::new(now, self.0.zone.clone()).round(floor()).ok()?;
        let starts = self.0.crons.iter().filter_map(|cron| cron.find_next_occurrence(&now, false).ok());
        starts.map(|start| start.timestamp()).min()
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.text)
    }
}

fn floor() -> ZonedRound {
    ZonedRound::new().smallest(Unit::Second).mode(RoundMode::Trunc)
}

/// The most crons with a fixed time into which one expression is split.
const MAX_TIMES: usize = 48;

/// Reads a cron expression of five fields. If hour and minute are lists of numbers, each time becomes a separate cron:
/// only a cron with a fixed time is run late if daylight saving time skips it.
fn crons(text: &str) -> Result<Vec<Cron>, String> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [minute, hour, days @ ..] = fields.as_slice() else {
        return Err(format!(
            "{text:?} is not a cron expression: use minute, hour, day of month, month and day of week"
        ));
    };
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let parse = |text: &str| {
        parser.parse(text).map_err(|error| format!("{text:?} is not a cron expression: {error}"))
    };
    let whole = parse(text)?;
    let numbers = |field: &str| {
        let numbers: Vec<String> = field.split(',').map(str::to_owned).collect();
        numbers.iter().all(|number| number.bytes().all(|byte| byte.is_ascii_digit())).then_some(numbers)
    };
    match (numbers(minute), numbers(hour)) {
        (Some(minutes), Some(hours)) if minutes.len() * hours.len() <= MAX_TIMES => {
            let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| (minute, hour)));
            times.map(|(minute, hour)| parse(&format!("{minute} {hour} {}", days.join(" ")))).collect()
        }
        _ => Ok(vec![whole]),
    }
}

/// Whether a cron ever matches; one for February 30 does not. [`croner`] searches until the year 5000, and the 40 years
/// before contain all combinations of leap years and weekdays.
fn has_occurrence(cron: &Cron) -> bool {
    let start = Date::constant(4960, 1, 1).to_zoned(TimeZone::UTC);
    start.is_ok_and(|start| cron.find_next_occurrence(&start, true).is_ok())
}

fn length(text: &str) -> Result<SignedDuration, String> {
    let length: SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is not a duration: use one such as 10h or 1h30m"))?;
    if length <= SignedDuration::ZERO || length > LONGEST {
        return Err(format!("{text:?} is not between one second and {} hours", LONGEST.as_hours()));
    }
    Ok(length)
}

#[cfg(test)]
mod tests;
