//! The note on the Lease that a person withdrew the webhooks.
//!
//! Entry points: [`note`] for the person's command, `Hold` for guards. Invariant: a guard heeds a note for `HOLD` at
//! most, by its own clock, so that neither a forgotten one nor one of another clock leaves a cluster unguarded. It goes
//! with the Lease, which a new installation makes anew. Must not change who leads.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use super::{Place, reading};
use crate::client::call::CallError;

/// The Lease's annotation with the time of the withdrawal.
pub const WITHDRAWN: &str = "kubemoor.dev/withdrawn";

/// For how long no guard registers after a withdrawal: the time to remove it.
const HOLD: SignedDuration = SignedDuration::from_mins(10);

/// The number of tries of a write with conflicts: the leader renews the Lease meanwhile.
const ATTEMPTS: usize = 5;

/// Until when this guard registers nothing.
#[derive(Default)]
pub(super) struct Hold {
    /// The note as it was seen last.
    noted: Option<Timestamp>,
    until: Option<Instant>,
}

/// Notes on the Lease, if it is there, that the webhooks are withdrawn now.
///
/// # Errors
/// When the API server refuses it or gives no usable answer.
pub async fn note(client: &kube::Client, place: &Place, now: Timestamp) -> Result<(), CallError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &place.namespace);
    let mut tries = 1;
    loop {
        let Some(mut lease) = reading::read(&leases, &place.name).await? else { return Ok(()) };
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(WITHDRAWN.to_owned(), now.to_string());
        match leases.replace(&place.name, &PostParams::default(), &lease).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) && tries < ATTEMPTS => {
                tries += 1
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Hold {
    /// Takes in the note on the Lease, and says until when nothing is registered. A note is measured when it is seen for
    /// the first time: a clock that is set afterwards prolongs nothing, and one far ahead has no effect later either.
    pub(super) fn see(
        &mut self,
        noted: Option<Timestamp>,
        (now, time): (Instant, Timestamp),
    ) -> Option<Instant> {
        if std::mem::replace(&mut self.noted, noted) != noted {
            self.until = noted.and_then(|noted| left(noted, time)).map(|left| now + left);
        }
        self.until
    }
}

/// When the webhooks were withdrawn, by the Lease.
pub(super) fn seen(lease: &ObjectMeta) -> Option<Timestamp> {
    lease.annotations.as_ref()?.get(WITHDRAWN)?.parse().ok()
}

/// How long no guard registers, if the webhooks were withdrawn at this time.
fn left(withdrawn: Timestamp, now: Timestamp) -> Option<Duration> {
    let passed = withdrawn.duration_until(now);
    // The time is of another clock, which may be a little ahead.
    if passed < -HOLD {
        return None;
    }
    Duration::try_from(HOLD - passed.max(SignedDuration::ZERO)).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawal_holds_registration_for_ten_minutes() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let check = |at: &str, wanted: Option<u64>| {
            let at = at.parse().unwrap();
            assert_eq!(left(at, now), wanted.map(Duration::from_secs), "{at:?}");
        };
        check("2026-01-01T12:00:00Z", Some(600));
        check("2026-01-01T11:59:00Z", Some(540));
        check("2026-01-01T11:50:00Z", None);
        check("2025-01-01T11:50:00Z", None);
        check("2026-01-01T12:01:00Z", Some(600));
        check("2027-01-01T12:00:00Z", None);
    }

    #[test]
    fn a_note_is_measured_once_by_the_own_clock() {
        let (start, time): (_, Timestamp) = (Instant::now(), "2026-01-01T12:00:00Z".parse().unwrap());
        let minutes = |count: i64| SignedDuration::from_mins(count);
        let after = |count: u64| start + Duration::from_secs(60 * count);
        // One of a clock that is half an hour ahead has no effect, now or when its time comes.
        let mut hold = Hold::default();
        let ahead = Some(time + minutes(30));
        assert_eq!(hold.see(ahead, (start, time)), None);
        assert_eq!(hold.see(ahead, (after(25), time + minutes(25))), None);
        // One a little ahead counts from now on, and a clock that is set back does not prolong it.
        let little = Some(time + minutes(5));
        assert_eq!(hold.see(little, (start, time)), Some(after(10)));
        assert_eq!(hold.see(little, (after(1), time - minutes(600))), Some(after(10)));
        // A second withdrawal begins anew, and a note that is removed ends it.
        let again = Some(time + minutes(8));
        assert_eq!(hold.see(again, (after(8), time + minutes(8))), Some(after(18)));
        assert_eq!(hold.see(None, (after(9), time + minutes(9))), None);
    }

    #[test]
    fn note_that_is_no_time_holds_nothing() {
        let lease = |note: &str| ObjectMeta {
            annotations: Some([(WITHDRAWN.to_owned(), note.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(seen(&lease("true")), None);
        assert!(seen(&lease("2026-01-01T12:00:00Z")).is_some());
    }
}
