//! Warns first if the guard cannot work.
//!
//! Entry points: [`say`], [`say_of`]. Invariant: a check that the user may not make is skipped and never
//! fails the command. A cluster without Kubemoor gets no warning.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::warn;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::lease::pulse::pulse;
use kubemoor_cluster::client::registrations;
use kubemoor_guard::webhook::registration::emergency;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_verdict::health::reported::{Pulse, STALE_AFTER};

/// Time limit for the checks: the command's own output must not wait longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Warns on standard error if an emergency is open, no guard runs, or no webhook calls it. `namespace` is the
/// command's namespace; `None` for all.
pub(super) async fn say(connection: &Connection, namespace: Option<&str>) {
    if let Ok(Some(sentence)) = timeout(PATIENCE, standing(connection, namespace)).await {
        warn(&sentence);
    }
}

/// The same of one of several clusters.
pub(super) async fn say_of(name: &str, connection: &Connection, namespace: Option<&str>) {
    if let Ok(Some(sentence)) = timeout(PATIENCE, standing(connection, namespace)).await {
        warn(&format!("{name}: {sentence}"));
    }
}

async fn standing(connection: &Connection, namespace: Option<&str>) -> Option<String> {
    let client = &connection.client;
    let (is_open, lease) = tokio::join!(emergency::is_open(client), guarded::lease(client, namespace));
    if is_open.is_ok_and(|is_open| is_open) {
        return Some(
            "the emergency is open: no change is judged and nothing is repaired until `kubemoor emergency close`"
                .to_owned(),
        );
    }
    let LeaseReference { namespace, name } = lease.ok()??;
    let reference = LeaseReference { namespace, name };
    let (pulse, registered) = tokio::join!(pulse(client, &reference), registrations::are_there(client));
    let LeaseReference { namespace, name } = reference;
    let since = match pulse.ok()? {
        Pulse::Gone => Some("the Lease does not exist".to_owned()),
        Pulse::Renewed(at) if Timestamp::now().duration_since(at) > STALE_AFTER => {
            Some(format!("nobody has renewed the Lease since {}", at.strftime("%Y-%m-%dT%H:%M:%SZ")))
        }
        Pulse::Renewed(_) | Pulse::Unknown => None,
    };
    if let Some(since) = since {
        return Some(format!(
            "no guard runs, so nothing is repaired and no change is judged: {since} (`kubectl get lease {name} -n {namespace}`)"
        ));
    }
    (!registered.ok()?).then(|| {
        "no webhook of Kubemoor is registered, so no change is judged: start the guard with --register, or apply what \
         `kubemoor manifests webhook` prints"
            .to_owned()
    })
}
