//! The reasons why a guard cannot be reached through the API server.
//!
//! Entry point: [`ForwardError`]. Invariant: no error quotes a credential.

use super::super::call::CallError;
use super::super::connection::ConnectError;
use super::super::lease::Place;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The kubeconfig, or the authority that was named, cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The Lease cannot be read.
    #[error("the Lease {} in namespace {} cannot be read: {error}", .place.name, .place.namespace)]
    ReadLease {
        /// Where it is.
        place: Place,
        /// What the API server says.
        #[source]
        error: CallError,
    },
    /// There is no guard.
    #[error("there is no Lease {} in namespace {}, so no guard runs there", .0.name, .0.namespace)]
    FindGuard(Place),
    /// The authority for the guard's certificate holds no certificate.
    #[error("the Lease {} in namespace {} names no authority that can be read", .0.name, .0.namespace)]
    ReadAuthority(Place),
    /// Pods cannot be listed.
    #[error("the pods in namespace {0} cannot be listed: {1}")]
    ListPods(String, #[source] CallError),
    /// No pod of the guard answers.
    #[error("no pod of the guard in namespace {0} is ready")]
    ChoosePod(String),
    /// The API server forwards nothing.
    #[error("no port of pod {pod} in namespace {namespace} can be forwarded: {error}")]
    Forward {
        /// The pod's namespace.
        namespace: String,
        /// The pod.
        pod: String,
        /// What the API server says.
        #[source]
        error: CallError,
    },
    /// The server is not the guard that the Lease describes.
    #[error("the guard in pod {pod} does not prove that it is {name}: {reason}")]
    Trust {
        /// The pod.
        pod: String,
        /// The name that its certificate must be for.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The connection broke before the guard answered.
    #[error("the guard in pod {pod} does not answer: {reason}")]
    Answer {
        /// The pod.
        pod: String,
        /// What is wrong.
        reason: String,
    },
}
