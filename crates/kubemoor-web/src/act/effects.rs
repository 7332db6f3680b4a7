//! What an order would do at this moment, for the page that asks for a confirmation.
//!
//! Entry points: one function for each order. Invariant: reads only; what cannot be read is named, and values come as
//! the comparison shows them, which masks those of Secrets.

use jiff::Timestamp;
use maud::{Markup, html};

use super::super::cluster::Cluster;
use super::super::html as write;
use kubemoor_cluster::client::guarded;
use kubemoor_declare::model::{DriftMode, ReleaseId};
use kubemoor_inspect::allowances::{self, Row};
use kubemoor_inspect::comparison::object::{FieldReport, State};
use kubemoor_inspect::comparison::{self, ObjectReport, ReleaseReport};
use kubemoor_inspect::exceptions::{self, Plan};
use kubemoor_inspect::failure::{Failure, failed, spoken};

/// What an exception permits.
pub(super) fn permission(plan: &Plan) -> Result<Markup, Failure> {
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
pub(super) fn pause(release: &ReleaseId) -> Markup {
    html! {
        p {
            "The guard stops repairing release " strong { (spoken(release)) }
            ". Changes by others are judged as before. Drift stays until repairs are resumed."
        }
    }
}

/// What a repair changes.
pub(super) async fn repair(cluster: &Cluster, release: &ReleaseId) -> Markup {
    html! {
        p { "The guard compares release " strong { (spoken(release)) } " now and repairs what drifts, whatever its policies say." }
        (drifting(compare(cluster, release).await, true))
    }
}

/// What the end of a pause does.
pub(super) async fn resumption(cluster: &Cluster, release: &ReleaseId) -> Markup {
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
pub(super) async fn revocation(
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
