//! Subjects: users, groups and service accounts, as policies name them.
//!
//! Entry point: [`Subject::is`]. Invariant: names are compared whole; no subject stands for every
//! user. Must not ask the API server.

use std::fmt;

use super::flaw::{FlawReason, Flaws};
use super::resource::{SubjectKind, SubjectSpec};
use kubemoor_declare::model::Actor;

/// A subject that a policy names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user by name.
    User(String),
    /// Every member of this group.
    Group(String),
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "User {name}"),
            Self::Group(name) => write!(f, "Group {name}"),
            Self::ServiceAccount { namespace, name } => write!(f, "ServiceAccount {namespace}/{name}"),
        }
    }
}

impl Subject {
    /// Whether the subject names this actor.
    pub fn is(&self, actor: &Actor) -> bool {
        match self {
            Self::User(name) => actor.user == *name,
            Self::Group(name) => actor.groups.contains(name),
            Self::ServiceAccount { namespace, name } => actor.is_service_account(namespace, name),
        }
    }
}

pub(super) fn compile(specs: &[SubjectSpec], at: &str, flaws: &mut Flaws) -> Vec<Subject> {
    let mut subjects = Vec::with_capacity(specs.len());
    for (index, SubjectSpec { kind, name, namespace }) in specs.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if name.is_empty() {
            flaws.add(&at, FlawReason::InvalidSubject, "the subject has no name: write the whole name");
            continue;
        }
        match (kind, namespace.as_deref().filter(|namespace| !namespace.is_empty())) {
            (SubjectKind::User, None) => subjects.push(Subject::User(name.clone())),
            (SubjectKind::Group, None) => subjects.push(Subject::Group(name.clone())),
            (SubjectKind::ServiceAccount, Some(namespace)) => {
                subjects
                    .push(Subject::ServiceAccount { namespace: namespace.to_owned(), name: name.clone() });
            }
            (SubjectKind::ServiceAccount, None) => flaws.add(
                &at,
                FlawReason::InvalidSubject,
                "a ServiceAccount is named by namespace and name: write its namespace",
            ),
            (SubjectKind::User | SubjectKind::Group, Some(_)) => flaws.add(
                &at,
                FlawReason::InvalidSubject,
                "users and groups have no namespace: leave it out, or name a ServiceAccount",
            ),
        }
    }
    subjects
}
