//! The leader's description of its guard on the Lease: its version, and the CA bundle of its certificate.
//!
//! Entry points: `annotate` for the leader, `read` for everyone else. Invariant: nothing here is secret,
//! since every authenticated account may read the Lease. The Secret of the certificate also holds its private
//! key, and the webhook configuration the token of the webhook's address. So clients cannot get the CA bundle
//! from either.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use tokio::time::timeout;

use super::super::call::CallError;
use super::{ATTEMPT, Place, reading};
use kubemoor_declare::model::build;

const VERSION: &str = "kubemoor.dev/version";
const COMMIT: &str = "kubemoor.dev/commit";
const CA_BUNDLE: &str = "kubemoor.dev/ca-bundle";

/// Former versions kept a list of authorities here.
const AUTHORITIES: &str = "kubemoor.dev/authorities";

/// The maximum size of the CA bundle on a Lease, which is written every few seconds.
const CAP: usize = 16 << 10;

/// The last leader's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderInfo {
    /// The leader's identity; empty if there is no leader.
    pub holder: String,
    /// When it said so last.
    pub renewed: Option<Timestamp>,
    /// The guard's version; `None` if the Lease does not name it.
    pub version: Option<String>,
    /// The commit that was built, where the guard knows it.
    pub commit: Option<String>,
    /// The CA bundle of the guard's certificate, as PEM; `None` where the system's trust store is used.
    pub authority: Option<String>,
}

/// Has a Lease tell of this process.
pub(super) fn annotate(lease: &mut ObjectMeta, authority: Option<&str>) {
    let authority = authority.filter(|pem| pem.len() <= CAP);
    let annotations = lease.annotations.get_or_insert_default();
    let told = [
        (VERSION, Some(build::VERSION)),
        (COMMIT, build::commit()),
        (CA_BUNDLE, authority),
        (AUTHORITIES, None),
    ];
    for (name, value) in told {
        match value {
            Some(value) => annotations.insert(name.to_owned(), value.to_owned()),
            None => annotations.remove(name),
        };
    }
}

/// What the leader wrote into the Lease at `place`; `None` without a Lease.
///
/// # Errors
/// When the API server gives no usable answer.
pub async fn read(client: &kube::Client, place: &Place) -> Result<Option<LeaderInfo>, CallError> {
    let leases = Api::<Lease>::namespaced(client.clone(), &place.namespace);
    let read = timeout(ATTEMPT, reading::read(&leases, &place.name)).await;
    let read = read.map_err(|_| CallError::Late { within: ATTEMPT })??;
    Ok(read.map(told))
}

fn told(lease: Lease) -> LeaderInfo {
    let (spec, mut annotations) =
        (lease.spec.unwrap_or_default(), lease.metadata.annotations.unwrap_or_default());
    LeaderInfo {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|renewed| renewed.0),
        version: annotations.remove(VERSION),
        commit: annotations.remove(COMMIT),
        authority: annotations.remove(CA_BUNDLE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(authority: Option<&str>, mut lease: Lease) -> (LeaderInfo, Lease) {
        annotate(&mut lease.metadata, authority);
        (told(lease.clone()), lease)
    }

    #[test]
    fn lease_tells_the_version_and_the_present_authority() {
        let (info, lease) = after(Some("pem"), Lease::default());
        assert_eq!((info.version.as_deref(), info.authority.as_deref()), (Some(build::VERSION), Some("pem")));
        assert_eq!(info.commit.as_deref(), build::commit());
        // One that is gone, or too long for a Lease, is told of no more; what others have written stays.
        let mut lease = lease;
        lease.metadata.annotations.as_mut().unwrap().insert("team".to_owned(), "platform".to_owned());
        for authority in [None, Some("x".repeat(CAP + 1).as_str())] {
            let (info, lease) = after(authority, lease.clone());
            assert_eq!(info.authority, None);
            assert_eq!(lease.metadata.annotations.unwrap()["team"], "platform");
        }
    }
}
