//! Control planes with one guard each, which tests share.
//!
//! Entry points: [`ControlPlane::get`] with [`Guard::shared`], and [`Cluster`] for other flags. Invariant: each has
//! Kubemoor's definitions from the start; what a test writes there concerns its own namespaces, and so do its policies.

use std::sync::OnceLock;

use tokio::sync::OnceCell;

use super::control_plane::ControlPlane;
use super::guard::{Guard, SharedGuard};
use super::own_control_plane::OwnControlPlane;

/// The one that most tests share.
pub(crate) static POLICED: Cluster = Cluster::new(&["--register", "--edits", "Deny", "--drift", "Repair"]);

/// One whose guard only warns and reports, and has the rights to refuse and repair where a policy or an order says so.
pub(crate) static WARNING: Cluster = Cluster::with_rights(
    &["--register", "--edits", "Warn", "--drift", "Report"],
    &["enforce/arbiter.yaml", "enforce/repair.yaml"],
);

/// A control plane with Kubemoor's definitions and one guard. The first test that asks for it starts it, and none stops
/// it.
pub(crate) struct Cluster {
    flags: &'static [&'static str],
    /// Files of `deploy/` whose rights its guard has besides those of its modes.
    rights: &'static [&'static str],
    control_plane: OnceLock<OwnControlPlane>,
    guard: OnceCell<Guard>,
}

impl Cluster {
    /// One whose guard will have these flags.
    pub(crate) const fn new(flags: &'static [&'static str]) -> Self {
        Self::with_rights(flags, &[])
    }

    const fn with_rights(flags: &'static [&'static str], rights: &'static [&'static str]) -> Self {
        Self { flags, rights, control_plane: OnceLock::new(), guard: OnceCell::const_new() }
    }

    pub(crate) fn control_plane(&'static self) -> &'static ControlPlane {
        self.control_plane.get_or_init(ControlPlane::start_defined)
    }

    pub(crate) async fn guard(&'static self) -> &'static Guard {
        let start = || async {
            self.control_plane().apply_deploy(self.rights).await;
            let guard = Guard::start(self.control_plane(), self.flags).await;
            if self.flags.contains(&"--register") {
                Guard::extend_webhook_timeouts(self.control_plane(), "Ignore").await;
            }
            guard
        };
        self.guard.get_or_init(start).await
    }
}

impl ControlPlane {
    /// The control plane that most tests share.
    ///
    /// # Panics
    /// When it does not start, with the logs' last lines.
    pub(crate) fn get() -> &'static Self {
        POLICED.control_plane()
    }
}

impl Guard {
    /// The guard of that control plane: registered, `--edits Deny --drift Repair`.
    pub(crate) async fn shared() -> SharedGuard {
        SharedGuard(POLICED.guard().await)
    }
}
