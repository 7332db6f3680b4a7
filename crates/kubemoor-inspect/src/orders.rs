//! A user's orders to the guard for a release: repair now, pause or resume repairs.
//!
//! Entry points: [`set`], [`reconcile`]. Invariant: order and answer go through the GuardedRelease, so that
//! the API server authorizes the user and records their name. Nothing is repaired here.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::failure::{Failure, failed, spoken};
use super::pulses::Pulses;
use kubemoor_cluster::client::connection::Connection;
use kubemoor_cluster::client::guarded::{self, Setting};
use kubemoor_declare::model::ReleaseId;
use kubemoor_policy::guarded::{OrderAnswer, OrderResult};

/// Time limit for an answer of the API server.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for the answer to an order, and the pause between looks.
const WAIT: Duration = Duration::from_secs(15);
pub const LOOK: Duration = Duration::from_millis(250);

/// An order that was given.
pub struct Given {
    pub answered: Answered,
    /// The API server's warnings.
    pub warnings: Vec<String>,
}

/// What the guard made of an order.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Answered {
    /// It answered.
    #[serde(rename = "answer")]
    Given(OrderAnswer),
    /// No guard runs.
    Stale { message: String },
    /// It has not answered yet.
    Outstanding { why: String },
}

/// Changes a setting in a GuardedRelease; returns the API server's warnings.
pub async fn set(
    connection: &Connection,
    release: &ReleaseId,
    setting: &Setting,
    doing: &str,
) -> Result<Vec<String>, Failure> {
    match guarded::set(&connection.client, release, setting, PATIENCE).await {
        Ok(warnings) => Ok(warnings),
        Err(error) if error.is_not_found() => Err(Failure::Named(format!(
            "there is no GuardedRelease {}: `kubemoor get releases -n {}` says why",
            spoken(release),
            release.namespace
        ))),
        Err(error) => Err(failed(connection, doing, error)),
    }
}

/// Orders a repair now, and waits for the guard's answer.
pub async fn reconcile(
    connection: &Connection,
    pulses: &Pulses,
    release: &ReleaseId,
) -> Result<Given, Failure> {
    let at = Timestamp::now().to_string();
    let setting = Setting::Reconcile(at.clone());
    let warnings = set(connection, release, &setting, "have the release reconciled").await?;
    let answered = answer(connection, pulses, release, &at).await;
    Ok(Given { answered, warnings })
}

/// Waits for the guard's answer to the order of `at`; of one that has to wait for
/// something else no longer than its first answer.
async fn answer(connection: &Connection, pulses: &Pulses, release: &ReleaseId, at: &str) -> Answered {
    let until = Instant::now() + WAIT;
    let mut last = None;
    loop {
        let status = match guarded::get(&connection.client, release).await {
            Ok(guarded) => guarded.and_then(|guarded| guarded.status).unwrap_or_default(),
            Err(error) => {
                return Answered::Outstanding { why: format!("its answer cannot be read: {error}") };
            }
        };
        last = status.order.clone().filter(|order| order.at == at).or(last);
        match last {
            Some(answer) if answer.result != OrderResult::Waiting => return Answered::Given(answer),
            Some(answer) if Instant::now() >= until => return Answered::Given(answer),
            None if Instant::now() >= until => {
                let why = format!("the guard has not answered within {} s", WAIT.as_secs());
                return Answered::Outstanding { why };
            }
            None => {
                let told = pulses.told(status).await;
                if told.is_stale() {
                    return Answered::Stale { message: told.message };
                }
            }
            Some(_) => {}
        }
        sleep(LOOK).await;
    }
}

impl Answered {
    /// Whether the guard has accepted the order, and skips no object.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Given(OrderAnswer { result, .. }) if *result != OrderResult::Refused)
    }

    /// The answer in a sentence.
    pub fn text(&self, release: &ReleaseId) -> String {
        let (name, namespace) = (spoken(release), &release.namespace);
        match self {
            Self::Given(OrderAnswer { message, .. }) => format!("release {name}: {message}"),
            Self::Stale { message } => {
                format!("the order for release {name} waits for a guard that runs: {message}")
            }
            Self::Outstanding { why } => format!(
                "the order for release {name} is given, and {why}: `kubemoor get releases -n {namespace}` shows how the release stands"
            ),
        }
    }
}
