//! What the next Helm upgrade does to the fields that drift.
//!
//! Entry points: [`summary`] for the release, [`effect`] for a field, [`unknown`] where its record may not be read.
//! Invariant: the effects are those of the comparison, which finds the conflicts of `kubemoor forecast`.

use std::collections::BTreeSet;

use maud::{Markup, html};

use kubemoor_declare::model::{ObjectId, ReleaseId};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;
use kubemoor_inspect::comparison::ReleaseReport;
use kubemoor_verdict::ownership::Effect;

/// Conflicts of fields that the page does not show that are named.
const NAMED: usize = 10;

/// How Helm applies the release, and whether its next upgrade fails as things are.
pub(super) fn summary(release: &Release, report: &ReleaseReport) -> Markup {
    let method = match release.state.apply_method {
        ApplyMethod::ServerSide => "server-side",
        ApplyMethod::ClientSide => "client-side, by a three-way merge",
    };
    let failing: BTreeSet<(&ObjectId, String)> = report
        .conflicts
        .iter()
        .filter(|it| it.conflict.differs)
        .map(|it| (&it.object, it.conflict.path.to_string()))
        .collect();
    let has_fields = report.objects.iter().any(|object| !object.fields.is_empty());
    let is_shown = |(object, path): &&(&ObjectId, String)| {
        let fields = report.objects.iter().filter(|it| it.object == **object).flat_map(|it| &it.fields);
        let mut failing = fields.filter(|field| field.next_upgrade.is_failure());
        failing.any(|field| field.path.starts_with(&**path) || path.starts_with(&field.path))
    };
    let hidden: Vec<_> = failing.iter().filter(|it| !is_shown(it)).collect();
    let ReleaseId { namespace, name } = &release.id;
    html! {
        @if !report.objects.is_empty() || !failing.is_empty() {
            p #next-upgrade {
                "Helm applies this release " (method) ". "
                @if !failing.is_empty() {
                    "The next upgrade fails: " (failing.len())
                    @if failing.len() == 1 { " field conflicts. " } @else { " fields conflict. " }
                    "To list all conflicts: " code { "kubectl moor forecast " (name) " -n " (namespace) }
                } @else if has_fields {
                    "The fields below do not make the next upgrade fail."
                } @else {
                    "As things are, the next upgrade meets no conflict."
                }
            }
            @if !hidden.is_empty() {
                ul { @for (object, path) in hidden.iter().take(NAMED) {
                    li { code { (object.kind) "/" (object.name) } " " code { (path) } }
                } }
            }
        }
        @for left in &report.left_behind { p.quiet { "Left behind by an upgrade: " (left.text()) } }
    }
}

/// What it does to a field.
pub(super) fn effect(effect: &Effect) -> Markup {
    match effect {
        Effect::Fails(_) => html! { strong { (effect) } },
        _ => html! { (effect) },
    }
}

/// Why nothing is said about it to a visitor who may not read the release's record.
pub(super) fn unknown() -> Markup {
    html! {
        p.quiet {
            "The effect of the next upgrade and the chart values that set a field are shown only to users who may read \
             the release's record."
        }
    }
}
