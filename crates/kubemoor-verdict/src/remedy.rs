//! The remedies for a denied change: permanent, by the program that upgrades the release; temporary; and the command
//! that explains more. Every command can be pasted once the words in capitals are replaced, and is correct for
//! namespaced and cluster-scoped objects.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use kubemoor_declare::excerpt::Excerpt;
use kubemoor_declare::fields::DeclaredFields;
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ChartVersion;
use kubemoor_helm::release::{RecordHead, RecordWriter};
use kubemoor_helm::values::Candidate;

/// The most paths that a command names; for more, it uses `*`.
const PATHS: usize = 8;

/// The most bytes of the paths in a command.
const LENGTH: usize = 1000;

/// API groups that are omitted after the kind.
const USUAL: [&str; 8] = [
    "",
    "apps",
    "batch",
    "autoscaling",
    "policy",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
];

/// Replaces the command that explains an object if the name of the object is too long.
const EXPLAIN_PASTED: &str = "Details: paste this message into the input of: kubectl moor explain -";

/// The most chart values that a sentence names.
const VALUES: usize = 3;

/// A sentence that says what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remedy {
    text: String,
    /// A shorter version, whose command names no path.
    short: String,
    pub(crate) kind: RemedyKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RemedyKind {
    /// Any sentence: its end may be cut off.
    #[default]
    Sentence,
    /// It says how to change the release permanently.
    Permanent,
    /// It has the command that allows changes temporarily.
    Temporary,
    /// It has the command that explains the object.
    Details,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    pub release: ReleaseId,
    pub owner: Upgrader,
    /// The chart of its latest revision, if it is known.
    pub chart: Option<ChartVersion>,
}

impl Upgrade {
    /// The sentence about this upgrade. `values` has, for each field to change, the chart values that probably set it.
    pub fn text(&self, values: &[Vec<Candidate>]) -> String {
        self.remedy(values).to_string()
    }

    pub(crate) fn remedy(&self, values: &[Vec<Candidate>]) -> Remedy {
        let ReleaseId { namespace, name } = &self.release;
        let probable = probable(values);
        let (text, more) = match &self.owner {
            Upgrader::Helm => {
                let text = format!("To make it permanent, change the chart value{probable} and upgrade");
                let command =
                    format!(": helm upgrade {name} CHART -n {namespace} --reuse-values{}", sets(values));
                let short = format!("{text}{command}");
                let text = match &self.chart {
                    Some(chart) => format!("{text} with chart {chart} as CHART{command}"),
                    None => short.clone(),
                };
                return Remedy { text, short, kind: RemedyKind::Permanent };
            }
            Upgrader::Terraform => (
                format!(
                    "To make it permanent, change the chart value{probable} in the Terraform resource helm_release of release {name:?} and run: terraform apply"
                ),
                "",
            ),
            Upgrader::Flux(found) => (
                format!(
                    "To make it permanent, change spec.values{probable} of {}: Flux upgrades the release.",
                    helm_release(found.as_ref(), name)
                ),
                " If another program sets the field, add it to spec.driftDetection.ignore there and to a policy's `ignore`.",
            ),
            Upgrader::Argo(found) => (
                format!(
                    "To make it permanent, change the Helm values{probable} of {}.",
                    application(found.as_deref())
                ),
                " If another program sets the field, add it to spec.ignoreDifferences there and to a policy's `ignore`.",
            ),
        };
        Remedy { text: format!("{text}{more}"), short: text, kind: RemedyKind::Permanent }
    }

    /// The remedies for an edit of these fields of an object.
    pub(crate) fn for_fields<'p>(
        &self,
        object: &ObjectId,
        paths: impl ExactSizeIterator<Item = &'p Path>,
    ) -> Vec<Remedy> {
        let (allowed, explained) = match flags_of(paths) {
            Some(flags) => (flags.clone(), flags),
            None => (flags(&["*".to_owned()]), String::new()),
        };
        vec![
            self.remedy(&[]),
            self.temporary(object, "make", &allowed),
            explained_by(object, Some(&self.release), &explained),
        ]
    }

    pub(crate) fn for_deletion(&self, object: &ObjectId) -> Vec<Remedy> {
        vec![
            self.owner.removal(&self.release).into(),
            self.temporary(object, "delete", &flags(&["delete".to_owned()])),
            details(object, Some(&self.release)),
        ]
    }

    fn temporary(&self, object: &ObjectId, verb: &str, flags: &str) -> Remedy {
        let (begin, end) = allowing(object, &self.release);
        let with = |flags: &str| format!("To {verb} it for a while: {begin}{flags}{end}");
        Remedy { text: with(flags), short: with(" --path PATH"), kind: RemedyKind::Temporary }
    }
}

impl Remedy {
    /// The sentence for `limit` characters. A command is given whole or not at all; the one that explains the object is
    /// replaced by a short hint.
    pub(crate) fn within(&self, limit: usize) -> Option<String> {
        let fitting = [&self.text, &self.short].into_iter().find(|text| text.chars().count() <= limit);
        let otherwise = match self.kind {
            RemedyKind::Sentence => Some(self.short.as_str()),
            RemedyKind::Permanent | RemedyKind::Temporary => None,
            RemedyKind::Details => Some(EXPLAIN_PASTED),
        };
        fitting.map(String::as_str).or(otherwise).map(str::to_owned)
    }

    /// Rewords it for a user who has to ask somebody with the right to run the command.
    pub(crate) fn ask_others(&mut self, namespace: &str) {
        let to_run = format!(
            " for a while, ask a user with the right to create driftallowances in namespace {namespace:?} to run: "
        );
        for text in [&mut self.text, &mut self.short] {
            *text = text.replacen(" for a while: ", &to_run, 1);
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self { short: text.clone(), text, kind: RemedyKind::Sentence }
    }
}

/// The command that allows changes temporarily. The exception for a cluster-scoped object is in its release's
/// namespace.
pub fn allow(object: &ObjectId, release: &ReleaseId, paths: &[String]) -> String {
    let (begin, end) = allowing(object, release);
    format!("{begin}{}{end}", flags(paths))
}

/// The command that lists the changes of an object in the last month as CSV.
pub fn audit(object: &ObjectId, release: &ReleaseId) -> String {
    format!("kubectl moor audit --object {} -n {} --since 30d -o csv", argument(object), release.namespace)
}

pub(crate) fn details(object: &ObjectId, release: Option<&ReleaseId>) -> Remedy {
    explained_by(object, release, "")
}

pub(crate) fn argument(object: &ObjectId) -> String {
    let ObjectId { group, kind, name, .. } = object;
    let kind = kind.to_lowercase();
    match USUAL.contains(&group.as_str()) {
        true => format!("{kind}/{name}"),
        false => format!("{kind}.{group}/{name}"),
    }
}

/// A word quoted for the shell.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let is_safe =
        |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'/' | b'-' | b'_' | b'.' | b':' | b'@' | b'=');
    // Some shells read a word that begins with `=` as a command.
    match text.bytes().all(is_safe) && !text.is_empty() && !text.starts_with('=') {
        true => Cow::Borrowed(text),
        false if text.contains('\'') => format!("'{}'", text.replace('\'', r"'\''")).into(),
        false => ["'", text, "'"].concat().into(),
    }
}

/// The parts of the command before and after the paths.
fn allowing(object: &ObjectId, release: &ReleaseId) -> (String, &'static str) {
    let namespace = object.namespace.as_ref().unwrap_or(&release.namespace);
    (format!("kubectl moor allow {} -n {namespace}", argument(object)), " --for 2h --reason TEXT")
}

fn explained_by(object: &ObjectId, release: Option<&ReleaseId>, flags: &str) -> Remedy {
    // A cluster-scoped object gets the namespace of the release.
    let namespace = object.namespace.as_ref().or(release.map(|release| &release.namespace));
    let place = namespace.map_or_else(String::new, |namespace| format!(" -n {namespace}"));
    let short = format!("Details: kubectl moor explain {}{place}", argument(object));
    Remedy { text: format!("{short}{flags}"), short, kind: RemedyKind::Details }
}

/// The names of the values, in parentheses; empty without values.
fn probable(values: &[Vec<Candidate>]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for candidate in values.iter().flatten() {
        if !names.contains(&candidate.value.as_str()) {
            names.push(&candidate.value);
        }
    }
    names.truncate(VALUES);
    if names.is_empty() { String::new() } else { format!(" (probably {})", names.join(", ")) }
}

/// The flags that set the values, with a word in capitals in place of an unknown value.
fn sets(values: &[Vec<Candidate>]) -> String {
    let set = |candidate: &Candidate| match &candidate.set {
        Some((flag, set)) => format!(" {flag} {}", quoted(set)),
        // An index would replace the whole list.
        None if candidate.is_list => " --values FILE".to_owned(),
        None => format!(" --set {}", quoted(&format!("{}=VALUE", candidate.value))),
    };
    let mut flags: Vec<String> = Vec::new();
    for flag in values.iter().flatten().map(set) {
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    if flags.is_empty() || values.iter().any(Vec::is_empty) {
        flags.push(" --set KEY=VALUE".to_owned());
    }
    flags.concat()
}

fn flags(paths: &[String]) -> String {
    paths.iter().map(|path| format!(" --path {}", quoted(path))).collect()
}

/// The flags for these paths; `None` if they are too many or too long for a command.
fn flags_of<'p>(paths: impl ExactSizeIterator<Item = &'p Path>) -> Option<String> {
    if paths.len() > PATHS {
        return None;
    }
    let paths: Vec<String> = paths.map(ToString::to_string).collect();
    (paths.iter().map(String::len).sum::<usize>() <= LENGTH).then(|| flags(&paths))
}

/// The labels (or annotations) by which Flux marks the objects of a HelmRelease.
const FLUX: [&str; 2] = ["helm.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace"];

/// How Argo CD marks the objects of an Application: by an annotation `APPLICATION:GROUP/KIND:NAMESPACE/NAME`, or by a
/// label.
const ARGO: [&str; 2] = ["argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"];

/// Argo CD's default label, with which it also overwrites the chart's.
const COMMON: &str = "app.kubernetes.io/instance";

/// The longest name of an Application.
const NAME: usize = 253;

/// The program that upgrades a release, according to its manifest, its record and the live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrader {
    Helm,
    Terraform,
    /// Flux, for a HelmRelease; `None` if it is not known which one.
    Flux(Option<ReleaseId>),
    /// Argo CD, for an Application; `None` if it is not known which one.
    Argo(Option<String>),
}

/// The programs that wrote a live object, as far as its metadata show.
#[derive(Clone, Debug, Default)]
pub struct LiveWriters<'a> {
    has_managers: bool,
    /// The last writer among Flux and Argo CD, and when it wrote.
    newest: Option<(Timestamp, RecordWriter)>,
    metadata: Option<Excerpt<'a>>,
}

impl Upgrader {
    /// The upgrader of the release of an object with these declared fields; `record` is the latest record.
    pub fn find<'l>(
        fields: &DeclaredFields,
        record: Option<&RecordHead>,
        live: impl FnOnce() -> LiveWriters<'l>,
    ) -> Self {
        let text = |map: &str, name: &str| match fields.get(&["metadata", map, name]) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let flux = |map| Some((text(map, FLUX[0])?, text(map, FLUX[1])?));
        if let Some((name, namespace)) = flux("labels").or_else(|| flux("annotations")) {
            return Self::Flux(Some(ReleaseId { namespace: namespace.into(), name: name.into() }));
        }
        let tracked = text("annotations", ARGO[0]);
        let tracked = tracked.and_then(|id| Some(id.split_once(':')?.0.to_owned()));
        if let Some(application) = tracked.or_else(|| text("labels", ARGO[1])) {
            return Self::Argo(Some(application));
        }
        let live = live();
        let newer = live.newest.filter(|(time, _)| record.is_none_or(|record| *time > record.last_written));
        let writer = record.map(|record| record.writer).unwrap_or_default();
        match newer.map_or(writer, |(_, writer)| writer) {
            RecordWriter::Flux => Self::Flux(None),
            RecordWriter::Argo => Self::Argo(live.application()),
            RecordWriter::Terraform => Self::Terraform,
            RecordWriter::Other => Self::Helm,
        }
    }

    pub(crate) fn removal(&self, release: &ReleaseId) -> String {
        let ReleaseId { namespace, name } = release;
        match self {
            Self::Helm => format!(
                "To remove it, remove it from the chart and upgrade, or uninstall the release: helm uninstall {name} -n {namespace}"
            ),
            Self::Terraform => format!(
                "To remove it, remove it from the chart or its values in the Terraform resource helm_release of release {name:?} and run: terraform apply"
            ),
            Self::Flux(found) => format!(
                "To remove it, remove it from the chart or its values in {}: Flux upgrades the release.",
                helm_release(found.as_ref(), name)
            ),
            Self::Argo(found) => format!(
                "To remove it, remove it from the chart or its values in {}.",
                application(found.as_deref())
            ),
        }
    }
}

impl<'a> LiveWriters<'a> {
    pub fn read(object: &Excerpt<'a>) -> Self {
        let Some(metadata) = object.at(&["metadata"]) else { return Self::default() };
        let known = |entry: &Excerpt<'_>| {
            let [name, time, subresource] = entry.texts(&[], ["manager", "time", "subresource"]);
            let writer = RecordWriter::from_manager(&name?);
            let counts = matches!(writer, RecordWriter::Flux | RecordWriter::Argo)
                && subresource.is_none_or(|it| it.is_empty());
            if counts { Some((time?.parse().ok()?, writer)) } else { None }
        };
        let managers = metadata.at(&["managedFields"]).and_then(|list| list.items());
        let newest = managers.iter().flatten().filter_map(known).max_by_key(|(time, _)| *time);
        Self { has_managers: managers.is_some(), newest, metadata: Some(metadata) }
    }

    /// The writers of an object in a review: from the old object, or from the new one if the old one has no
    /// `managedFields`, which some API servers do not send.
    pub(crate) fn of_review(objects: [Option<&Excerpt<'a>>; 2]) -> Self {
        let found = objects.into_iter().flatten().map(Self::read).find(|writers| writers.has_managers);
        found.unwrap_or_default()
    }

    /// The Argo CD Application that the object belongs to, by its most reliable mark.
    fn application(&self) -> Option<String> {
        let metadata = self.metadata.as_ref()?;
        let [tracked] = metadata.texts(&["annotations"], [ARGO[0]]);
        let tracked = tracked.and_then(|id| Some(id.split_once(':')?.0.to_owned()));
        let labels = metadata.texts(&["labels"], [ARGO[1], COMMON]);
        let is_name = |name: &String| {
            let is_letter = |c: u8| c.is_ascii_alphanumeric() || b"-._/".contains(&c);
            !name.is_empty() && name.len() <= NAME && name.bytes().all(is_letter)
        };
        tracked.into_iter().chain(labels.into_iter().flatten()).find(is_name)
    }
}

/// A HelmRelease in words; if it is not known which one, by the name of the `release`.
pub(crate) fn helm_release(found: Option<&ReleaseId>, release: &str) -> String {
    match found {
        Some(ReleaseId { namespace, name }) => format!("HelmRelease {name:?} in namespace {namespace:?}"),
        None => format!("the HelmRelease of release {release:?} (kubectl get helmreleases -A)"),
    }
}

pub(crate) fn application(found: Option<&str>) -> String {
    match found {
        Some(name) => format!("Argo CD Application {name:?}"),
        None => "the Argo CD Application of this object (kubectl get applications.argoproj.io -A)".to_owned(),
    }
}

#[cfg(test)]
mod tests;
