//! The list of exceptions, and the actions of a visitor: [`confirm`] shows what an action will do, [`carry_out`] does
//! it, [`ask`] is the form for a new exception.
//!
//! Nothing is written before a form with the visitor's token is sent, and the API server authorizes the write. Values
//! come from the comparison, which masks those of Secrets.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::access_control::SentForm;
use super::html::{self as write, PageFrame, PageLink, PageQuery, pagination, sections};
use super::visitor::{VisitedCluster, Visitor};
use kubemoor_cluster::client::guarded::{self, UserSetting};
use kubemoor_declare::model::{DriftMode, NamedObject, ReleaseId};
use kubemoor_inspect::comparison::{self, ObjectDiff, ReleaseDiff};
use kubemoor_inspect::comparison::{FieldDiff, ObjectDiffState as ObjectState};
use kubemoor_inspect::exceptions::{self, Allowed, ExceptionPlan};
use kubemoor_inspect::exceptions::{AllowanceState as ExceptionState, ListedAllowance};
use kubemoor_inspect::failure::{InspectError, describe_release, failed};
use kubemoor_inspect::guard;
use kubemoor_inspect::reading::LeaseCache;
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::guarded::Suspension;
use kubemoor_policy::resource::MAX_PATHS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserAction {
    Reconcile,
    Suspend,
    Resume,
    Allow,
    Revoke,
}

/// The actions: their names in addresses, and their labels on pages.
const ACTIONS: [(&str, UserAction, &str); 5] = [
    ("reconcile", UserAction::Reconcile, "Repair now"),
    ("suspend", UserAction::Suspend, "Pause repairs"),
    ("resume", UserAction::Resume, "Resume repairs"),
    ("allow", UserAction::Allow, "Make an exception"),
    ("revoke", UserAction::Revoke, "End an exception"),
];

pub(super) async fn confirm(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let page = confirmation(&visitor, &asked).await;
    page.unwrap_or_else(|error| write::failure(&visitor, "releases", &error))
}

pub(super) async fn carry_out(
    Extension(visitor): Extension<Arc<Visitor>>,
    SentForm(asked): SentForm,
) -> Response {
    let page = done(&visitor, &asked).await;
    page.unwrap_or_else(|error| write::failure(&visitor, "releases", &error))
}

pub(super) async fn ask(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let cluster = match visitor.cluster(&asked) {
        Ok(cluster) => cluster,
        Err(error) => return write::failure(&visitor, "exceptions", &error),
    };
    let paths: Vec<_> = asked.all("path").collect();
    PageFrame::still(&visitor, "Make an exception", "exceptions").around(&html! {
        h1 { "Make an exception" }
        p { "The object may differ from its release in these fields until the exception ends." }
        @if let Some(all) = asked.get("drifting") {
            p.note { "These are " (paths.len()) " of the " (all) " fields that drift: an exception has " (MAX_PATHS) " fields at most." }
        }
        form.sheet method="get" action="act" {
            input type="hidden" name="do" value="allow";
            input type="hidden" name="cluster" value=(cluster.name);
            label { "Namespace" input name="namespace" required value=[asked.get("namespace")]; }
            label { "Object" input name="object" required value=[asked.get("object")] placeholder="deployment/web"; }
            label { "Fields, one a line: paths, * for all, delete"
                textarea name="path" rows=(paths.len().clamp(3, 12)) required { (paths.join("\n")) }
            }
            label { "For how long" input name="for" required value=(asked.get("for").unwrap_or("2h")); }
            label { "Reason" input name="reason" value=[asked.get("reason")]; }
            button { "Continue" }
        }
    })
}

/// The requested action, and its label on pages.
fn action(asked: &PageQuery) -> Result<(UserAction, &'static str), InspectError> {
    let found = ACTIONS.iter().find(|(name, ..)| asked.get("do") == Some(*name));
    let (_, order, title) =
        found.ok_or_else(|| InspectError::InvalidInput("this address names no action".to_owned()))?;
    Ok((*order, *title))
}

async fn confirmation(visitor: &Visitor, asked: &PageQuery) -> Result<Response, InspectError> {
    let ((order, title), cluster) = (action(asked)?, visitor.cluster(asked)?);
    let (what, fields) = match order {
        UserAction::Allow => {
            let (plan, until) = plan(cluster, asked).await?;
            (permission(&plan)?, vec![("until", until.to_string())])
        }
        UserAction::Reconcile => (repair(cluster, &named(asked)?).await, Vec::new()),
        UserAction::Suspend => (pause(&named(asked)?), Vec::new()),
        UserAction::Resume => (resumption(cluster, &named(asked)?).await, Vec::new()),
        UserAction::Revoke => {
            let (what, uid) = revocation(cluster, &named(asked)?, asked.get("uid"), Timestamp::now()).await?;
            (what, vec![("uid", uid)])
        }
    };
    let kept = ["cluster", "namespace", "name", "object", "path", "reason"];
    Ok(PageFrame::still(visitor, title, page_of(order)).around(&html! {
        h1 { (title) }
        (what)
        @if visitor.has_several() { p.quiet { "Cluster " (cluster.name) } }
        form.sheet method="post" action="act" {
            (write::token(visitor))
            input type="hidden" name="do" value=(asked.get("do").unwrap_or_default());
            @for name in kept { @for value in asked.all(name) { (write::hidden_field(name, value)) } }
            @for (name, value) in &fields { (write::hidden_field(name, value)) }
            p.actions {
                button autofocus { (title) }
                a href=(back(order, cluster, asked)) { "Cancel" }
            }
        }
    }))
}

fn page_of(order: UserAction) -> &'static str {
    if matches!(order, UserAction::Allow | UserAction::Revoke) { "exceptions" } else { "releases" }
}

fn back(order: UserAction, cluster: &VisitedCluster, asked: &PageQuery) -> String {
    match (order, asked.release()) {
        (UserAction::Reconcile | UserAction::Suspend | UserAction::Resume, Some(release)) => {
            PageLink::to_release(&cluster.name, &release).text()
        }
        _ => PageLink::to("exceptions").text(),
    }
}

fn named(asked: &PageQuery) -> Result<ReleaseId, InspectError> {
    asked
        .release()
        .ok_or_else(|| InspectError::InvalidInput("this address names nothing to act on".to_owned()))
}

/// The requested exception, and until when it lasts.
async fn plan(
    cluster: &VisitedCluster,
    asked: &PageQuery,
) -> Result<(ExceptionPlan, Timestamp), InspectError> {
    let now = Timestamp::now();
    let wrong = |what: String| InspectError::InvalidInput(what);
    let missing = |what: &str| InspectError::InvalidInput(format!("this address names no {what}"));
    let object: Result<NamedObject, &str> = asked.get("object").ok_or_else(|| missing("object"))?.parse();
    let object = object.map_err(|error| wrong(error.to_owned()))?;
    let until = match (asked.get("until"), asked.get("for")) {
        (Some(until), _) => {
            until.parse().map_err(|error| wrong(format!("{until:?} is not a time: {error}")))?
        }
        (None, Some(length)) => {
            let length = parse_duration(length).map_err(wrong)?;
            let end = now.checked_add(length).map_err(|_| wrong("that is too long".to_owned()))?;
            // Whole seconds are easier to read.
            Timestamp::from_second(end.as_second()).unwrap_or(end)
        }
        (None, None) => return Err(missing("end")),
    };
    let paths: Vec<_> = asked.all("path").flat_map(str::split_whitespace).map(str::to_owned).collect();
    let connection = cluster.connection().await?;
    let namespace = asked.get("namespace").unwrap_or(&connection.namespace);
    let reason = asked.get("reason");
    Ok((exceptions::plan(connection, &object, namespace, &paths, until, reason, now).await?, until))
}

/// Performs the action and shows its result.
async fn done(visitor: &Visitor, asked: &PageQuery) -> Result<Response, InspectError> {
    let ((order, title), cluster) = (action(asked)?, visitor.cluster(asked)?);
    let connection = cluster.connection().await?;
    let mut is_done = true;
    let (said, warnings) = match order {
        UserAction::Allow => {
            let Allowed { object, paths, until, unchecked, .. } =
                plan(cluster, asked).await?.0.make(connection).await?;
            let said = format!("{} of {object} may change until {until}.", paths.join(", "));
            (said, unchecked.into_iter().collect())
        }
        UserAction::Revoke => {
            let ReleaseId { namespace, name } = named(asked)?;
            let uid = asked.get("uid").ok_or_else(|| {
                InspectError::InvalidInput(
                    "this form names no exception that was shown: nothing was ended".to_owned(),
                )
            })?;
            exceptions::end_one(connection, &namespace, &name, uid).await?;
            (format!("The exception {name} has ended."), Vec::new())
        }
        UserAction::Reconcile => {
            let release = named(asked)?;
            let pulses = LeaseCache::new(connection.client.clone());
            let given = guard::reconcile(connection, &pulses, &release).await?;
            is_done = given.answered.is_accepted();
            (given.answered.text(&release), given.warnings)
        }
        UserAction::Suspend | UserAction::Resume => {
            let release = named(asked)?;
            let (setting, doing, said) = match order {
                UserAction::Suspend => {
                    let setting = UserSetting::Suspend(Suspension::default());
                    (setting, "suspend the release", "Nothing in it is repaired until repairs are resumed")
                }
                _ => (UserSetting::Resume, "resume the release", "Repairs go on"),
            };
            let warnings = guard::set(connection, &release, &setting, doing).await?;
            (format!("Release {}: {said}.", describe_release(&release)), warnings)
        }
    };
    Ok(PageFrame::still(visitor, title, page_of(order)).around(&html! {
        h1 { (title) }
        p class=(if is_done { "done" } else { "note" }) role="status" { (said) }
        @for warning in &warnings { p.note { (warning) } }
        p { a href=(back(order, cluster, asked)) { "Back" } }
    }))
}

fn permission(plan: &ExceptionPlan) -> Result<Markup, InspectError> {
    let text = serde_saphyr::to_string(&plan.resource)
        .map_err(|error| InspectError::InvalidInput(format!("the exception cannot be shown: {error}")))?;
    Ok(html! {
        p {
            "Until " strong { (plan.resource.spec.until) } " these fields of " strong { (plan.object) }
            " may differ from its release: " @for path in &plan.resource.spec.paths { code { (path) } " " }
        }
        @if let Some(unchecked) = &plan.unchecked { p.note { (unchecked) } }
        p { "This object is created:" }
        pre tabindex="0" { (text) }
    })
}

fn pause(release: &ReleaseId) -> Markup {
    html! {
        p {
            "The guard stops repairing release " strong { (describe_release(release)) }
            ". Changes by others are judged as before. Drift stays until repairs are resumed."
        }
    }
}

async fn repair(cluster: &VisitedCluster, release: &ReleaseId) -> Markup {
    html! {
        p { "The guard compares release " strong { (describe_release(release)) } " now and repairs all drift, regardless of its policies." }
        (drifting(compare(cluster, release).await, true))
    }
}

async fn resumption(cluster: &VisitedCluster, release: &ReleaseId) -> Markup {
    let (mode, compared) = tokio::join!(mode(cluster, release), compare(cluster, release));
    html! {
        p { "The guard repairs drift of release " strong { (describe_release(release)) } " again, as its policies say." }
        @match mode {
            Ok(mode) => {
                @let is_repaired = mode == format!("{:?}", DriftMode::Repair);
                @if is_repaired {
                    p { "Their mode for drift is Repair: the guard repairs what drifts. It repairs roles and cluster-scoped objects only if a policy names them." }
                } @else {
                    p { "Their mode for drift is " strong { (mode) } ": the guard does not repair it." }
                }
                (drifting(compared, is_repaired))
            }
            Err(error) => {
                p.note { "Their mode for drift cannot be shown: " (error) }
                (drifting(compared, false))
            }
        }
    }
}

/// What ending an exception does, and the uid of the exception: the one that was `shown` if it came from a list.
async fn revocation(
    cluster: &VisitedCluster,
    exception: &ReleaseId,
    shown: Option<&str>,
    now: Timestamp,
) -> Result<(Markup, String), InspectError> {
    let ReleaseId { namespace, name } = exception;
    let read = exceptions::one(cluster.connection().await?, namespace, name, now).await;
    let (read, uid) = match (read, shown) {
        (Ok(row), Some(shown)) if row.uid != shown => return Err(exceptions::gone(namespace, name, true)),
        (Ok(row), _) => {
            let uid = row.uid.clone();
            (Ok(row), uid)
        }
        // Some users may delete an exception but not read it.
        (Err(error), Some(shown)) if error.is_forbidden() => (Err(error), shown.to_owned()),
        (Err(error), _) => return Err(error),
    };
    let what = html! {
        p { "The exception " strong { (name) } " in namespace " (namespace) " ends now." }
        @match read {
            Ok(row) => (ended(&row, now)),
            Err(error) => p.note { "What it allows cannot be shown: " (error) },
        }
        p { "From then on the policy judges these fields again, and differences that the exception allowed count as drift." }
    };
    Ok((what, uid))
}

fn ended(row: &ListedAllowance, now: Timestamp) -> Markup {
    let ListedAllowance { object, paths, until, state, by, reason, .. } = row;
    html! {
        dl.facts {
            div { dt { "Object" } dd { code { (object.kind) "/" (object.name) } } }
            div { dt { "Fields" } dd { @for path in paths { code { (path) } " " } } }
            div { dt { "Would end" } dd { (write::until(until, now)) } }
            @if !by.is_empty() { div { dt { "By" } dd { (by) } } }
            @if !reason.is_empty() { div { dt { "Reason" } dd { (reason) } } }
        }
        @if *state != ExceptionState::Open { p.note { "It has no effect now." } }
    }
}

async fn mode(cluster: &VisitedCluster, release: &ReleaseId) -> Result<String, InspectError> {
    let connection = cluster.connection().await?;
    let read = guarded::get(&connection.client, release).await;
    let read = read.map_err(|error| failed(connection, "read the GuardedRelease", error))?;
    let status = read.and_then(|it| it.status);
    let unknown = || InspectError::InvalidInput("the guard has not checked the release yet".to_owned());
    status.map(|status| status.drift).filter(|mode| !mode.is_empty()).ok_or_else(unknown)
}

async fn compare(cluster: &VisitedCluster, release: &ReleaseId) -> Result<ReleaseDiff, InspectError> {
    let reader = cluster.reader().await?;
    let read = reader.release(release).await?;
    Ok(comparison::compare(&reader, &read, false, Timestamp::now(), &|| ()).await)
}

/// The current drift, and the changes that a repair would make.
fn drifting(compared: Result<ReleaseDiff, InspectError>, is_repaired: bool) -> Markup {
    let report = match compared {
        Ok(report) => report,
        Err(error) => return html! { p.note { "The current drift cannot be shown: " (error) } },
    };
    let is_drift = |it: &&ObjectDiff| {
        matches!(it.state, ObjectState::Drifted | ObjectState::Missing | ObjectState::Ownership)
    };
    let drifted: Vec<_> = report.objects.iter().filter(is_drift).collect();
    html! {
        @if drifted.is_empty() { p { "Nothing drifts now." } } @else {
            p { "These objects drift now:" }
            ul {
                @for object in drifted {
                    li {
                        code { (object.object.kind) "/" (object.object.name) }
                        @if object.state == ObjectState::Missing {
                            @if is_repaired { " is created again" } @else { " is missing" }
                        }
                        @for field in &object.fields { (change(field, is_repaired)) }
                    }
                }
            }
        }
    }
}

fn change(field: &FieldDiff, is_repaired: bool) -> Markup {
    html! {
        div.change {
            code { (field.path) } ": "
            code.live { (field.live.as_ref().map_or("absent", |value| value.as_str())) }
            @if is_repaired { " becomes " } @else { " instead of " }
            code.declared { (field.declared.as_ref().map_or("as declared", |value| value.as_str())) }
        }
    }
}

const MOST: usize = 300;

pub(super) async fn list(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let asked = &asked;
    let read = visitor.each(asked, |cluster| exceptions_of(cluster, asked, now)).await;
    PageFrame::live(&visitor, "Exceptions", "exceptions").narrowed(asked).around(&html! {
        h1 { "Exceptions" }
        form.filter method="get" action="exceptions" role="search" {
            (write::text_field(asked, "Namespace", "namespace", "all"))
            button { "Show" }
        }
        (sections(&visitor, &read))
    })
}

/// A table of exceptions, at most one page of them. Those in the namespaces `ends` have a link to end them.
pub(super) fn exceptions_table(
    cluster: &VisitedCluster,
    rows: &[ListedAllowance],
    ends: &BTreeSet<String>,
    now: Timestamp,
) -> Markup {
    let shown = rows.iter().take(MOST);
    let has_ends = shown.clone().any(|row| ends.contains(&row.namespace));
    html! {
        @if rows.is_empty() { p.quiet { "There are no exceptions." } } @else {
            @let columns = html! {
                (write::heads(&["Object", "Fields", "Ends", "State", "By", "Reason"]))
                @if has_ends { th scope="col" { span.hidden { "Action" } } }
            };
            @let lines = html! {
                @for row in shown {
                    tr {
                        (exception_line(row, now))
                        @if has_ends { td { @if ends.contains(&row.namespace) { (end_link(cluster, row)) } } }
                    }
                }
            };
            (write::table(&format!("Exceptions of {}", cluster.name), &columns, &lines))
            @if rows.len() > MOST {
                p { a href=(PageLink::to("exceptions").with("cluster", &cluster.name).text()) { "and " (rows.len() - MOST) " more exceptions" } }
            }
        }
    }
}

async fn exceptions_of(
    cluster: &VisitedCluster,
    asked: &PageQuery,
    now: Timestamp,
) -> Result<Markup, InspectError> {
    let connection = cluster.connection().await?;
    let mut only = None;
    let mut rows = match exceptions::read(connection, asked.get("namespace"), None, now).await {
        // A visitor who may not list all namespaces sees the connection's own.
        Err(error) if error.is_forbidden() && asked.get("namespace").is_none() => {
            only = Some(connection.namespace.clone());
            exceptions::read(connection, only.as_deref(), None, now).await
        }
        read => read,
    }?;
    let page = asked.page("page", rows.len(), MOST);
    rows = rows.into_iter().skip((page.0 - 1) * MOST).take(MOST).collect();
    let namespaces = rows.iter().map(|row| row.namespace.clone()).collect();
    let ends = cluster.ends(namespaces).await;
    let turned = |page: usize| {
        let link = asked.link("exceptions").set("cluster", Some(&cluster.name));
        link.set("page", Some(&page.to_string())).text()
    };
    Ok(html! {
        @if let Some(only) = &only { p.note { (write::only(only)) } }
        (exceptions_table(cluster, &rows, &ends, now))
        (pagination(&format!("Pages of exceptions of {}", cluster.name), page, turned))
    })
}

fn end_link(cluster: &VisitedCluster, row: &ListedAllowance) -> Markup {
    let revoke = PageLink::to("act")
        .with("do", "revoke")
        .with("cluster", &cluster.name)
        .with("uid", &row.uid)
        .with("namespace", &row.namespace)
        .with("name", &row.name);
    html! { a href=(revoke.text()) { "End" span.hidden { " the exception " (row.name) } } }
}

fn exception_line(row: &ListedAllowance, now: Timestamp) -> Markup {
    let (class, state) = match row.state {
        ExceptionState::Open => ("good", "Open"),
        ExceptionState::Ended => ("doubt", "Ended"),
        ExceptionState::Invalid => ("bad", "Invalid"),
        ExceptionState::Deleted => ("doubt", "Deleted"),
    };
    html! {
        th scope="row" { (row.object.kind) "/" (row.object.name) span.quiet { (row.namespace) } }
        td.name { @for path in &row.paths { code { (path) } " " } }
        td { (write::until(&row.until, now)) }
        td { (write::mark(class, state)) @for flaw in &row.flaws { " " (flaw) } }
        td { (row.by) }
        td.message { (row.reason) }
    }
}
