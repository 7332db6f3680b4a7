//! The histories of one release name.
//!
//! Entry point: [`Named`]. Invariant: of several histories by which the release is installed none is used: the speaker
//! is marked invalid.

use std::sync::Arc;

use super::super::record::Status;
use super::super::release::{Invalid, Release};

/// The histories of one release name.
#[derive(Debug)]
pub(super) struct Named {
    /// The releases from the records of each namespace; usually there is one.
    pub(super) histories: Vec<Arc<Release>>,
    /// The one that counts where one has to.
    pub(super) speaker: Arc<Release>,
}

impl Named {
    /// Has the right history speak: one that is in force before one that is
    /// uninstalled, one that is believed, then the one in the release's own
    /// namespace.
    pub(super) fn elect(&mut self) {
        self.histories.sort_by_cached_key(|it| {
            (is_over(it), !it.state.is_known(), it.storage != it.id.namespace, it.storage.clone())
        });
        match (self.rivals(), self.histories.first()) {
            (Some((first, second)), _) => self.speaker = Arc::new(contested(first, second)),
            (None, Some(only)) => self.speaker = Arc::clone(only),
            (None, None) => {}
        }
    }

    /// The first two histories by which the release is installed.
    pub(super) fn rivals(&self) -> Option<(&Release, &Release)> {
        let mut rivals = self.histories.iter().filter(|it| !is_over(it));
        Some((rivals.next()?, rivals.next()?))
    }
}

fn is_over(release: &Release) -> bool {
    release.state.status == Status::Uninstalled
}

/// The release, marked invalid: with records in two namespaces its declarations cannot be determined.
fn contested(release: &Release, rival: &Release) -> Release {
    let reason = format!(
        "the release has records in namespace {} and in namespace {}: delete those that are not its own",
        release.storage, rival.storage
    );
    let invalid = Invalid { secret: rival.latest.secret.clone(), reason };
    Release { invalid: Some(release.invalid.clone().unwrap_or(invalid)), ..release.clone() }
}
