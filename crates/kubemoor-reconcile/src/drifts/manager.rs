//! The field manager with which Helm writes the objects of each release.
//!
//! Helm runs under many names (the program's own), and a write under another one makes the next upgrade conflict. The
//! objects show the name; it is remembered for the time when none does any more.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::Drifts;
use kubemoor_declare::model::ReleaseId;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;

/// The longest name of a field manager that the API server takes.
const LONGEST: usize = 128;

impl Drifts {
    /// The field manager with which Helm writes a release's objects: the one that most of them show, by this method if
    /// there is one, else the one that was noted last. A user may have written Helm's annotations by hand, so kubectl
    /// counts only where there is no other.
    pub(crate) fn manager(&self, release: &Release, method: ApplyMethod) -> Option<SmolStr> {
        let applies = method == ApplyMethod::ServerSide;
        let mut votes: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        let lives = release.objects.keys().filter_map(|object| self.life(object));
        for life in lives.filter(|life| *life.release == release.id) {
            for manager in life.managers.iter() {
                *votes.entry((manager.applies == applies, &manager.name)).or_default() += 1;
            }
        }
        let by_hand = |name: &str| name.starts_with("kubectl");
        let most = votes
            .into_iter()
            .max_by_key(|((is_alike, name), votes)| (!by_hand(name), *is_alike, *votes, *name));
        let shown = most.map(|((_, name), _)| SmolStr::new(name));
        shown.into_iter().chain(self.helms.get(&release.id).cloned()).min_by_key(|name| by_hand(name))
    }

    /// Notes the field manager of a release, for the time when none of its objects shows it.
    pub(crate) fn note_manager(&mut self, release: &Release) {
        if let Some(name) = self.manager(release, release.state.apply_method)
            && self.helms.get(&release.id) != Some(&name)
        {
            self.helms.insert(release.id.clone(), name);
        }
    }

    /// Takes over the field manager that an earlier process noted, unless this one has seen it.
    pub(crate) fn remember_manager(&mut self, release: &ReleaseId, name: SmolStr) {
        if !name.is_empty() && name.len() <= LONGEST {
            self.helms.entry(release.clone()).or_insert(name);
        }
    }
}
