//! Policies, verdicts and messages for tests. Other crates' tests include this file by its path.

use std::sync::Arc;

use kubemoor_declare::model::{DriftMode, EditsMode, ObjectId, Operation, ReleaseId};
use kubemoor_declare::path::Path;
use kubemoor_policy::Policy;
use kubemoor_policy::compile::CompiledPolicy;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};
use kubemoor_verdict::edit::{FieldFinding, Grounds, Verdict, VerdictReason};
use kubemoor_verdict::message::{EditMessage, MessageContext};
use serde_json::Value;

pub(crate) fn resolver(edits: EditsMode) -> PolicyResolver {
    book_of(edits, None)
}

pub(crate) fn book_of(edits: EditsMode, accepted: Option<Arc<CompiledPolicy>>) -> PolicyResolver {
    let hour = std::time::Duration::from_secs(3600);
    let defaults = Policy::new(edits, DriftMode::Report, hour);
    let resolver = PolicyResolver::of_policies(Policies::new(defaults, &Labels::new(), accepted));
    let name = ("kubernetes.io/metadata.name".to_owned(), "shop".to_owned());
    resolver.set_namespace("shop", Some(Labels::from([name])));
    resolver
}

pub(crate) fn object(group: &str, kind: &str) -> ObjectId {
    ObjectId::namespaced(group, kind, "shop", "web")
}

pub(crate) fn finding(object: &ObjectId, path: &str, values: [Value; 3]) -> FieldFinding {
    let path: Path = path.parse().unwrap();
    FieldFinding::new(object, &path, values.each_ref().map(|it| Some(it).filter(|it| !it.is_null())))
}

pub(crate) fn refused(reason: VerdictReason, fields: Vec<FieldFinding>) -> Verdict {
    let release = ReleaseId { namespace: "shop".into(), name: "shop".into() };
    Verdict::by_mode(
        resolver(EditsMode::Deny).defaults(),
        reason,
        Some(Grounds { release, revision: 7, fields, exceptions: Vec::new() }),
    )
}

/// The message about an update of these fields: the declared, the old and the new value.
pub(crate) fn drift(object: &ObjectId, fields: Vec<(&str, [Value; 3])>) -> EditMessage {
    let fields = fields.into_iter().map(|(path, values)| finding(object, path, values)).collect();
    context(object, Operation::Update).of_edit(&refused(VerdictReason::Drift, fields))
}

pub(crate) fn context(object: &ObjectId, operation: Operation) -> MessageContext<'_> {
    MessageContext { object, operation, policy: None, declared: None, release: None, live: [None; 2] }
}
