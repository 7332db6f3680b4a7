//! What a visitor orders.
//!
//! Entry points: [`confirm`] shows what an order will do, [`carry_out`] does it, [`ask`] asks for an exception.
//! Invariant: nothing is written before a form with the visitor's token comes back; the API server decides who
//! may.

mod effects;

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use jiff::Timestamp;
use maud::html;

use super::address::{Asked, Link};
use super::cluster::Cluster;
use super::door::SentForm;
use super::html::{self as write, Frame};
use super::visitor::Visitor;
use kubemoor_cluster::client::guarded::Setting;
use kubemoor_declare::model::{NamedObject, ReleaseId};
use kubemoor_inspect::exceptions::{self, Allowed, Plan};
use kubemoor_inspect::failure::{Failure, spoken};
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
            (effects::permission(&plan)?, vec![("until", until.to_string())])
        }
        Order::Reconcile => (effects::repair(cluster, &named(asked)?).await, Vec::new()),
        Order::Suspend => (effects::pause(&named(asked)?), Vec::new()),
        Order::Resume => (effects::resumption(cluster, &named(asked)?).await, Vec::new()),
        Order::Revoke => {
            let (what, uid) =
                effects::revocation(cluster, &named(asked)?, asked.get("uid"), Timestamp::now()).await?;
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
