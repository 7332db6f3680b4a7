//! The remedies for a denied change: permanent, temporary, and the command that explains more.
//!
//! Entry points: [`Upgrade`], [`Ways`], [`details`]. Invariant: every command can be pasted once
//! the words in capitals are replaced, and is correct for namespaced and cluster-scoped objects.
//! Must not judge.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::owner::{self, Owner};
use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_helm::record::ChartVersion;
use kubemoor_helm::values::Candidate;

/// The paths that a command names; of more it names all by `*`.
const PATHS: usize = 8;

/// The most bytes of the paths of a command.
const LENGTH: usize = 1000;

/// Groups whose kinds are named without them.
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

/// What stands for the command that explains an object where its name leaves no room.
const EXPLAIN_PASTED: &str = "Details: paste this message into the input of: kubectl moor explain -";

/// The values that a sentence names.
const VALUES: usize = 3;

/// A sentence that says what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    head: String,
    /// The text between head and tail, and its short form.
    middle: (Arc<str>, &'static str),
    tail: Cow<'static, str>,
    pub(super) kind: WayKind,
}

/// What sort of sentence it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WayKind {
    /// Any sentence: of little room it loses its end.
    #[default]
    Sentence,
    /// It says how the release is changed for good.
    Permanent,
    /// It has the command that allows changes for a time.
    Temporary,
    /// It has the command that explains the object.
    Details,
}

/// The way to change a release permanently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The release.
    pub release: ReleaseId,
    /// Who upgrades it.
    pub owner: Owner,
    /// The chart that its latest revision was made from, where that is known.
    pub chart: Option<ChartVersion>,
}

/// The remedies for a declared object.
pub(super) struct Ways<'a> {
    pub(super) object: &'a ObjectId,
    pub(super) upgrade: &'a Upgrade,
}

impl Upgrade {
    /// The sentence about this way. `values` has, for each field to change, the chart values that
    /// probably set it.
    pub fn text(&self, values: &[Vec<Candidate>]) -> String {
        self.way(values).text()
    }

    pub(super) fn way(&self, values: &[Vec<Candidate>]) -> Way {
        let ReleaseId { namespace, name } = &self.release;
        let probable = probable(values);
        let (head, more) = match &self.owner {
            Owner::Helm => {
                let chart = self
                    .chart
                    .as_ref()
                    .map_or_else(String::new, |chart| format!(" with chart {chart} as CHART"));
                let sets = sets(values);
                return Way {
                    head: format!("To make it permanent, change the chart value{probable} and upgrade"),
                    middle: (chart.into(), ""),
                    tail: format!(": helm upgrade {name} CHART -n {namespace} --reuse-values{sets}").into(),
                    kind: WayKind::Permanent,
                };
            }
            Owner::Terraform => (
                format!(
                    "To make it permanent, change the chart value{probable} in the Terraform resource helm_release of release {name:?} and run: terraform apply"
                ),
                "",
            ),
            Owner::Flux(found) => (
                format!(
                    "To make it permanent, change spec.values{probable} of {}: Flux upgrades the release.",
                    owner::helm_release(found.as_ref(), name)
                ),
                " If another program sets the field, add it to spec.driftDetection.ignore there and to a policy's `ignore`.",
            ),
            Owner::Argo(found) => (
                format!(
                    "To make it permanent, change the Helm values{probable} of {}.",
                    owner::application(found.as_deref())
                ),
                " If another program sets the field, add it to spec.ignoreDifferences there and to a policy's `ignore`.",
            ),
        };
        Way { kind: WayKind::Permanent, middle: (more.into(), ""), ..Way::from(head) }
    }
}

impl Ways<'_> {
    pub(super) fn of_fields<'p>(&self, paths: impl ExactSizeIterator<Item = &'p Path>) -> Vec<Way> {
        let (allowed, explained) = match flags_of(paths) {
            Some(flags) => (Arc::clone(&flags), flags),
            None => (flags(&["*".to_owned()]).into(), Arc::default()),
        };
        vec![
            self.upgrade.way(&[]),
            self.temporary("make", allowed),
            explained_by(self.object, Some(&self.upgrade.release), explained),
        ]
    }

    pub(super) fn of_deletion(&self) -> Vec<Way> {
        vec![
            self.upgrade.owner.removal(&self.upgrade.release).into(),
            self.temporary("delete", flags(&["delete".to_owned()]).into()),
            details(self.object, Some(&self.upgrade.release), &[]),
        ]
    }

    fn temporary(&self, verb: &str, flags: Arc<str>) -> Way {
        let (begin, end) = allowing(self.object, &self.upgrade.release);
        Way {
            head: format!("To {verb} it for a while: {begin}"),
            middle: (flags, " --path PATH"),
            tail: end.into(),
            kind: WayKind::Temporary,
        }
    }
}

impl Way {
    /// The whole sentence.
    pub(super) fn text(&self) -> String {
        self.with(&self.middle.0)
    }

    /// The same where there is little room: its command names no path.
    pub(super) fn short(&self) -> String {
        self.with(self.middle.1)
    }

    /// The sentence within so many characters. A command is given whole or not at all; what explains is never left
    /// out.
    pub(super) fn within(&self, limit: usize) -> Option<String> {
        let fits = |text: &String| text.chars().count() <= limit;
        let fitting = [self.text(), self.short()].into_iter().find(fits);
        match self.kind {
            WayKind::Sentence => fitting.or_else(|| Some(self.short())),
            WayKind::Permanent | WayKind::Temporary => fitting,
            WayKind::Details => fitting.or_else(|| Some(EXPLAIN_PASTED.to_owned())),
        }
    }

    /// Has it say that somebody else has to run the command, who has the right to.
    pub(super) fn ask_others(&mut self, namespace: &str) {
        let to_run = format!(
            " for a while, ask a user with the right to create driftallowances in namespace {namespace:?} to run: "
        );
        self.head = self.head.replacen(" for a while: ", &to_run, 1);
    }

    fn with(&self, middle: &str) -> String {
        [self.head.as_str(), middle, &*self.tail].concat()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        [self.head.as_str(), &*self.middle.0, &*self.tail].into_iter().try_for_each(|part| f.write_str(part))
    }
}

impl From<String> for Way {
    fn from(head: String) -> Self {
        Self { head, ..Self::default() }
    }
}

/// The command that allows changes temporarily. The exception for a cluster-scoped object is in its
/// release's namespace.
pub fn allow(object: &ObjectId, release: &ReleaseId, paths: &[String]) -> String {
    let (begin, end) = allowing(object, release);
    format!("{begin}{}{end}", flags(paths))
}

/// The command that lists the changes of an object in the last month as CSV.
pub fn audit(object: &ObjectId, release: &ReleaseId) -> String {
    format!("kubectl moor audit --object {} -n {} --since 30d -o csv", argument(object), release.namespace)
}

/// The sentence with the command that explains an object.
pub(super) fn details(object: &ObjectId, release: Option<&ReleaseId>, paths: &[String]) -> Way {
    explained_by(object, release, flags(paths).into())
}

/// An object in the notation of the command line.
pub(super) fn argument(object: &ObjectId) -> String {
    let ObjectId { group, kind, name, .. } = object;
    let kind = kind.to_lowercase();
    match USUAL.contains(&group.as_str()) {
        true => format!("{kind}/{name}"),
        false => format!("{kind}.{group}/{name}"),
    }
}

/// A word quoted for the shell.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
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

fn explained_by(object: &ObjectId, release: Option<&ReleaseId>, flags: Arc<str>) -> Way {
    // For a cluster-scoped object, it is the namespace of the release.
    let namespace = object.namespace.as_ref().or(release.map(|release| &release.namespace));
    let place = namespace.map_or_else(String::new, |namespace| format!(" -n {namespace}"));
    let head = format!("Details: kubectl moor explain {}{place}", argument(object));
    Way { head, middle: (flags, ""), kind: WayKind::Details, ..Way::default() }
}

/// The names of the values, in brackets; nothing where there are none.
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

/// The flags that set the values; where a new text is not known, with a word in capitals in its place.
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
fn flags_of<'p>(paths: impl ExactSizeIterator<Item = &'p Path>) -> Option<Arc<str>> {
    if paths.len() > PATHS {
        return None;
    }
    let (mut flags, mut length) = (String::with_capacity(LENGTH), 0);
    for path in paths {
        let text = path.pointer();
        length += text.len();
        if length > LENGTH {
            return None;
        }
        flags.push_str(" --path ");
        flags.push_str(&quoted(text));
    }
    Some(flags.into())
}
