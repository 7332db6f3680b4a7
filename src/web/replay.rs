//! Recorded changes, judged by other policies: what would have been refused, day by day.
//!
//! Entry points: [`page`] for the policies of the cluster, [`pasted`] for those of a form. Invariant: the verdicts are
//! those of `kubemoor policy replay`; no request judges more than so many rows, for so long, and it says where it
//! stopped.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use axum::response::Response;
use axum::{Extension, Form};
use clap::ValueEnum as _;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};
use tokio::time::Instant;

use super::address::{Asked, Link};
use super::cluster::Cluster;
use super::html::{self as write, Frame, trouble};
use super::visitor::Visitor;
use crate::inspect::chart::{self, DayCounts};
use crate::inspect::failure::{Failure, failed};
use crate::inspect::ledger::{Source, place};
use crate::inspect::reading::OPERATION_TIMEOUT;
use crate::inspect::replay::{Changed, Day, REFUSED, Report, Tally};
use crate::inspect::times::Moment;
use crate::ledger::query::{Filter, PAGE};
use crate::mirror::policies::once;
use crate::model::{DriftMode, EditsMode};
use crate::policy::Policy;
use crate::policy::compile::Compiled;
use crate::policy::read;
use crate::verdict::replay::Replay;

/// Since when changes are judged, where nothing else is asked for.
const SINCE: &str = "7d";

/// The most rows that one request judges, and for how long. `kubemoor policy replay` has no such bounds.
const ROWS: u64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(40);

/// Changed verdicts that are listed.
const LISTED: usize = 100;

/// Days that are drawn.
const DAYS: usize = 92;

/// The verdicts of a change that passed.
const PASSED: [&str; 3] = ["Allow", "Record", "Warn"];

/// What a replay has found, and of which policies.
struct Found {
    report: Report,
    /// Until where rows were judged, where not all were.
    stopped: Option<Timestamp>,
    policies: Vec<String>,
}

/// The page, with a replay by the policies of the cluster where a time is asked for.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    answer(&visitor, &Asked::of(query)).await
}

/// A replay by policies that were pasted.
pub(super) async fn pasted(
    Extension(visitor): Extension<Arc<Visitor>>,
    Form(form): Form<Vec<(String, String)>>,
) -> Response {
    let asked = Asked::of(form);
    if !visitor.is_form_token(asked.get("token").unwrap_or_default()) {
        return write::refuse_form();
    }
    answer(&visitor, &asked).await
}

async fn answer(visitor: &Visitor, asked: &Asked) -> Response {
    let found = match asked.get("since") {
        Some(since) => Some(replay(visitor, asked, since).await),
        None => None,
    };
    Frame::still(visitor, "Replay", "replay").around(&html! {
        h1 { "Replay" }
        p { "What would other policies have done with the changes that the ledger has recorded?" }
        @match &found {
            None => {},
            Some(Ok((cluster, found))) => (shown(cluster, found)),
            Some(Err(error)) => (trouble(&error.to_string())),
        }
        (forms(visitor, asked))
    })
}

async fn replay<'v>(
    visitor: &'v Visitor,
    asked: &Asked,
    since: &str,
) -> Result<(&'v Cluster, Found), Failure> {
    let cluster = match (asked.get("cluster"), visitor.clusters.first()) {
        (None, Some(first)) => first,
        _ => visitor.cluster(asked)?,
    };
    let now = Timestamp::now();
    let time = |name: &str, text: &str| {
        let moment: Result<Moment, _> = text.parse();
        let moment = moment.map_err(|error| Failure::Named(format!("{name}: {error}")))?;
        Ok::<_, Failure>(moment.time(now))
    };
    let since = time("since", since)?;
    let filter = Filter {
        namespace: asked.get("namespace").map(str::to_owned),
        release: asked.get("release").map(str::to_owned),
        since: Some(since),
        until: asked.get("until").map(|text| time("until", text)).transpose()?,
        facts: true,
        limit: Some(PAGE),
        ..Filter::default()
    };
    let accepted = match asked.get("policies") {
        Some(text) => of_text(text)?,
        None => of_cluster(cluster).await?,
    };
    let edits = asked.get("edits").map_or(Ok(EditsMode::Warn), parse_edits)?;
    let names = accepted.iter().map(|policy| policy.name.clone()).collect();
    let mut replay = Replay::new(Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT), accepted);
    let mut tally = Tally::new(since);
    let stopped = judge(cluster.ledger().await?, filter, &mut replay, &mut tally).await?;
    Ok((&**cluster, Found { report: tally.finish(), stopped, policies: names }))
}

/// Judges the rows; where it stopped, if that was before the end.
async fn judge(
    source: &Source,
    mut filter: Filter,
    replay: &mut Replay,
    tally: &mut Tally,
) -> Result<Option<Timestamp>, Failure> {
    let (began, mut rows) = (Instant::now(), 0);
    loop {
        let page = source.page(&filter).await?;
        page.items.iter().for_each(|entry| tally.add(replay, entry));
        rows += page.items.len() as u64;
        let Some(next) = &page.next else { return Ok(None) };
        if rows >= ROWS || began.elapsed() >= PATIENCE {
            return Ok(page.items.last().map(|entry| entry.time));
        }
        filter.before = Some(place(next)?);
    }
}

fn parse_edits(text: &str) -> Result<EditsMode, Failure> {
    EditsMode::from_str(text, false)
        .map_err(|_| Failure::Named(format!("there is no mode {text:?} of edits")))
}

/// The policies of a form.
fn of_text(text: &str) -> Result<Vec<Arc<Compiled>>, Failure> {
    let (accepted, flawed) = read::read([("the form", text)]);
    match flawed.first() {
        None if accepted.is_empty() => Err(Failure::Named("there is no DriftPolicy in the form".to_owned())),
        None => Ok(accepted),
        Some(flaw) => Err(Failure::Named(format!("these policies are not accepted: {flaw}"))),
    }
}

/// The valid policies of the cluster; the page of policies says what is wrong with others.
async fn of_cluster(cluster: &Cluster) -> Result<Vec<Arc<Compiled>>, Failure> {
    let connection = cluster.connection().await?;
    let read = once::policies(&connection.client).await;
    read.map_err(|error| failed(connection, "list the policies", error))
}

fn shown(cluster: &Cluster, Found { report, stopped, policies }: &Found) -> Markup {
    let rows = || Link::to("ledger").with("cluster", &cluster.name);
    let all = rows().with("since", &report.since.to_string()).text();
    html! {
        section {
            p.quiet {
                @if policies.is_empty() { "No policy: one mode of edits holds for every release." }
                @else { "By " (policies.join(", ")) "." }
            }
            @if let Some(stopped) = stopped {
                p.note {
                    "Only changes since " (stopped.strftime("%Y-%m-%dT%H:%M:%SZ")) " are judged: there are more than one page \
                     judges. " code { "kubemoor policy replay" } " judges all."
                }
            }
            dl.facts {
                div { dt { "Changes" } dd { a href=(all) { (report.edits) } } }
                div { dt { "Judged" } dd { (report.replayed) } }
                div { dt { "Passed, would be refused" } dd { a href="#days" { (report.refused) } } }
                div { dt { "Refused, would pass" } dd { a href="#days" { (report.permitted) } } }
                div {
                    dt { "Helm operations that would be refused something" }
                    dd { (report.helm_operations_touched) " of " (report.helm_operations) }
                }
            }
            @for (count, words) in report.unjudged() { p.quiet { (count) " not judged: " (words) "." } }
            (days(&rows, &report.days))
            (changes(&rows, report))
        }
    }
}

/// The days as a picture, and as a table whose numbers lead to the rows.
fn days(rows: &impl Fn() -> Link, days: &[Day]) -> Markup {
    let days: Vec<_> = days.iter().rev().take(DAYS).rev().collect();
    let counts: Vec<_> = whole(&days)
        .into_iter()
        .map(|day| DayCounts {
            label: day.date.strftime("%m-%d").to_string(),
            worse: day.refused,
            better: day.permitted,
        })
        .collect();
    let link = |date: Date, verdicts: &[&str]| {
        let link = rows().with("since", &format!("{date}T00:00:00Z"));
        let link = link.with("until", &format!("{date}T23:59:59.999999999Z"));
        verdicts.iter().fold(link, |link, verdict| link.with("verdict", verdict)).text()
    };
    html! {
        h2 #days { "Day by day" }
        @match chart::days(&counts) {
            // The crate that draws escapes what it writes.
            Ok(Some(picture)) => figure aria-hidden="true" { (maud::PreEscaped(picture)) },
            Ok(None) => p.quiet { "No verdict would change between passing and being refused." },
            Err(error) => (trouble(&error.to_string())),
        }
        @if !days.is_empty() {
            div.wide tabindex="0" role="region" aria-label="Days" {
                table {
                    thead { tr {
                        @for head in ["Day", "Changes", "Passed, would be refused", "Refused, would pass"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody { @for day in days.iter().rev() {
                        tr {
                            th scope="row" { (day.date) }
                            td.number { a href=(link(day.date, &[])) { (day.edits) } }
                            td.number { (number(day.refused, &link(day.date, &PASSED))) }
                            td.number { (number(day.permitted, &link(day.date, &REFUSED))) }
                        }
                    } }
                }
            }
        }
    }
}

/// All days from the first to the last, with those on which nothing was recorded.
fn whole(days: &[&Day]) -> Vec<Day> {
    let (Some(first), Some(last)) = (days.first(), days.last()) else { return Vec::new() };
    let dates = first.date.series(1.day()).take_while(|date| *date <= last.date).take(DAYS);
    let of = |date| days.iter().find(|day| day.date == date).map(|day| **day);
    dates.map(|date| of(date).unwrap_or(Day { date, edits: 0, refused: 0, permitted: 0 })).collect()
}

fn number(count: u64, link: &str) -> Markup {
    html! { @if count == 0 { "0" } @else { a href=(link) { (count) } } }
}

/// The verdicts that would change.
fn changes(rows: &impl Fn() -> Link, report: &Report) -> Markup {
    let more = (report.changes.len().saturating_sub(LISTED) as u64).saturating_add(report.more_changes);
    let link = |Changed { key, first, last, .. }: &Changed| {
        let end = last.checked_add(1.millisecond()).unwrap_or(*last);
        let link =
            rows().with("namespace", &key.namespace).with("release", &key.release).with("by", &key.user);
        let link = link.with("verdict", &key.was).with("since", &first.to_string());
        link.with("until", &end.to_string()).text()
    };
    html! {
        h2 { "Verdicts that would change" }
        @if report.changes.is_empty() { p.quiet { "None." } } @else {
            div.wide tabindex="0" role="region" aria-label="Verdicts that would change" {
                table {
                    thead { tr {
                        @for head in ["Release", "User", "Field", "Was", "Would be", "Rule", "Changes"] {
                            th scope="col" { (head) }
                        }
                    } }
                    tbody { @for changed in report.changes.iter().take(LISTED) {
                        tr {
                            th scope="row" { (changed.key.release) span.quiet.below { (changed.key.namespace) } }
                            td { (changed.key.user) }
                            td { (changed.key.kind) " " code { (changed.key.field) } }
                            td { (changed.key.was) }
                            td { span class=(badge(changed.key.now)) { (changed.key.now) } }
                            td { (changed.key.rule) }
                            td.number { a href=(link(changed)) { (changed.edits) } }
                        }
                    } }
                }
            }
            @if more > 0 { p.quiet { "and " (more) " more" } }
        }
    }
}

fn badge(verdict: &str) -> &'static str {
    if REFUSED.contains(&verdict) { "badge bad" } else { "badge good" }
}

fn forms(visitor: &Visitor, asked: &Asked) -> Markup {
    html! {
        form.sheet method="get" action="replay" {
            h2 { "By the policies of the cluster" }
            (window(visitor, asked))
            button { "Replay by the cluster's policies" }
        }
        form.sheet method="post" action="replay" {
            h2 { "By other policies" }
            (write::token(visitor))
            (window(visitor, asked))
            label { "DriftPolicies as YAML"
                textarea name="policies" rows="12" required spellcheck="false" { (asked.get("policies").unwrap_or_default()) }
            }
            // Without its script the page has the field alone.
            label.script { "or a file of them" input type="file" accept=".yaml,.yml,.json" data-into="policies"; }
            button { "Replay by these policies" }
        }
    }
}

fn window(visitor: &Visitor, asked: &Asked) -> Markup {
    html! {
        label { "Since" input name="since" required value=(asked.get("since").unwrap_or(SINCE)); }
        label { "Until" input name="until" value=[asked.get("until")] placeholder="now"; }
        label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder="all"; }
        label { "Release" input name="release" value=[asked.get("release")] placeholder="all"; }
        label { "Edits, where no policy says otherwise"
            select name="edits" {
                @for mode in EditsMode::value_variants() {
                    @let name = format!("{mode:?}");
                    option value=(name) selected[asked.get("edits").unwrap_or("Warn") == name] { (name) }
                }
            }
        }
        @if visitor.has_several() {
            label { "Cluster"
                select name="cluster" {
                    @for cluster in &visitor.clusters {
                        option value=(cluster.name) selected[asked.get("cluster") == Some(&cluster.name)] { (cluster.name) }
                    }
                }
            }
        }
    }
}
