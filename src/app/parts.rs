//! The long-running parts of the program, supervised as one set.
//!
//! Entry points: [`Parts::spawn`], [`Parts::try_spawn`]. Invariant: a part runs until it is told to stop. A
//! part that ends sooner ends the process, since its work would remain undone. Must not restart a part.

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Why no further part is started.
pub(super) enum Halt {
    /// The program was told to stop.
    Stopped,
    /// A part that runs already ended.
    Failed(anyhow::Error),
}

/// The parts that run.
#[derive(Default)]
pub(super) struct Parts(JoinSet<(&'static str, anyhow::Result<()>)>);

impl Parts {
    /// Runs a part that cannot fail.
    pub(super) fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.try_spawn(name, async move {
            part.await;
            Ok(())
        });
    }

    /// Runs a part that may fail.
    pub(super) fn try_spawn(
        &mut self,
        name: &'static str,
        part: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.0.spawn(async move { (name, part.await) });
    }

    /// Waits until a part ends, and returns the error that explains why the process must stop.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(ended) => why(ended),
            None => std::future::pending().await,
        }
    }

    /// Waits for something that further parts need.
    pub(super) async fn meanwhile<T>(
        &mut self,
        stop: &CancellationToken,
        wait: impl Future<Output = T>,
    ) -> Result<T, Halt> {
        tokio::select! {
            () = stop.cancelled() => Err(Halt::Stopped),
            error = self.ended() => Err(Halt::Failed(error)),
            value = wait => Ok(value),
        }
    }

    /// Waits until at most `left` parts are running.
    pub(super) async fn all_but(&mut self, left: usize) {
        while self.0.len() > left && self.0.join_next().await.is_some() {}
    }
}

fn why(ended: Result<(&'static str, anyhow::Result<()>), JoinError>) -> anyhow::Error {
    match ended {
        Ok((name, Ok(()))) => anyhow::anyhow!("{name} ended by itself; the log says why"),
        Ok((name, Err(error))) => error.context(format!("{name} failed")),
        Err(error) => anyhow::Error::new(error).context("a part of the program broke down"),
    }
}

#[cfg(test)]
mod tests;
