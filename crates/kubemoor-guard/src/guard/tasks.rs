//! The tasks around the loop: the watches, and the errands whose outcomes are awaited.
//!
//! Entry points: [`Tasks::spawn`], [`Tasks::broken`], [`Tasks::finish`]. Invariant: no task breaks down unnoticed. Must
//! not know what the tasks do.

use tokio::task::{JoinError, JoinSet};

/// The tasks that run.
#[derive(Default)]
pub(super) struct Tasks(JoinSet<()>);

impl Tasks {
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Waits until a task breaks down. Tasks that end are forgotten.
    pub(super) async fn broken(&mut self) -> JoinError {
        loop {
            match self.0.join_next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => return error,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all tasks have ended. Returns the failure of one that broke down.
    pub(super) async fn finish(&mut self) -> Result<(), JoinError> {
        let mut outcome = Ok(());
        while let Some(ended) = self.0.join_next().await {
            outcome = outcome.and(ended);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn broken_watch_is_noticed_and_an_ended_one_is_not() {
        let mut tasks = Tasks::default();
        tasks.spawn(async {});
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn(async { drop(stopped.await) });
        tasks.spawn(async { panic!("broken") });
        let error = timeout(Duration::from_secs(60), tasks.broken()).await.expect("the watch broke down");
        assert!(error.is_panic());
        stop.send(()).unwrap();
        assert!(tasks.finish().await.is_ok());
        tasks.spawn(async { panic!("broken") });
        assert!(tasks.finish().await.is_err());
    }
}
