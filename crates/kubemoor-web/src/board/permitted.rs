//! What a visitor may list, and the watches that it permits.
//!
//! Entry point: [`while_permitted`]. Invariant: nothing is followed once the right to it has ended.

use tokio::sync::watch;

/// What the visitor may list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permitted {
    pub(super) releases: bool,
    pub(super) exceptions: bool,
    /// Policies belong to no namespace: whoever follows one namespace does not follow them.
    pub(super) policies: bool,
}

/// Follows for as long as the visitor may list it, and anew once they may again.
pub(super) async fn while_permitted<F: Future<Output = ()>>(
    mut rights: watch::Receiver<Permitted>,
    may: fn(Permitted) -> bool,
    follow: impl Fn() -> F,
) {
    loop {
        tokio::select! {
            // A watch that is open adds nothing to what was forgotten.
            biased;
            () = wait_until(&mut rights, |now| !may(now)) => {}
            () = follow() => {}
        }
        wait_until(&mut rights, may).await;
    }
}

/// It is asked for as long as it is followed.
async fn wait_until(rights: &mut watch::Receiver<Permitted>, is: impl Fn(Permitted) -> bool) {
    drop(rights.wait_for(|now| is(*now)).await);
}
