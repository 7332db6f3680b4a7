//! How many files and connections the process may have open.
//!
//! Entry point: [`raise_limit`].

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one: what shells and
/// systemd give by default is less than the connections that a port may have. A
/// system that does not allow it goes on with what there is.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open descriptors stays as it is");
        }
    }
}
