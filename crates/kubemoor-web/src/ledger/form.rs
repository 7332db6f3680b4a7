//! The form that asks for rows of the ledger.
//!
//! Entry point: [`form`]. Invariant: a form that is sent as it stands asks for the same rows again. Must not read.

use maud::{Markup, html};

use super::super::address::Asked;
use super::super::html::cluster_choice;
use super::super::visitor::Visitor;
use super::SINCE;
use kubemoor_declare::model::Operation;
use kubemoor_ledger::query;

/// The operations that rows have.
const OPERATIONS: [Operation; 3] = [Operation::Create, Operation::Update, Operation::Delete];

/// The form that holds what the address asks for; `only` is the namespace that stands for all.
pub(super) fn form(visitor: &Visitor, asked: &Asked, only: Option<&str>) -> Markup {
    let text = |label: &str, name: &str, hint: &str| {
        html! { label { (label) input name=(name) value=[asked.get(name)] placeholder=(hint); } }
    };
    let verdicts: Vec<_> = asked.all("verdict").filter_map(|it| query::parse_verdict(it).ok()).collect();
    let operations = asked.all("operation").filter_map(|it| query::parse_operation(it).ok());
    let operations: Vec<_> = operations.map(Operation::as_str).collect();
    html! {
        form.filter method="get" action="ledger" role="search" {
            (text("Namespace", "namespace", only.unwrap_or("all")))
            (text("Release", "release", "all"))
            (text("Object", "object", "deployment/web"))
            (text("User", "by", "all"))
            (choice("Verdict", "verdict", &query::verdicts().collect::<Vec<_>>(), &verdicts))
            (choice("Operation", "operation", &OPERATIONS.map(Operation::as_str), &operations))
            (text("Since", "since", SINCE))
            (text("Until", "until", "now"))
            @if visitor.shared.is_some() { (text("Cluster", "cluster", "all")) }
            (cluster_choice(visitor, asked))
            button { "Show" }
        }
    }
}

/// Any number of values of one name, each with a box.
fn choice(label: &str, name: &str, values: &[&str], asked: &[&str]) -> Markup {
    let chosen: Vec<&str> = values.iter().copied().filter(|value| asked.contains(value)).collect();
    html! {
        details.choice id=(format!("choose-{name}")) {
            summary { (label) ": " @if chosen.is_empty() { "all" } @else { (chosen.join(", ")) } }
            fieldset {
                legend.hidden { (label) }
                @for value in values {
                    label { input type="checkbox" name=(name) value=(value) checked[chosen.contains(value)]; (value) }
                }
            }
        }
    }
}
