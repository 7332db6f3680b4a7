//! Recorded changes, judged by other policies: what would have been refused, day by day.
//!
//! Entry points: [`page`] for the policies of the cluster, [`pasted`] for those of a form. Invariant: the verdicts are
//! those of `kubemoor policy replay`; no request judges more than so many rows, for so long, and it says where it
//! stopped.

mod found;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::response::Response;
use clap::ValueEnum as _;
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use self::found::Found;
use super::address::Asked;
use super::cluster::Cluster;
use super::door::SentForm;
use super::html::{self as write, Frame, trouble};
use super::ledger_reader::{Begun, LedgerReader};
use super::visitor::Visitor;
use kubemoor_cluster::mirror::policies::once;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::ledger::{add_new, place};
use kubemoor_inspect::reading::OPERATION_TIMEOUT;
use kubemoor_inspect::replay::{Judges, Judging};
use kubemoor_inspect::times::Moment;
use kubemoor_ledger::query::{Filter, PAGE, Page};
use kubemoor_policy::Policy;
use kubemoor_policy::compile::Compiled;
use kubemoor_policy::read;

/// Since when changes are judged, where nothing else is asked for.
const SINCE: &str = "7d";

/// The most rows that one request judges, and for how long. `kubemoor policy replay` has no such bounds.
const ROWS: u64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(40);

/// The replays that run at one time, with a thread each; others wait so long.
static REPLAYS: Semaphore = Semaphore::const_new(2);
const TURN: Duration = Duration::from_secs(10);

/// The page, with a replay by the policies of the cluster where a time is asked for.
pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    answer(&visitor, &asked).await
}

/// A replay by policies that were pasted.
pub(super) async fn pasted(
    Extension(visitor): Extension<Arc<Visitor>>,
    SentForm(asked): SentForm,
) -> Response {
    answer(&visitor, &asked).await
}

async fn answer(visitor: &Visitor, asked: &Asked) -> Response {
    let found = match asked.get("since") {
        Some(since) => Some(replay(visitor, asked, since).await),
        None => None,
    };
    let only = found.as_ref().and_then(|found| found.as_ref().ok()?.only.as_deref());
    Frame::still(visitor, "Replay", "replay").around(&html! {
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

async fn replay(visitor: &Visitor, asked: &Asked, since: &str) -> Result<Found, Failure> {
    let began = Instant::now();
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
        // No cluster is asked.
        None if visitor.shared.is_some() => Vec::new(),
        None => of_cluster(visitor.cluster(asked)?).await?,
    };
    let edits = asked.get("edits").map_or(Ok(EditsMode::Warn), parse_edits)?;
    let names = accepted.iter().map(|policy| policy.name.clone()).collect();
    let defaults = Policy::new(edits, DriftMode::Report, OPERATION_TIMEOUT);
    let _turn = turn(&visitor.replays).await?;
    let ledger = visitor.ledger(asked).await?;
    let Begun { page, filter, only } = ledger.begin(filter).await?;
    let judging = Judging::start(Judges::new(1, &defaults, &accepted), since);
    let scope = found::Scope::of(asked.get("cluster"), visitor.shared.is_some(), &filter);
    let (stopped, missing) = judge(&ledger, (page, filter), &judging, began).await?;
    Ok(Found { scope, report: judging.finish().await?, stopped, missing, policies: names, only })
}

/// A turn of the visitor whose replays these are, and one among all visitors.
async fn turn(own: &Semaphore) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'static>), Failure> {
    let both = async { Ok::<_, AcquireError>((own.acquire().await?, REPLAYS.acquire().await?)) };
    let busy = || Failure::Named("other replays run: try again in a minute".to_owned());
    timeout(TURN, both).await.ok().and_then(Result::ok).ok_or_else(busy)
}

/// Judges the rows from the first page on, until it took too long since it `began`; where it stopped, if that was before the end, and sentences about ledgers whose rows are missing.
async fn judge(
    ledger: &LedgerReader,
    (mut page, mut filter): (Page, Filter),
    judging: &Judging,
    began: Instant,
) -> Result<(Option<Timestamp>, Vec<String>), Failure> {
    let (mut rows, mut missing) = (0, Vec::new());
    loop {
        rows += page.items.len() as u64;
        let last = page.items.last().map(|entry| entry.time);
        judging.add(page.items).await;
        add_new(&mut missing, page.missing);
        let Some(next) = page.next else { return Ok((None, missing)) };
        if rows >= ROWS || began.elapsed() >= PATIENCE {
            return Ok((last, missing));
        }
        filter.before = Some(place(&next)?);
        page = ledger.page(&filter).await?;
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

fn forms(visitor: &Visitor, asked: &Asked, only: Option<&str>) -> Markup {
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
            // Without its script the page has the field alone.
            label.script { "or a file of them" input type="file" accept=".yaml,.yml,.json" data-into="policies"; }
            button { "Replay by these policies" }
        }
    }
}

fn window(visitor: &Visitor, asked: &Asked, only: Option<&str>) -> Markup {
    html! {
        label { "Since" input name="since" required value=(asked.get("since").unwrap_or(SINCE)); }
        label { "Until" input name="until" value=[asked.get("until")] placeholder="now"; }
        label { "Namespace" input name="namespace" value=[asked.get("namespace")] placeholder=(only.unwrap_or("all")); }
        label { "Release" input name="release" value=[asked.get("release")] placeholder="all"; }
        label { "Edits, where no policy says otherwise"
            select name="edits" {
                @for mode in EditsMode::value_variants() {
                    @let name = format!("{mode:?}");
                    option value=(name) selected[asked.get("edits").unwrap_or("Warn") == name] { (name) }
                }
            }
        }
        @if visitor.shared.is_some() {
            label { "Cluster" input name="cluster" value=[asked.get("cluster")] placeholder="all"; }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn second_replay_of_visitor_is_refused_and_others_run() {
        let (alice, bob, carol) = (Semaphore::new(1), Semaphore::new(1), Semaphore::new(1));
        let first = turn(&alice).await.unwrap();
        let refused = turn(&alice).await.unwrap_err().to_string();
        assert!(refused.starts_with("other replays run"), "{refused}");
        let other = turn(&bob).await.unwrap();
        // Two run already.
        assert!(turn(&carol).await.is_err());
        drop((first, other));
        assert!(turn(&alice).await.is_ok());
    }
}
