//! Writes what puts a changed object right, in the way in which its release is applied.
//!
//! Entry point: `Task::send`. Invariant: every write is bound to the version of the object that was judged, and is made
//! as Helm's own field manager. Must not decide whether to write.

use std::collections::HashMap;

use serde_json::Value;

use super::examine::Answer;
use super::trouble::Trouble;
use super::{LOOK, Situation, Task};
use crate::cluster::objects::{Target, WriteError};
use crate::declaration::equality::Agreement;
use crate::declaration::fields::{FieldChange, Move};
use crate::declaration::path::Path;
use crate::helm::record::ApplyMethod;
use crate::helm::release::Release;
use crate::policy::mask::Mask;
use crate::policy::pattern::Pattern;
use crate::reconcile::blame::returned;
use crate::reconcile::body;
use crate::reconcile::drifts::Life;
use crate::reconcile::live::{Live, Manager};
use crate::verdict::ownership::{self, Operation, Owners, abandons};

/// Helm's field manager where no object's history tells: its program's name.
const HELM: &str = "helm";

impl Task<'_> {
    /// Writes what puts the `changes` right but for those that are `fixed`.
    /// None if that is nothing.
    pub(super) async fn send(
        &self,
        situation: &Situation,
        target: &Target,
        seen: &Live,
        changes: &[FieldChange],
        fixed: &[Path],
        answer: &Answer,
    ) -> Result<Option<Value>, Trouble> {
        let Self { shared, id, object, .. } = self;
        let Some(live) = &seen.object else { return Ok(None) };
        let release = &situation.release;
        let method = release.state.apply_method;
        let manager = self.manager(release, method);
        let mut mask = situation.exceptions(object).mask(live);
        let moved = self.moved(situation, seen, &manager, &mask);
        // Nothing is written for a doubt.
        let stays = |change: &&FieldChange| {
            let is_doubt = change.agreement == Agreement::Doubt && answer.is_none();
            is_doubt || fixed.contains(&change.path)
        };
        let open: Vec<FieldChange> = changes.iter().filter(|change| !stays(change)).cloned().collect();
        if method == ApplyMethod::ServerSide {
            let declared = shared.guard.releases.document(id, release.state.revision, object, LOOK).await;
            let declared = declared.map_err(|error| Trouble::Other(error.to_string()))?;
            // What is written is what was weighed.
            if !self.is_to_write(declared.status)
                || declared.digest != release.state.digest
                || self.is_other(declared.object.as_ref(), &situation.declared)
            {
                return Err(Trouble::Moved);
            }
            let document = body::of(declared.object, target.resource.api_version()).ok_or(Trouble::Moved)?;
            let left = changes.iter().filter(stays).map(|change| &change.path).chain(fixed);
            mask.0.extend(left.filter_map(|path| Pattern::parse(&path.to_string()).ok()));
            let body = body::applied(&document, live, &mask);
            // What Helm has applied and the record does not say any more nobody saw go.
            let taken_out = || seen.whole().is_none_or(|whole| abandons(&whole, &manager, &body));
            if situation.ordered_by.is_none() && taken_out() {
                return Err(Trouble::Unconfirmed);
            }
            let now = self.apply(target, live, &moved, body, &manager).await?;
            // What the manifest does not name no apply takes away.
            return match body::unsealed(object, &open, &now) {
                Some(patch) => Ok(Some(shared.guard.objects.merge(target, &patch, &manager).await?)),
                None => Ok(Some(now)),
            };
        }
        let fields = &situation.declared.fields;
        match body::merged((object, fields), (&open, &moved), live, answer.canonical(), &mask) {
            Some(patch) => Ok(Some(shared.guard.objects.merge(target, &patch, &manager).await?)),
            None => Ok(None),
        }
    }

    /// The manager as which Helm writes the release's objects.
    pub(super) fn manager(&self, release: &Release, method: ApplyMethod) -> String {
        let applies = method == ApplyMethod::ServerSide;
        let drifts = self.shared.drifts.lock();
        let mut votes: HashMap<&str, usize> = HashMap::new();
        let lives = release.objects.keys().filter_map(|object| drifts.life(object));
        let of_release: Vec<&Life> = lives.filter(|life| life.release == *self.id).collect();
        let own = |manager: &&Manager| manager.applies == applies;
        for manager in of_release.iter().flat_map(|life| life.managers.iter()).filter(own) {
            *votes.entry(&manager.name).or_default() += 1;
        }
        // Somebody may have written Helm's annotations by hand.
        let by_hand = |name: &str| name.starts_with("kubectl");
        let most = votes.into_iter().max_by_key(|(name, votes)| (!by_hand(name), *votes, *name));
        most.map_or(HELM, |(name, _)| name).to_owned()
    }

    /// The elements that somebody gave other keys and that are not to be left so.
    fn moved(&self, situation: &Situation, seen: &Live, helm: &str, mask: &Mask) -> Vec<Move> {
        let Some(whole) = seen.whole() else { return Vec::new() };
        let moved = ownership::moved(&situation.declared.fields, &whole, &Owners::of(&whole), Some(helm));
        let is_left = |it: &Move| mask.covers(&it.live) || mask.covers(&it.declared);
        moved.into_iter().map(|(it, _)| it).filter(|it| !is_left(it)).collect()
    }

    /// Applies `body` after a patch that gives what was `moved` its keys again. An apply alone would leave that to
    /// whoever moved it and add what is declared, and the API server refuses two elements that hold what only one
    /// may. What the patch wrote is given to Helm's applies, or the next upgrade would conflict with it.
    async fn apply(
        &self,
        target: &Target,
        live: &Value,
        moved: &[Move],
        mut body: Value,
        manager: &str,
    ) -> Result<Value, WriteError> {
        let objects = &self.shared.guard.objects;
        let Some(patch) = body::put_back(moved, live) else {
            return objects.apply(target, &body, manager, true).await;
        };
        let patched = objects.merge(target, &patch, manager).await?;
        body::set_version(&mut body, &patched);
        let applied = objects.apply(target, &body, manager, true).await?;
        let (name, operation) = (manager.to_owned(), Operation::Apply);
        let helm = ownership::Manager { name, operation, subresource: String::new() };
        let paths: Vec<Path> = moved.iter().map(|it| it.declared.clone()).collect();
        match returned(&applied, &helm, &paths) {
            Some(patch) => objects.merge(target, &patch, manager).await,
            None => Ok(applied),
        }
    }
}
