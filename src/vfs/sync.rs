//! Keeping up with what changes the catalog outside of requests: other mounts' check-ins, and this one's commands.

use std::sync::Arc;

use parking_lot::Mutex;

use super::node::{Claim, Fate, HeldLease, Node};
use super::{Result, Vfs, VfsError};
use crate::catalog::{CatalogError, ChangeItem, Event, EventKind, NodePlace};
use crate::engine::{EngineError, PolicyLook, Workspace};
use crate::model::{ArtifactPath, ChangeNumber, Entry, Generation, Ino, Name, ResourceKey, Seq};

/// How far a mount has followed the changes of its workspace. Locking: one mutex, for a look only.
#[derive(Debug)]
pub(super) struct Follower {
    position: Mutex<Position>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    change: ChangeNumber,
    event: i64,
    data_version: i64,
}

/// Paths that the kernel has yet to look up again after a command, and with them all drafts' nodes; none where all is in
/// line. Locking: one mutex, for a look only.
pub(super) type Owed = Mutex<Option<Vec<ArtifactPath>>>;

impl Follower {
    pub fn new(workspace: &Workspace) -> std::result::Result<Self, EngineError> {
        let change = workspace.in_catalog(workspace.catalog().head_change())?;
        let event = workspace.newest_event()?;
        Ok(Self { position: Mutex::new(Position { change, event, data_version: -1 }) })
    }
}

impl Vfs {
    /// Does what time has made due; called some times a second.
    pub fn tick(&self) {
        let now_ms = self.now().boot_ms;
        self.look_at_policy(PolicyLook::NowAndThen);
        self.lose_overdue();
        self.settle_due(now_ms);
        self.check_in_due(now_ms);
        self.give_back_due(now_ms);
        self.delete_worthless();
        self.retry_unpublished(now_ms);
        self.sync_now_and_then(now_ms);
        self.catch_up();
        self.wake();
    }

    /// Does what could not be done after a command.
    fn catch_up(&self) {
        let owed = self.owed.lock().take();
        if let Some(Err(error)) = owed.map(|paths| self.bring_in_line(paths)) {
            tracing::warn!(%error, "still can't be shown");
        }
    }

    /// Brings the nodes of all drafts in line with the catalog, and lets the kernel look paths up again; what fails is
    /// tried at the next tick.
    pub(super) fn bring_in_line(&self, paths: Vec<ArtifactPath>) -> Result<()> {
        let resynced = self.resync_drafts().map_err(VfsError::from);
        let done = resynced.and_then(|()| paths.iter().try_for_each(|path| self.invalidate_path(path)));
        if done.is_err() {
            self.owed.lock().get_or_insert_default().extend(paths);
        }
        done
    }

    /// Tells other checkouts which artifacts have bytes here that no save holds.
    pub(super) fn note_writers(&self) -> std::result::Result<(), CatalogError> {
        let dirty = |node: &Arc<Node>| {
            let state = node.lock();
            let unsaved = state.is_dirty() && state.fate == Fate::Named;
            state.lease.filter(|_| unsaved).map(|lease| (state.artifact, lease.generation))
        };
        let mut writers: Vec<(Seq, Generation)> = self.nodes.all().iter().filter_map(dirty).collect();
        writers.sort_unstable();
        if !self.writers_changed(&writers) {
            return Ok(());
        }
        self.workspace.catalog().set_writers(self.checkout, &writers, self.now())?;
        *self.noted_writers.lock() = writers;
        Ok(())
    }

    fn writers_changed(&self, writers: &[(Seq, Generation)]) -> bool {
        *self.noted_writers.lock() != writers
    }

    /// Looks whether somebody else has committed, and follows.
    pub fn wake(&self) {
        if let Err(error) = self.follow() {
            self.note_problem(format!("other mounts' changes could not be read: {error}"));
        }
    }

    fn follow(&self) -> std::result::Result<(), CatalogError> {
        let catalog = self.workspace.catalog();
        let data_version = catalog.data_version()?;
        let position = *self.follower.position.lock();
        if position.data_version == data_version {
            return Ok(());
        }
        self.follow_access()?;
        let items = catalog.changes_since(position.change)?;
        let change = items.iter().map(|item| item.change).max().unwrap_or(position.change);
        self.apply_changes(&items)?;
        let (told, event) = catalog.told(&self.options.holder, position.event)?;
        told.iter().for_each(|event| self.ended_by_hand(event));
        let mut present = self.follower.position.lock();
        if present.change <= change {
            *present = Position { change, event: event.max(present.event), data_version };
        }
        Ok(())
    }

    /// Lets who writes under a generation that somebody ended learn it; who only reads goes on.
    fn ended_by_hand(&self, event: &Event) {
        let Some(lease) = event.lease.as_ref().filter(|_| event.kind != EventKind::Asked.as_str()) else {
            return;
        };
        for node in self.nodes.all() {
            if node.lock().lease.is_some_and(|held| held.generation == lease.generation) {
                self.fenced(&node.claim(), lease.generation, &format!("{} {}", event.kind, event.detail));
            }
        }
    }

    /// Takes the draft away from who writes it under a generation that was ended by hand.
    fn fenced(&self, claim: &Claim, generation: Generation, reason: &str) {
        let writes = {
            let mut state = claim.node.lock();
            if state.lease.is_none_or(|held| held.generation != generation) {
                return;
            }
            let writes = state.writers > 0 || state.is_dirty();
            if !writes {
                state.lease = None;
            }
            writes
        };
        if writes {
            self.detach_claimed(claim, reason);
        }
    }

    fn apply_changes(&self, items: &[ChangeItem]) -> std::result::Result<(), CatalogError> {
        if items.is_empty() {
            return Ok(());
        }
        self.epochs.names_changed();
        let artifacts: Vec<Seq> = items.iter().map(|item| item.artifact).collect();
        self.resync(&artifacts)?;
        let places = items.iter().flat_map(|item| [&item.before, &item.after]);
        for place in places.flatten() {
            self.forget_place(place);
        }
        Ok(())
    }

    fn forget_place(&self, place: &NodePlace) {
        if let Some(dir) = self.nodes.get(place.parent_ino)
            && let Err(error) = self.resync_node(&dir)
        {
            tracing::warn!(%error, "a directory's attributes could not be read");
        }
        self.tell_name(place.parent_ino, &place.place.name);
    }

    /// Lets the kernel forget what it knows of a name, and of the listing of its directory.
    pub(super) fn tell_name(&self, parent: Ino, name: &Name) {
        if let Some(dir) = self.nodes.get(parent) {
            dir.lock().listing_changed = true;
        }
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.entry(parent, name);
            invalidate.attributes(parent);
        }
    }

    /// Brings the nodes of some artifacts in line with the catalog.
    pub(super) fn resync(&self, artifacts: &[Seq]) -> std::result::Result<(), CatalogError> {
        for node in self.nodes.of_artifacts(artifacts) {
            self.resync_node(&node)?;
        }
        Ok(())
    }

    /// Brings every node that a command may have changed in line with the catalog.
    pub(super) fn resync_drafts(&self) -> std::result::Result<(), CatalogError> {
        for node in self.nodes.all() {
            let concerned = {
                let state = node.lock();
                state.fate == Fate::Named && (state.drafted || !state.immutable)
            };
            if concerned {
                self.resync_node(&node)?;
            }
        }
        Ok(())
    }

    fn resync_node(&self, node: &Arc<Node>) -> std::result::Result<(), CatalogError> {
        self.resync_claimed(&node.claim())
    }

    pub(super) fn resync_claimed(&self, claim: &Claim) -> std::result::Result<(), CatalogError> {
        let node = &claim.node;
        let (artifact, fate) = {
            let state = claim.node.lock();
            (state.artifact, state.fate)
        };
        if fate != Fate::Named {
            return Ok(());
        }
        let entry = self.workspace.catalog().entry_of(self.checkout, artifact)?;
        match entry {
            Some(entry) if entry.ino == node.ino => self.refresh_node(claim, &entry)?,
            Some(entry) if self.is_waiting_for_bytes(claim, &entry) => {}
            Some(entry) if self.is_continued(claim, &entry) => self.move_base(claim, &entry)?,
            _ => self.replaced(claim, "the head moved, or the draft was taken away, while the file was open"),
        }
        Ok(())
    }

    /// A working node that the catalog has no draft for stays as it is while the head does.
    fn is_waiting_for_bytes(&self, claim: &Claim, entry: &Entry) -> bool {
        let state = claim.node.lock();
        !state.drafted && !state.immutable && !entry.is_drafted() && entry.head == state.base
    }

    /// Whether this checkout's own check-in made a version of what the node held, and somebody goes on writing to it.
    fn is_continued(&self, claim: &Claim, entry: &Entry) -> bool {
        let state = claim.node.lock();
        state.drafted && state.writers > 0 && !entry.is_drafted() && state.checked_in == entry.head
    }

    /// Lets a node with open writers go on from the version that its last save became.
    fn move_base(&self, claim: &Claim, entry: &Entry) -> std::result::Result<(), CatalogError> {
        self.refresh_lease(claim, entry)?;
        {
            let mut state = claim.node.lock();
            state.base = entry.head;
            state.version_ino = Some(entry.ino);
            state.drafted = false;
        }
        self.nodes.switch_to(entry.artifact, claim.node.ino);
        // The kernel has the draft's number; it is the version's that shows until somebody writes again.
        self.tell_attributes(claim.node.ino);
        Ok(())
    }

    /// A lease that was given back, or lost to somebody else, is asked for again at the next write.
    fn refresh_lease(&self, claim: &Claim, entry: &Entry) -> std::result::Result<(), CatalogError> {
        let lease = self.workspace.catalog().lease(&ResourceKey::Artifact(entry.id))?;
        let mine = lease.filter(|lease| lease.holder == self.options.holder);
        let mut state = claim.node.lock();
        let is_known = |known: &HeldLease| mine.as_ref().is_some_and(|l| l.generation == known.generation);
        state.lease = state.lease.filter(is_known);
        Ok(())
    }

    fn refresh_node(&self, claim: &Claim, entry: &Entry) -> std::result::Result<(), CatalogError> {
        self.refresh_lease(claim, entry)?;
        let changed = claim.node.lock().refresh(entry, self.shown_attrs(entry));
        if changed {
            self.invalidate_content(claim.node.ino);
        } else {
            self.tell_attributes(claim.node.ino);
        }
        Ok(())
    }

    /// The name means other bytes now: who has the old ones open goes on with them.
    fn replaced(&self, claim: &Claim, reason: &str) {
        let (writes, artifact) = {
            let state = claim.node.lock();
            (state.writers > 0 || state.is_dirty(), state.artifact)
        };
        if writes {
            self.detach_claimed(claim, reason);
        } else {
            claim.node.lock().fate = Fate::Replaced;
            self.nodes.unswitch_from(artifact, claim.node.ino);
            self.invalidate_name(artifact);
            self.tell_attributes(claim.node.ino);
        }
    }

    pub(super) fn tell_attributes(&self, ino: Ino) {
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.attributes(ino);
        }
    }

    /// Lets the kernel look an artifact's name up again.
    pub(super) fn invalidate_name(&self, artifact: Seq) {
        let catalog = self.workspace.catalog();
        let Ok(Some(entry)) = catalog.entry_of(self.checkout, artifact) else { return };
        if let Ok(Some(parent)) = catalog.entry_of(self.checkout, entry.parent) {
            self.tell_name(parent.ino, &entry.name);
        }
    }

    /// Lets the kernel look a path's name up again.
    pub(super) fn invalidate_path(&self, path: &ArtifactPath) -> Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        if let Some(dir) = self.workspace.catalog().resolve(self.checkout, &parent)? {
            self.tell_name(dir.ino, name);
        }
        Ok(())
    }
}
