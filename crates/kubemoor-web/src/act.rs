//! What a visitor orders: [`confirm`] shows what an order will do, [`carry_out`] does it, [`ask`] asks for an exception.
//!
//! Nothing is written before a form with the visitor's token comes back; the API server decides who may. Values are shown
//! as the comparison shows them, which masks those of Secrets.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::address::{Asked, Link};
use super::cluster::Cluster;
use super::door::SentForm;
use super::html::{self as write, Frame};
use super::visitor::Visitor;
use kubemoor_cluster::client::guarded::{self, Setting};
use kubemoor_declare::model::{DriftMode, NamedObject, ReleaseId};
use kubemoor_inspect::allowances::{self, Row};
use kubemoor_inspect::comparison::object::{FieldReport, State};
use kubemoor_inspect::comparison::{self, ObjectReport, ReleaseReport};
use kubemoor_inspect::exceptions::{self, Allowed, Plan};
use kubemoor_inspect::failure::{Failure, failed, spoken};
use kubemoor_inspect::orders;
use kubemoor_inspect::pulses::Pulses;
use kubemoor_inspect::times::parse_duration;
use kubemoor_policy::resource::MAX_PATHS;
use kubemoor_policy::suspension::Suspension;

/// What can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Reconcile,
    Suspend,
    Resume,
    Allow,
    Revoke,
}

/// Shows what an order will do.
pub(super) async fn confirm(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    match confirmation(&visitor, &asked).await {
        Ok(page) => page,
        Err(error) => write::failure(&visitor, "releases", &error),
    }
}

/// Does what was confirmed.
pub(super) async fn carry_out(
    Extension(visitor): Extension<Arc<Visitor>>,
    SentForm(asked): SentForm,
) -> Response {
    match done(&visitor, &asked).await {
        Ok(page) => page,
        Err(error) => write::failure(&visitor, "releases", &error),
    }
}

/// Asks what an exception is for, and how long.
pub(super) async fn ask(Extension(visitor): Extension<Arc<Visitor>>, asked: Asked) -> Response {
    let cluster = match visitor.cluster(&asked) {
        Ok(cluster) => cluster,
        Err(error) => return write::failure(&visitor, "exceptions", &error),
    };
    let paths: Vec<_> = asked.all("path").collect();
    Frame::still(&visitor, "Make an exception", "exceptions").around(&html! {
        h1 { "Make an exception" }
        p { "The object may differ from its release at these fields until the exception ends." }
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

impl Order {
    fn asked(asked: &Asked) -> Result<Self, Failure> {
        match asked.get("do") {
            Some("reconcile") => Ok(Self::Reconcile),
            Some("suspend") => Ok(Self::Suspend),
            Some("resume") => Ok(Self::Resume),
            Some("allow") => Ok(Self::Allow),
            Some("revoke") => Ok(Self::Revoke),
            _ => Err(Failure::Named("this address names no action".to_owned())),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Reconcile => "Repair now",
            Self::Suspend => "Pause repairs",
            Self::Resume => "Resume repairs",
            Self::Allow => "Make an exception",
            Self::Revoke => "End an exception",
        }
    }
}

/// The page that shows what an order will do, with the form that gives it.
async fn confirmation(visitor: &Visitor, asked: &Asked) -> Result<Response, Failure> {
    let (order, cluster) = (Order::asked(asked)?, visitor.cluster(asked)?);
    let (what, fields) = match order {
        Order::Allow => {
            let (plan, until) = plan(cluster, asked).await?;
            (permission(&plan)?, vec![("until", until.to_string())])
        }
        Order::Reconcile => (repair(cluster, &named(asked)?).await, Vec::new()),
        Order::Suspend => (pause(&named(asked)?), Vec::new()),
        Order::Resume => (resumption(cluster, &named(asked)?).await, Vec::new()),
        Order::Revoke => {
            let (what, uid) = revocation(cluster, &named(asked)?, asked.get("uid"), Timestamp::now()).await?;
            (what, vec![("uid", uid)])
        }
    };
    let kept = ["cluster", "namespace", "name", "object", "path", "reason"];
    Ok(Frame::still(visitor, order.title(), page(order)).around(&html! {
        h1 { (order.title()) }
        (what)
        @if visitor.has_several() { p.quiet { "Cluster " (cluster.name) } }
        form.sheet method="post" action="act" {
            (write::token(visitor))
            input type="hidden" name="do" value=(asked.get("do").unwrap_or_default());
            @for name in kept { @for value in asked.all(name) { input type="hidden" name=(name) value=(value); } }
            @for (name, value) in &fields { input type="hidden" name=(name) value=(value); }
            p.actions {
                button autofocus { (order.title()) }
                a href=(back(order, cluster, asked)) { "Cancel" }
            }
        }
    }))
}

fn page(order: Order) -> &'static str {
    if matches!(order, Order::Allow | Order::Revoke) { "exceptions" } else { "releases" }
}

fn back(order: Order, cluster: &Cluster, asked: &Asked) -> String {
    match (order, asked.release()) {
        (Order::Reconcile | Order::Suspend | Order::Resume, Some(release)) => {
            Link::to_release(&cluster.name, &release).text()
        }
        _ => Link::to("exceptions").text(),
    }
}

fn named(asked: &Asked) -> Result<ReleaseId, Failure> {
    asked.release().ok_or_else(|| Failure::Named("this address names nothing to act on".to_owned()))
}

/// The exception that is asked for, and until when.
async fn plan(cluster: &Cluster, asked: &Asked) -> Result<(Plan, Timestamp), Failure> {
    let now = Timestamp::now();
    let wrong = |what: String| Failure::Named(what);
    let missing = |what: &str| Failure::Named(format!("this address names no {what}"));
    let object: Result<NamedObject, &str> = asked.get("object").ok_or_else(|| missing("object"))?.parse();
    let object = object.map_err(|error| wrong(error.to_owned()))?;
    let until = match (asked.get("until"), asked.get("for")) {
        (Some(until), _) => until.parse().map_err(|error| wrong(format!("{until:?} is no time: {error}")))?,
        (None, Some(length)) => {
            let length = parse_duration(length).map_err(wrong)?;
            let end = now.checked_add(length).map_err(|_| wrong("that is too long".to_owned()))?;
            // Whole seconds, so that it reads well.
            Timestamp::from_second(end.as_second()).unwrap_or(end)
        }
        (None, None) => return Err(missing("end")),
    };
    let paths: Vec<_> = asked.all("path").flat_map(str::split_whitespace).map(str::to_owned).collect();
    let connection = cluster.connection().await?;
    let namespace = asked.get("namespace").unwrap_or(&connection.namespace);
    let (object, paths, reason) = (&object, &paths, asked.get("reason"));
    let asked = exceptions::Asked { object, namespace, paths, until, reason };
    Ok((exceptions::plan(connection, &asked, now).await?, until))
}

/// Gives the order; the page that tells what came of it.
async fn done(visitor: &Visitor, asked: &Asked) -> Result<Response, Failure> {
    let (order, cluster) = (Order::asked(asked)?, visitor.cluster(asked)?);
    let connection = cluster.connection().await?;
    let mut is_done = true;
    let (said, warnings) = match order {
        Order::Allow => {
            let Allowed { object, paths, until, unchecked, .. } =
                plan(cluster, asked).await?.0.make(connection).await?;
            let said = format!("{} of {object} may change until {until}.", paths.join(", "));
            (said, unchecked.into_iter().collect())
        }
        Order::Revoke => {
            let ReleaseId { namespace, name } = named(asked)?;
            let uid = asked.get("uid").ok_or_else(|| {
                Failure::Named("this form names no exception that was shown: nothing was ended".to_owned())
            })?;
            exceptions::end_one(connection, &namespace, &name, uid).await?;
            (format!("The exception {name} has ended."), Vec::new())
        }
        Order::Reconcile => {
            let release = named(asked)?;
            let pulses = Pulses::new(connection.client.clone());
            let given = orders::reconcile(connection, &pulses, &release).await?;
            is_done = given.answered.is_taken();
            (given.answered.text(&release), given.warnings)
        }
        Order::Suspend | Order::Resume => {
            let release = named(asked)?;
            let (setting, doing, said) = match order {
                Order::Suspend => {
                    let setting = Setting::Suspend(Suspension::default());
                    (setting, "suspend the release", "Nothing of it is repaired until repairs are resumed")
                }
                _ => (Setting::Resume, "resume the release", "Repairs go on"),
            };
            let warnings = orders::set(connection, &release, &setting, doing).await?;
            (format!("Release {}: {said}.", spoken(&release)), warnings)
        }
    };
    Ok(Frame::still(visitor, order.title(), page(order)).around(&html! {
        h1 { (order.title()) }
        p class=(if is_done { "done" } else { "note" }) role="status" { (said) }
        @for warning in &warnings { p.note { (warning) } }
        p { a href=(back(order, cluster, asked)) { "Back" } }
    }))
}

/// What an exception permits.
fn permission(plan: &Plan) -> Result<Markup, Failure> {
    let text = serde_saphyr::to_string(&plan.resource)
        .map_err(|error| Failure::Named(format!("the exception cannot be shown: {error}")))?;
    Ok(html! {
        p {
            "Until " strong { (plan.resource.spec.until) } " these fields of " strong { (plan.object) }
            " may differ from its release: " @for path in &plan.resource.spec.paths { code { (path) } " " }
        }
        @if let Some(unchecked) = &plan.unchecked { p.note { (unchecked) } }
        p { "This object is made:" }
        pre tabindex="0" { (text) }
    })
}

/// What a pause does.
fn pause(release: &ReleaseId) -> Markup {
    html! {
        p {
            "The guard stops repairing release " strong { (spoken(release)) }
            ". Changes by others are judged as before. Drift stays until repairs are resumed."
        }
    }
}

/// What a repair changes.
async fn repair(cluster: &Cluster, release: &ReleaseId) -> Markup {
    html! {
        p { "The guard compares release " strong { (spoken(release)) } " now and repairs what drifts, whatever its policies say." }
        (drifting(compare(cluster, release).await, true))
    }
}

/// What the end of a pause does.
async fn resumption(cluster: &Cluster, release: &ReleaseId) -> Markup {
    let (mode, compared) = tokio::join!(mode(cluster, release), compare(cluster, release));
    let repairs = |mode: &str| mode == format!("{:?}", DriftMode::Repair);
    html! {
        p { "The guard repairs drift of release " strong { (spoken(release)) } " again, as its policies say." }
        @match mode {
            Ok(mode) => {
                @if repairs(&mode) {
                    p { "Their mode for drift is Repair: the guard repairs what drifts. It repairs roles and cluster-scoped objects only if a policy names them." }
                } @else {
                    p { "Their mode for drift is " strong { (mode) } ": the guard repairs nothing of it." }
                }
                (drifting(compared, repairs(&mode)))
            }
            Err(error) => {
                p.note { "Their mode for drift cannot be shown: " (error) }
                (drifting(compared, false))
            }
        }
    }
}

/// What the end of an exception does, and the exception's uid: the one that was `shown`, if there was a list.
async fn revocation(
    cluster: &Cluster,
    exception: &ReleaseId,
    shown: Option<&str>,
    now: Timestamp,
) -> Result<(Markup, String), Failure> {
    let ReleaseId { namespace, name } = exception;
    let read = allowances::one(cluster.connection().await?, namespace, name, now).await;
    let (read, uid) = match (read, shown) {
        (Ok(row), Some(shown)) if row.uid != shown => return Err(exceptions::gone(namespace, name, true)),
        (Ok(row), _) => {
            let uid = row.uid.clone();
            (Ok(row), uid)
        }
        // Some who may end an exception may not read it.
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

fn ended(row: &Row, now: Timestamp) -> Markup {
    let Row { object, paths, until, state, by, reason, .. } = row;
    html! {
        dl.facts {
            div { dt { "Object" } dd { code { (object.kind) "/" (object.name) } } }
            div { dt { "Fields" } dd { @for path in paths { code { (path) } " " } } }
            div {
                dt { "Would end" }
                dd { @match until.parse::<Timestamp>() { Ok(until) => (write::time(until, now)), Err(_) => (until) } }
            }
            @if !by.is_empty() { div { dt { "By" } dd { (by) } } }
            @if !reason.is_empty() { div { dt { "Reason" } dd { (reason) } } }
        }
        @if *state != allowances::State::Open { p.note { "It has no effect at this moment." } }
    }
}

/// The mode for drift that is in force.
async fn mode(cluster: &Cluster, release: &ReleaseId) -> Result<String, Failure> {
    let connection = cluster.connection().await?;
    let read = guarded::get(&connection.client, release).await;
    let read = read.map_err(|error| failed(connection, "read the GuardedRelease", error))?;
    let status = read.and_then(|it| it.status);
    let unknown = || Failure::Named("the guard has not looked at the release yet".to_owned());
    status.map(|status| status.drift).filter(|mode| !mode.is_empty()).ok_or_else(unknown)
}

async fn compare(cluster: &Cluster, release: &ReleaseId) -> Result<ReleaseReport, Failure> {
    let reader = cluster.reader().await?;
    let read = reader.release(release).await?;
    Ok(comparison::compare(&reader, &read, false, Timestamp::now(), &|| ()).await)
}

/// What drifts now, and which of it a repair changes.
fn drifting(compared: Result<ReleaseReport, Failure>, is_repaired: bool) -> Markup {
    let report = match compared {
        Ok(report) => report,
        Err(error) => return html! { p.note { "The present drift cannot be shown: " (error) } },
    };
    let is_drift =
        |it: &&ObjectReport| matches!(it.state, State::Drifted | State::Missing | State::Ownership);
    let drifted: Vec<_> = report.objects.iter().filter(is_drift).collect();
    html! {
        @if drifted.is_empty() { p { "Nothing drifts at this moment." } } @else {
            p { "At this moment these objects drift:" }
            ul {
                @for object in drifted {
                    li {
                        code { (object.object.kind) "/" (object.object.name) }
                        @if object.state == State::Missing {
                            @if is_repaired { " is created again" } @else { " is missing" }
                        }
                        @for field in &object.fields { (change(field, is_repaired)) }
                    }
                }
            }
        }
    }
}

fn change(field: &FieldReport, is_repaired: bool) -> Markup {
    html! {
        div.change {
            code { (field.path) } ": "
            code.live { (field.live.as_ref().map_or("absent", |value| value.as_str())) }
            @if is_repaired { " becomes " } @else { " instead of " }
            code.declared { (field.declared.as_ref().map_or("as declared", |value| value.as_str())) }
        }
    }
}
