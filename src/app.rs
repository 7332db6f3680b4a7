//! The composition root: builds everything, owns the tasks and the order of
//! shutdown.

use crate::config;

/// Serves until it is told to stop.
pub fn serve(config: config::Serve) -> anyhow::Result<()> {
    anyhow::bail!("serving is not built yet ({:?})", config.listen)
}
