//! The number of files and connections that the process may have open.
//!
//! Entry point: [`raise_limit`].

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one: the default of shells and systemd is lower than
/// the number of connections that a port may have. If the system does not allow it, the limit stays
/// unchanged.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open descriptors stays as it is");
        }
    }
}
