//! What the next Helm upgrade does to the fields that drift.
//!
//! Entry points: [`summary`] for the release, [`effect`] for a field, [`unknown`] where its record may not be read.
//! Invariant: the effects are those of the comparison, which finds the conflicts of `kubemoor forecast`.

use maud::{Markup, html};

use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;
use kubemoor_inspect::comparison::ReleaseReport;
use kubemoor_verdict::ownership::Effect;

/// How Helm applies the release, and whether drift makes its next upgrade fail.
pub(super) fn summary(release: &Release, report: &ReleaseReport) -> Markup {
    let method = match release.state.apply_method {
        ApplyMethod::ServerSide => "server-side",
        ApplyMethod::ClientSide => "client-side, by a three-way merge",
    };
    let fields = report.objects.iter().flat_map(|object| &object.fields);
    let failing = fields.filter(|field| field.next_upgrade.is_failure()).count();
    let ReleaseId { namespace, name } = &release.id;
    html! {
        @if !report.objects.is_empty() {
            p #next-upgrade {
                "Helm applies this release " (method) ". "
                @if failing > 0 {
                    "The next upgrade fails: " (failing) @if failing == 1 { " field conflicts. " } @else { " fields conflict. " }
                    "To list all conflicts: " code { "kubectl moor forecast " (name) " -n " (namespace) }
                } @else {
                    "The fields below do not make the next upgrade fail."
                }
            }
        }
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
