//! Judges recorded changes by other policies: what would have been denied.
//!
//! The verdicts are those of `kubemoor policy replay`. A request is limited in rows and time, and the page shows where
//! it stopped.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Response;
use clap::ValueEnum as _;
use jiff::{Timestamp, ToSpan as _};
use maud::{Markup, html};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::access_control::PageRequest;
use super::html::{self as write, PageFrame, PageLink, PageQuery, notes, text_field, trouble};
use super::ledger::{FirstRows, VisitorLedger};
use super::visitor::{VisitedCluster, Visitor};
use kubemoor_cluster::mirror::policies;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_inspect::failure::{InspectError, failed};
use kubemoor_inspect::ledger::{add_new, parse_position};
use kubemoor_inspect::reading::OPERATION_TIMEOUT;
use kubemoor_inspect::replay::{ChangedVerdict, REFUSED, ReplayReport, ReplayRun};
use kubemoor_ledger::query::{self, EDITS, EntryPage, Filter, PAGE};
use kubemoor_policy::compile::CompiledPolicy;
use kubemoor_policy::{Policy, compile};

/// The default start of the time range.
const SINCE: &str = "7d";

/// The limits of one request. `kubemoor policy replay` has none.
const ROWS: u64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(40);

/// The replays that run at one time, each on its own thread, and how long others wait for a turn.
static REPLAYS: Semaphore = Semaphore::const_new(2);
const TURN: Duration = Duration::from_secs(10);

/// Maximum number of changed verdicts that are listed.
const LISTED: usize = 1000;

struct ReplayResult {
    /// Whether the rows can be of several clusters, by the names that the ledger has for them.
    is_shared: bool,
    /// The filter of the judged rows.
    filter: Filter,
    report: ReplayReport,
    /// The time of the oldest judged row, if not all rows were judged.
    stopped: Option<Timestamp>,
    /// Messages about ledgers whose rows are missing.
    missing: Vec<String>,
    policies: Vec<String>,
    /// The only namespace whose rows were judged, if the user did not choose it.
    only: Option<String>,
}

/// The page, with a replay if a start time is given: by the pasted policies, or by those of the cluster.
pub(super) async fn page(
    Extension(visitor): Extension<Arc<Visitor>>,
    PageRequest(asked): PageRequest,
) -> Response {
    let (visitor, asked) = (&*visitor, &asked);
    let found = match asked.get("since") {
        Some(_) => Some(replay(visitor, asked).await),
        None => None,
    };
    let only = found.as_ref().and_then(|found| found.as_ref().ok()?.only.as_deref());
    PageFrame::still(visitor, "Replay", "replay").around(&html! {
        h1 { "Replay" }
        p { "What would other policies have done with the changes that the ledger has recorded?" }
        @match &found {
            None => {},
            Some(Ok(found)) => (found.shown()),
            Some(Err(error)) => (trouble(&error.to_string())),
        }
        (forms(visitor, asked, only))
    })
}

async fn replay(visitor: &Visitor, asked: &PageQuery) -> Result<ReplayResult, InspectError> {
    let began = Instant::now();
    let now = Timestamp::now();
    let since = asked.time("since", Some(SINCE), now)?.unwrap_or(now);
    let filter = Filter {
        cluster: asked.get("cluster").map(str::to_owned),
        namespace: asked.get("namespace").map(str::to_owned),
        release: asked.get("release").map(str::to_owned),
        since: Some(since),
        until: asked.time("until", None, now)?,
        verdicts: EDITS.map(str::to_owned).into(),
        facts: true,
        limit: Some(PAGE),
        ..Filter::default()
    };
    let accepted = match asked.get("policies") {
        Some(text) => parse_policies(text)?,
        // A shared ledger has no cluster to read policies from.
        None if visitor.shared.is_some() => Vec::new(),
        None => cluster_policies(visitor.cluster(asked)?).await?,
    };
    let edits = asked.get("edits").map_or(Ok(EditsMode::Warn), |text| {
        EditsMode::from_str(text, false)
            .map_err(|_| InspectError::InvalidInput(format!("unknown edits mode {text:?}")))
    })?;
    let policies = accepted.iter().map(|policy| policy.name.clone()).collect();
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let turn = timeout(TURN, REPLAYS.acquire()).await.ok().and_then(Result::ok);
    let busy = || InspectError::InvalidInput("other replays are running: try again in a minute".to_owned());
    let _turn = turn.ok_or_else(busy)?;
    let ledger = visitor.ledger(asked).await?;
    let FirstRows { page, filter, only } = ledger.begin(filter).await?;
    let judging = ReplayRun::new(defaults, accepted, since);
    let (stopped, missing) = judge(&ledger, (page, filter.clone()), &judging, began).await?;
    let report = judging.report();
    let is_shared = visitor.shared.is_some();
    Ok(ReplayResult { is_shared, filter, report, stopped, missing, policies, only })
}

/// Judges rows, newest first, up to the limits. Returns the time at which it stopped early, and the missing rows.
async fn judge(
    ledger: &VisitorLedger,
    (mut page, mut filter): (EntryPage, Filter),
    judging: &ReplayRun,
    began: Instant,
) -> Result<(Option<Timestamp>, Vec<String>), InspectError> {
    let (mut rows, mut missing) = (0, Vec::new());
    loop {
        rows += page.items.len() as u64;
        let last = page.items.last().map(|entry| entry.time).filter(|_| page.next.is_some());
        add_new(&mut missing, page.missing);
        let Some(next) = page.next.filter(|_| rows < ROWS && began.elapsed() < PATIENCE) else {
            judging.add(page.items).await?;
            return Ok((last, missing));
        };
        filter.before = Some(parse_position(&next)?);
        let (following, judged) = tokio::join!(ledger.source.page(&filter), judging.add(page.items));
        judged?;
        page = following?;
    }
}

fn parse_policies(text: &str) -> Result<Vec<Arc<CompiledPolicy>>, InspectError> {
    let (accepted, flawed) = compile::read([("the form", text)]);
    match flawed.first() {
        None if accepted.is_empty() => {
            Err(InspectError::InvalidInput("there is no DriftPolicy in the form".to_owned()))
        }
        None => Ok(accepted),
        Some(flaw) => Err(InspectError::InvalidInput(format!("these policies are not accepted: {flaw}"))),
    }
}

/// The valid policies of the cluster; the page of policies shows what is wrong with others.
async fn cluster_policies(cluster: &VisitedCluster) -> Result<Vec<Arc<CompiledPolicy>>, InspectError> {
    let connection = cluster.connection().await?;
    let read = policies::read_policies(&connection.client).await;
    read.map_err(|error| failed(connection, "list the policies", error))
}

fn forms(visitor: &Visitor, asked: &PageQuery, only: Option<&str>) -> Markup {
    html! {
        form.sheet method="get" action="replay" {
            @let (head, action) = match visitor.shared.is_some() {
                true => ("By one mode of edits for all releases", "Replay by this mode"),
                false => ("By the policies of the cluster", "Replay by the cluster's policies"),
            };
            h2 { (head) }
            (window(visitor, asked, only))
            button { (action) }
        }
        form.sheet method="post" action="replay" {
            h2 { "By other policies" }
            (write::token(visitor))
            (window(visitor, asked, only))
            label { "DriftPolicies as YAML"
                textarea name="policies" rows="12" required spellcheck="false" { (asked.get("policies").unwrap_or_default()) }
            }
            // Without the script, only the text field works.
            label.script { "or a file of them" input type="file" accept=".yaml,.yml,.json" data-into="policies"; }
            button { "Replay by these policies" }
        }
    }
}

fn window(visitor: &Visitor, asked: &PageQuery, only: Option<&str>) -> Markup {
    html! {
        label { "Since" input name="since" required value=(asked.get("since").unwrap_or(SINCE)); }
        (text_field(asked, "Until", "until", "now"))
        (text_field(asked, "Namespace", "namespace", only.unwrap_or("all")))
        (text_field(asked, "Release", "release", "all"))
        label { "Edits, where no policy says otherwise"
            select name="edits" {
                @for mode in EditsMode::value_variants() {
                    @let name = format!("{mode:?}");
                    option value=(name) selected[asked.get("edits").unwrap_or("Warn") == name] { (name) }
                }
            }
        }
        (write::cluster_choice(visitor, asked, false))
    }
}

impl ReplayResult {
    /// A link to the rows since a time.
    fn rows_since(&self, since: Timestamp) -> PageLink {
        let Filter { cluster, namespace, release, .. } = &self.filter;
        let link = PageLink::to("ledger").set("cluster", cluster.as_deref());
        let link = link.set("namespace", namespace.as_deref()).set("release", release.as_deref());
        link.with("since", &since.to_string())
    }

    /// A link to all rows that were judged.
    fn rows(&self) -> String {
        let since = self.stopped.map_or(self.report.since, |stopped| stopped.max(self.report.since));
        let until = self.filter.until.map(|until| until.to_string());
        let link = self.rows_since(since).set("until", until.as_deref());
        query::EDITS.iter().fold(link, |link, verdict| link.with("verdict", verdict)).text()
    }

    /// A link to the rows of one changed verdict.
    fn rows_of(&self, ChangedVerdict { key, first, last, .. }: &ChangedVerdict) -> String {
        let end = last.checked_add(1.millisecond()).unwrap_or(*last);
        let link = self.rows_since(*first).with("until", &end.to_string()).with("verdict", &key.was);
        let link = if self.is_shared { link.set("cluster", Some(&key.cluster)) } else { link };
        let release = Some(key.release.as_str()).filter(|release| !release.is_empty());
        link.set("namespace", Some(&key.namespace)).set("release", release).with("by", &key.user).text()
    }

    fn shown(&self) -> Markup {
        let Self { report, stopped, missing, policies, only, .. } = self;
        let all = self.rows();
        html! {
            section {
                p.quiet {
                    @if policies.is_empty() { "No policy: one mode of edits applies to every release." }
                    @else { "By " (policies.join(", ")) "." }
                }
                @if let Some(only) = only { p.note { (write::only(only)) } }
                (notes("replay", missing))
                @if let Some(stopped) = stopped {
                    p.note {
                        "Only changes since " (write::utc(*stopped)) " are judged: there are more than one page \
                         judges. " code { "kubemoor policy replay" } " judges all."
                    }
                }
                dl.facts {
                    div { dt { "Changes" } dd { a href="#changes" { (report.edits) } } }
                    div { dt { "Rows about them" } dd { a href=(all) { (report.edits + report.repeats) } } }
                    div { dt { "Judged" } dd { a href="#unjudged" { (report.replayed) } } }
                    div { dt { "Passed, would be refused" } dd { a href="#changes" { (report.refused) } } }
                    div { dt { "Refused, would pass" } dd { a href="#changes" { (report.permitted) } } }
                }
                (self.unjudged())
                (self.changes())
            }
        }
    }

    /// The rows that were not judged, and why. They have no links, because the ledger cannot filter by these reasons.
    fn unjudged(&self) -> Markup {
        html! {
            ul.unjudged #unjudged {
                @for (count, words) in self.report.unjudged() { li { (count) " not judged: " (words) "." } }
                @if self.report.repeats > 0 {
                    li { (self.report.repeats) " judged with another row: the API server asked about one change twice." }
                }
                @if self.report.repeats == 0 && self.report.not_replayable.is_empty() { li { "All are judged." } }
            }
        }
    }

    fn changes(&self) -> Markup {
        let ReplayReport { changes, more_changes, .. } = &self.report;
        let more = u64::try_from(changes.len().saturating_sub(LISTED)).unwrap_or(u64::MAX) + more_changes;
        let columns = write::heads(&["Release", "User", "Field", "Was", "Would be", "Rule", "Changes"]);
        let badge = |verdict: &str| if REFUSED.contains(&verdict) { "bad" } else { "good" };
        let lines = html! {
            @for changed in changes.iter().take(LISTED) {
                @let key = &changed.key;
                tr {
                    th scope="row" {
                        (key.release) span.quiet.below { (key.namespace) }
                        @if self.is_shared { span.quiet.below { (key.cluster) } }
                    }
                    td { (key.user) }
                    td { (key.kind) " " code { (key.field) } }
                    td { (key.was) }
                    td { (write::mark(badge(key.now), key.now)) }
                    td { (key.rule) }
                    td.number { a href=(self.rows_of(changed)) { (changed.edits) } }
                }
            }
        };
        html! {
            h2 #changes { "Verdicts that would change" }
            @if changes.is_empty() { p.quiet { "None." } } @else {
                (write::table("Verdicts that would change", &columns, &lines))
                @if more > 0 {
                    p { a href=(self.rows()) { "and " (more) " that are not listed here, among all rows" } }
                }
            }
        }
    }
}
