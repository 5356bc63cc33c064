//! Leases as the mount uses them: taken by the first write intent, renewed by activity, given back if unused. What
//! policy makes different is in [`super::terms`].

use std::sync::Arc;

use super::node::{HeldLease, Node, Unleased};
use super::terms::unleased;
use super::{Caller, Result, Vfs, VfsError};
use crate::catalog::{CatalogError, EventKind, NewEvent, Place};
use crate::model::{Entry, Kind, ResourceKey, Scratch, Seq, VersionNumber};

impl Vfs {
    /// Takes the lease for an opener, or renews it.
    pub(super) fn lease_for_open(&self, caller: &Caller, node: &Arc<Node>) -> Result<()> {
        let (artifact, base) = {
            let state = node.lock();
            (state.artifact, state.base)
        };
        let seen = self.seen.by(caller, artifact, self.now());
        self.lease(node, seen.or(base), true)?;
        let mut state = node.lock();
        state.unseen |= seen.is_none() && base.is_some() && !state.drafted;
        Ok(())
    }

    /// Sees to it that the bytes that are to be written are protected; cheap while a lease is fresh.
    pub(super) fn lease_for_write(&self, node: &Arc<Node>) -> Result<()> {
        let base = node.lock().base;
        self.lease(node, base, false)
    }

    /// Whether writing needs no word with the catalog.
    pub(super) fn has_fresh_lease(&self, node: &Node) -> bool {
        let (now_ms, epoch) = (self.now().boot_ms, self.epoch());
        let state = node.lock();
        let needs_none = |it: &Unleased| it.found_at == epoch && now_ms < it.until_boot_ms;
        let is_fresh = |it: &HeldLease| {
            it.policy == epoch.policy && now_ms < it.expires_boot_ms && now_ms < it.due_boot_ms
        };
        state.scratch != Scratch::No
            || state.unleased.as_ref().is_some_and(needs_none)
            || state.lease.as_ref().is_some_and(is_fresh)
    }

    fn lease(&self, node: &Arc<Node>, seen: Option<VersionNumber>, opening: bool) -> Result<()> {
        if self.has_fresh_lease(node) {
            return Ok(());
        }
        if self.is_overdue(node) {
            return Err(VfsError::LeaseLost);
        }
        let terms = self.terms_of(node)?;
        let (artifact, id, known) = {
            let state = node.lock();
            (state.artifact, state.id, state.lease)
        };
        let (catalog, now) = (self.workspace.catalog(), self.now());
        let before = catalog.lease(&ResourceKey::Artifact(id))?;
        if let (Some(known), Some(before)) = (known, &before)
            && before.fenced
            && before.generation == known.generation
        {
            // Whoever follows the events takes the draft away.
            return Err(VfsError::LeaseLost);
        }
        let had = before.is_some_and(|l| l.holder == self.options.holder && l.is_live(now));
        let acquired = catalog.acquire(&self.actor(), &[(artifact, seen)]);
        let lease = acquired.inspect_err(|error| self.note_stale(error))?.pop();
        let came_with_open = match known {
            Some(known) => known.came_with_open,
            None => opening && !had,
        };
        let mut state = node.lock();
        state.unleased = lease.is_none().then(|| unleased(&terms, now.boot_ms));
        if let Some(lease) = lease {
            state.lease = Some(HeldLease::new(&lease, now.boot_ms, &terms, came_with_open));
        }
        Ok(())
    }

    /// Gives back a lease that came with a handle which never wrote.
    pub(super) fn give_back_unused(&self, node: &Arc<Node>) {
        // Nobody renews it between the look and the release.
        let claim = node.claim();
        let node = &claim.node;
        let (id, lease) = {
            let mut state = node.lock();
            if state.drafted || state.is_dirty() || state.writers > 0 {
                return;
            }
            state.unseen = false;
            (state.id, state.lease.take())
        };
        let Some(lease) = lease.filter(|lease| lease.came_with_open) else { return };
        if let Err(error) = self.workspace.catalog().release_generation(id, lease.generation, self.now()) {
            self.note_problem(format!(
                "an unused lease could not be given back, and ends by itself: {error}"
            ));
        }
    }

    /// Refuses to replace or take away what a process read in an older version than the head. Tells whether it has read
    /// none, so that replacing it is to be noted.
    pub(super) fn check_seen(&self, caller: &Caller, replaced: Option<&Entry>) -> Result<bool> {
        let is_version =
            |entry: &&Entry| entry.kind == Kind::File && entry.scratch == Scratch::No && !entry.is_drafted();
        let Some(replaced) = replaced.filter(is_version) else { return Ok(false) };
        let Some(head) = replaced.head else { return Ok(false) };
        match self.seen.by(caller, replaced.artifact, self.now()) {
            Some(base) if base < head => {
                let stale = CatalogError::Stale { artifact: replaced.artifact, base, head };
                self.note_stale(&stale);
                Err(stale.into())
            }
            Some(_) => Ok(false),
            None => Ok(!self.seen.is_author(caller, replaced.artifact, self.now())),
        }
    }

    /// As [`Vfs::check_seen`], for what comes to stand on a name: what it replaces may be there, or gone in this checkout.
    /// What comes back to its own name replaces nothing.
    pub(super) fn check_seen_at(
        &self,
        caller: &Caller,
        place: &Place,
        present: Option<&Entry>,
        coming: Option<Seq>,
    ) -> Result<bool> {
        if present.is_some() {
            return self.check_seen(caller, present);
        }
        let gone = self.workspace.catalog().head_at(place)?;
        self.check_seen(caller, gone.as_ref().filter(|gone| Some(gone.artifact) != coming))
    }

    /// Notes that a version was replaced by a process that had not read it.
    pub(super) fn note_overwrite(&self, artifact: Seq) {
        let detail = "saved by a process that had not read the version before";
        self.note_event(EventKind::OverwroteUnseen, artifact, detail);
    }

    fn note_stale(&self, error: &CatalogError) {
        if let CatalogError::Stale { artifact, base, head } = error {
            let detail = format!("a save made on version {base} was refused: the newest is {head}");
            self.note_event(EventKind::StaleSave, *artifact, &detail);
        }
    }

    /// Notes an event that people may ask for later; a failure to do so is only logged.
    pub(super) fn note_event(&self, kind: EventKind, artifact: Seq, detail: &str) {
        let (at, holder) = (self.now().wall, Some(&self.options.holder));
        let event = NewEvent { at, kind, artifact: Some(artifact), holder, detail };
        if let Err(error) = self.workspace.catalog().note(&event) {
            tracing::warn!(%error, detail, "an event could not be noted");
        }
    }
}
