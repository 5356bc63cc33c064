//! Working files and saves: how bytes become a draft, and what becomes of those that can't.
//!
//! The first write after a save goes to a new working file, a copy of the save, so that a save is never changed:
//! whatever happens, the draft is the last save, whole. A save seals the working file by naming it in the catalog;
//! the publisher makes it a blob. Scratch and `live` files are written in place instead.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use super::error::io;
use super::handles::OpenFile;
use super::node::{Claim, Fate, HeldLease, KnownTerms, Node, Working};
use super::publisher::SealedSave;
use super::terms::NOT_RENEWED;
use super::{Caller, Handle, Result, Vfs, VfsError};
use crate::catalog::{CatalogError, Durability, EventKind, Place, Save, Saved};
use crate::engine::{RecoveryMeta, ScratchName, StagingName, StagingRole, Unsaved};
use crate::model::{Content, Entry, Ino, Kind, Scratch, Seq, VersionNumber};
use crate::sys;

/// What a save is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// A handle was closed or a file renamed: an empty cut alone is not yet a save.
    Flush,
    /// Whatever there is is the save.
    Save,
    /// fsync(2): as [`Closing::Save`], and it survives a power cut.
    Sync,
}

impl Vfs {
    /// Answers close(2) of one descriptor: what was written is the draft now, or the bytes are put aside.
    pub fn flush(&self, _caller: &Caller, handle: Handle) -> Result<()> {
        let open = self.handles.get(handle)?;
        if !open.write {
            return Ok(());
        }
        let saved = self.save_opened(&open, Closing::Flush)?;
        if saved && self.is_due_on_disk(&open.node) {
            return self.save(&open.node, Closing::Sync);
        }
        Ok(())
    }

    /// Whether closing may take longer than a commit without a sync.
    pub fn flush_may_block(&self, handle: Handle) -> bool {
        let Ok(open) = self.handles.get(handle) else { return false };
        open.write && self.is_due_on_disk(&open.node) && open.node.lock().is_dirty()
    }

    /// Makes what was written the draft, and durable.
    pub fn fsync(&self, handle: Handle, _data_only: bool) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.save_opened(&open, Closing::Sync).map(drop)
    }

    /// Saves what was written through a handle's node, and notes its opener as the author; tells whether there was any.
    fn save_opened(&self, open: &OpenFile, closing: Closing) -> Result<bool> {
        let dirty = open.node.lock().is_dirty();
        self.save(&open.node, closing)?;
        Ok(dirty && self.note_saved_by(&open.opener, &open.node))
    }

    /// Notes the author of a save; tells whether all is saved.
    pub(super) fn note_saved_by(&self, author: &Caller, node: &Node) -> bool {
        let (artifact, saved) = {
            let state = node.lock();
            (state.artifact, !state.is_dirty())
        };
        if saved {
            self.seen.note_author(author, artifact, self.now());
        }
        saved
    }

    /// Closes a handle for good: what came after the last flush (mapped pages do) is saved too.
    pub fn release(&self, handle: Handle) {
        let Some(open) = self.handles.remove(handle) else { return };
        let last_writer = {
            let mut state = open.node.lock();
            state.handles -= 1;
            state.writers -= u32::from(open.write);
            open.write && state.writers == 0
        };
        if last_writer {
            self.after_last_writer(&open);
        }
        self.after_handle(&open);
    }

    fn after_last_writer(&self, open: &OpenFile) {
        let node = &open.node;
        let (dirty, emptied, fate, tainted) = {
            let state = node.lock();
            // Somebody opened it again meanwhile: his bytes are his to close.
            if state.writers > 0 {
                return;
            }
            (state.is_dirty(), state.is_emptied(), state.fate, state.tainted)
        };
        match fate {
            Fate::Detached => self.put_aside(node, "the lease was lost while the file was being written"),
            Fate::Named if tainted => self.put_aside(node, "a write of the file failed"),
            Fate::Named if emptied => self.pending.add_emptied(node, self.grace_deadline()),
            Fate::Named if dirty => self.save_at_release(open),
            Fate::Named | Fate::Unlinked | Fate::Replaced => {}
        }
        self.give_back_unused(node);
        self.settle_name(node);
        let (artifact, scratch, drafted) = {
            let state = node.lock();
            (state.artifact, state.scratch, state.drafted)
        };
        if drafted {
            self.check_in_later(artifact, scratch);
        }
    }

    /// Nobody hears an error of a release: what can't be saved is put aside, and told in `status`.
    fn save_at_release(&self, open: &OpenFile) {
        let node = &open.node;
        if let Err(error) = self.save(node, Closing::Save) {
            self.note_problem(format!(
                "inode {}: what was written last could not be saved: {error}",
                node.ino
            ));
            self.put_aside(node, "the last bytes of the file could not be saved");
        } else {
            self.note_saved_by(&open.opener, node);
        }
    }

    /// After the last writer of a node without a draft, the name is the version again: this node, if a check-in made
    /// it the version's, or the one that it was switched from.
    fn settle_name(&self, node: &Arc<Node>) {
        let (artifact, undrafted) = {
            let state = node.lock();
            let clean = state.writers == 0 && state.working.is_none();
            (state.artifact, clean && !state.drafted && state.fate == Fate::Named)
        };
        if !undrafted {
            return;
        }
        let switched = self.nodes.unswitch_from(artifact, node.ino);
        match self.workspace.catalog().entry_of(self.checkout, artifact) {
            Ok(Some(entry)) if entry.ino == node.ino => {
                node.lock().refresh(&entry, self.shown_attrs(&entry));
            }
            Ok(_) if switched => self.invalidate_name(artifact),
            Ok(_) => {}
            Err(error) => self.note_problem(format!("artifact {artifact}: its name can't be read: {error}")),
        }
    }

    /// Lets go of what only open handles need.
    fn after_handle(&self, open: &OpenFile) {
        let fate = {
            let mut state = open.node.lock();
            if state.handles > 0 {
                return;
            }
            state.file = None;
            // A clean working file is one that is written in place: its handle goes, its bytes stay.
            if state.is_direct() && state.fate == Fate::Named {
                state.working = None;
            }
            state.fate
        };
        match fate {
            Fate::Detached => {
                self.put_aside(&open.node, "the lease was lost while the file was being written")
            }
            Fate::Unlinked => self.drop_files(&open.node),
            Fate::Named | Fate::Replaced => {}
        }
        // Putting aside takes time, in which the kernel may forget the node, or look it up again: forget looks itself.
        self.forget(open.node.ino, 0);
    }

    /// Makes the unsaved bytes of a node its draft; nothing if there are none.
    pub(super) fn save(&self, node: &Arc<Node>, closing: Closing) -> Result<()> {
        let claim = node.claim();
        self.save_claimed(&claim, closing)
    }

    pub(super) fn save_claimed(&self, claim: &Claim, closing: Closing) -> Result<()> {
        if self.is_overdue(&claim.node) {
            self.detach_claimed(claim, NOT_RENEWED);
        }
        let durable = closing == Closing::Sync;
        let (fate, lost, tainted, working) = {
            let state = claim.node.lock();
            let working = state.working.as_ref().filter(|working| working.dirty);
            let working = working.map(|w| (w.emptied, Arc::clone(&w.file), w.name.clone()));
            (state.fate, state.lost, state.tainted, working)
        };
        match (fate, working) {
            (Fate::Detached, working) if lost || working.is_some() => Err(VfsError::LeaseLost),
            _ if tainted => Err(VfsError::Tainted),
            (Fate::Named, Some((emptied, file, name))) => {
                if emptied && closing == Closing::Flush {
                    return Ok(());
                }
                self.seal(claim, &file, &name, durable)
            }
            (Fate::Named, _) if durable => self.sync_saved(claim),
            _ => Ok(()),
        }
    }

    /// Makes the last save survive a power cut.
    pub(super) fn sync_saved(&self, claim: &Claim) -> Result<()> {
        let content = claim.node.lock().content.clone();
        let saved = matches!(content, Content::Staged(_) | Content::Direct(_));
        if saved && let Some(file) = self.open_content(&claim.node)? {
            self.sync_file(claim, &file)?;
        }
        match content {
            Content::Staged(file) => self.workspace.catalog().note_synced(&file)?,
            _ => self.workspace.catalog().sync()?,
        }
        claim.node.lock().unsynced_since_ms = None;
        Ok(())
    }

    /// Syncs a working file; a failed sync is final, since the kernel forgets which pages it lost.
    fn sync_file(&self, claim: &Claim, file: &File) -> Result<()> {
        let synced = file.sync_all().and_then(|()| self.sync_names());
        if synced.is_err() {
            self.taint(claim);
        }
        synced.map_err(io("sync a working file"))
    }

    /// Makes the names of working files durable, where syncing the files does not.
    fn sync_names(&self) -> std::io::Result<()> {
        if self.names_synced_with_files { Ok(()) } else { self.staging.sync_all() }
    }

    fn taint(&self, claim: &Claim) {
        claim.node.lock().tainted = true;
    }

    fn seal(&self, claim: &Claim, file: &Arc<File>, name: &str, durable: bool) -> Result<()> {
        if durable {
            self.sync_file(claim, file)?;
        }
        let (content, direct) = {
            let state = claim.node.lock();
            let direct = state.is_direct();
            (if direct { state.content.clone() } else { Content::Staged(name.to_owned()) }, direct)
        };
        let terms = self.terms_of(&claim.node)?;
        let save = self.present_save(claim, content);
        let durability = if durable { Durability::Full } else { Durability::Grouped };
        match self.workspace.catalog().save(&self.actor(), &save, durability) {
            Ok(saved) if direct => {
                self.sealed_in_place(claim, &saved, &terms);
                Ok(())
            }
            Ok(saved) => {
                self.sealed(claim, (file, &save), &saved, &terms);
                Ok(())
            }
            Err(
                CatalogError::LeaseLost { .. }
                | CatalogError::Stale { .. }
                | CatalogError::Held { .. }
                | CatalogError::Quarantined { .. },
            ) => {
                self.detach_claimed(claim, "the lease was lost before the file was saved");
                Err(VfsError::LeaseLost)
            }
            Err(error) => {
                self.taint(claim);
                Err(error.into())
            }
        }
    }

    fn sealed_in_place(&self, claim: &Claim, saved: &Saved, terms: &KnownTerms) {
        let now = self.now().boot_ms;
        let mut state = claim.node.lock();
        state.content_size = state.size;
        state.drafted = true;
        if let Some(lease) = &saved.lease {
            state.lease = Some(HeldLease::new(lease, now, terms, false));
        }
        if let Some(working) = &mut state.working {
            working.dirty = false;
        }
    }

    fn sealed(&self, claim: &Claim, (file, save): (&Arc<File>, &Save), saved: &Saved, terms: &KnownTerms) {
        let now = self.now().boot_ms;
        let unseen = {
            let mut state = claim.node.lock();
            state.content = save.content.clone();
            state.content_size = save.size;
            state.unsynced_since_ms = saved.unsynced_since_ms;
            state.file = (state.handles > 0).then(|| Arc::clone(file));
            state.working = None;
            state.drafted = true;
            if let Some(lease) = &saved.lease {
                state.lease = Some(HeldLease::new(lease, now, terms, false));
            }
            std::mem::take(&mut state.unseen)
        };
        self.nodes.unswitch(save.artifact);
        if unseen {
            self.note_overwrite(save.artifact);
        }
        if let Content::Staged(name) = &save.content {
            self.publish_soon(save.artifact, save.ino, name);
        }
        if saved.before != save.content {
            self.drop_replaced(saved);
        }
    }

    fn drop_replaced(&self, saved: &Saved) {
        if saved.before_may_return {
            self.delete_later(saved.before.clone());
        } else {
            self.delete_soon(saved.before.clone());
        }
    }

    fn publish_soon(&self, artifact: Seq, ino: Ino, name: &str) {
        self.publisher.push(SealedSave { artifact, ino, name: name.to_owned() });
    }

    /// Queues a staged content that a name got by other means than a save.
    pub(super) fn publish_later(&self, entry: &Entry) {
        if let (Content::Staged(name), Scratch::No) = (&entry.content, entry.scratch) {
            self.publish_soon(entry.artifact, entry.ino, name);
        }
    }

    /// Gives a node a working file that holds its last save, or the first `keep` bytes of it.
    pub(super) fn begin_working(&self, node: &Arc<Node>, keep: Option<u64>) -> Result<()> {
        if node.lock_idle().working.is_some() {
            return Ok(());
        }
        let claim = node.claim();
        if claim.node.lock().working.is_some() {
            return Ok(());
        }
        let working = if self.is_written_in_place(&claim.node)? {
            self.begin_in_place(&claim)?
        } else {
            self.begin_copy(&claim, keep)?
        };
        let path = working.path.clone();
        let unlinked = {
            let mut state = claim.node.lock();
            state.working = Some(working);
            state.fate == Fate::Unlinked
        };
        // Bytes without a name are nobody's after a crash.
        if unlinked { fs::remove_file(path).map_err(io("unlink a working file")) } else { Ok(()) }
    }

    fn is_written_in_place(&self, node: &Node) -> Result<bool> {
        let (scratch, direct, fate, artifact) = {
            let state = node.lock();
            (state.scratch != Scratch::No, state.is_direct(), state.fate, state.artifact)
        };
        if scratch || direct || fate != Fate::Named {
            return Ok(scratch || direct);
        }
        let entry = self.workspace.catalog().entry_of(self.checkout, artifact)?;
        Ok(entry.is_some_and(|entry| self.workspace.policy().live.is_match(&entry.name)))
    }

    fn begin_copy(&self, claim: &Claim, keep: Option<u64>) -> Result<Working> {
        let source = if keep == Some(0) { None } else { self.open_content(&claim.node)? };
        let (artifact, base, size) = {
            let state = claim.node.lock();
            // A detached node reads from what was put aside, which no save holds.
            let size = if state.fate == Fate::Detached { state.size } else { state.content_size };
            (state.artifact, state.base, keep.unwrap_or(u64::MAX).min(size))
        };
        let name = self.staging_name(StagingRole::Working, artifact, base);
        let path = self.workspace.layout().staging().join(&name);
        self.begin_file(name, path, source.as_deref(), size)
    }

    fn staging_name(&self, role: StagingRole, artifact: Seq, base: Option<VersionNumber>) -> String {
        let token = self.workspace.ids().token();
        StagingName { role, checkout: self.checkout, artifact, base, token }.to_string()
    }

    fn begin_in_place(&self, claim: &Claim) -> Result<Working> {
        let (content, artifact, size) = {
            let state = claim.node.lock();
            (state.content.clone(), state.artifact, state.content_size)
        };
        let scratch = self.workspace.layout().scratch();
        if let Content::Direct(name) = content {
            let file = self.open_content(&claim.node)?.ok_or(VfsError::BadHandle)?;
            let path = scratch.join(&name);
            return Ok(Working { name, path, file, dirty: false, emptied: false });
        }
        let source = self.open_content(&claim.node)?;
        let token = self.workspace.ids().token();
        let name = ScratchName { checkout: self.checkout, artifact, token }.to_string();
        let path = scratch.join(&name);
        let working = self.begin_file(name.clone(), path, source.as_deref(), size)?;
        if claim.node.lock().scratch == Scratch::No {
            // From now on the file is all that the draft has.
            self.sync_in_place(&working.file)?;
        }
        self.adopt_in_place(claim, name)?;
        Ok(working)
    }

    /// Tells the catalog that a node is written in place from now on.
    fn adopt_in_place(&self, claim: &Claim, name: String) -> Result<()> {
        let save = self.present_save(claim, Content::Direct(name));
        let named = claim.node.lock().fate == Fate::Named;
        if named {
            let saved = self.workspace.catalog().save(&self.actor(), &save, Durability::Grouped)?;
            self.delete_later(saved.before);
            self.nodes.unswitch(save.artifact);
        }
        let mut state = claim.node.lock();
        state.content = save.content;
        state.drafted |= named;
        Ok(())
    }

    /// Makes a file with a copy of the first `size` bytes of another one.
    fn begin_file(&self, name: String, path: PathBuf, source: Option<&File>, size: u64) -> Result<Working> {
        let file = sys::create_private(&path).map_err(io("make a working file"))?;
        let copied = source.map_or(Ok(()), |source| sys::copy_bytes(source, &file, size));
        if let Err(source) = copied {
            let _ = fs::remove_file(&path);
            return Err(VfsError::Io { doing: "copy the last save", source });
        }
        Ok(Working { name, path, file: Arc::new(file), dirty: false, emptied: false })
    }

    /// Before a rename, what the moved file holds is a save; a file whose writing failed may not replace a document.
    pub(super) fn save_before_rename(
        &self,
        claim: &Claim,
        target: Option<&Entry>,
        to: Scratch,
    ) -> Result<()> {
        let (kind, tainted, unnamed) = {
            let state = claim.node.lock();
            let switched = !state.drafted && state.base.is_some() && !state.immutable;
            (state.kind, state.tainted, switched)
        };
        if kind != Kind::File {
            return Ok(());
        }
        if tainted {
            let replaces = target.is_some_and(|target| target.scratch == Scratch::No) || to == Scratch::No;
            return if replaces { Err(VfsError::Tainted) } else { Ok(()) };
        }
        self.save_claimed(claim, Closing::Save)?;
        if unnamed { self.save_number(claim) } else { Ok(()) }
    }

    /// Makes the catalog know an unchanged working node by its number, so that a rename takes it along.
    pub(super) fn save_number(&self, claim: &Claim) -> Result<()> {
        self.lease_for_write(&claim.node)?;
        let (drafted, content) = {
            let state = claim.node.lock();
            (state.drafted, state.content.clone())
        };
        if drafted {
            return Ok(());
        }
        let save = self.present_save(claim, content);
        self.workspace.catalog().save(&self.actor(), &save, Durability::Grouped)?;
        claim.node.lock().drafted = true;
        Ok(())
    }

    /// Seals a file that was written in place before it comes to a name that is not: its bytes get a second link in
    /// `staging/`, which becomes its save; then the first one goes, so that nothing writable shares them. What comes to the
    /// name of a `live` file stays where it is, and is on the disk before.
    pub(super) fn seal_in_place(&self, claim: &Claim, to: Scratch, place: &Place) -> Result<()> {
        let (name, artifact, base, was_live) = {
            let state = claim.node.lock();
            match &state.content {
                Content::Direct(name) => {
                    (name.clone(), state.artifact, state.base, state.scratch == Scratch::No)
                }
                _ => return Ok(()),
            }
        };
        if to != Scratch::No && self.workspace.catalog().head_at(place)?.is_none() {
            return Ok(());
        }
        let becomes_live = self.workspace.policy().live.is_match(&place.name);
        if (was_live || becomes_live)
            && let Some(file) = self.open_content(&claim.node)?
        {
            self.sync_in_place(&file)?;
        }
        if becomes_live {
            return Ok(());
        }
        let layout = self.workspace.layout();
        let sealed = self.staging_name(StagingRole::Sealed, artifact, base);
        let path = layout.staging().join(&sealed);
        fs::hard_link(layout.scratch().join(&name), &path).map_err(io("seal a scratch file"))?;
        let save = self.present_save(claim, Content::Staged(sealed));
        let durability = if was_live { Durability::Full } else { Durability::Grouped };
        let saved = self.workspace.catalog().save(&self.actor(), &save, durability);
        if let Err(error) = saved {
            let _ = fs::remove_file(&path);
            return Err(error.into());
        }
        let file = File::open(&path).map_err(io("open a save"))?;
        {
            let mut state = claim.node.lock();
            state.content = save.content;
            state.content_size = state.size;
            state.working = None;
            state.file = (state.handles > 0).then(|| Arc::new(file));
        }
        self.delete_files(&Content::Direct(name));
        Ok(())
    }

    /// A save of a node as it is, with its bytes in a place that the caller knows.
    fn present_save(&self, claim: &Claim, content: Content) -> Save {
        let state = claim.node.lock();
        Save {
            artifact: state.artifact,
            ino: claim.node.ino,
            content,
            size: state.size,
            attrs: state.attrs,
            base: state.base,
            generation: state.lease.map(|lease| lease.generation),
        }
    }

    /// Deletes the file of a content that no draft has any more, nor has again after a power cut: for what may come back
    /// there is [`Vfs::delete_later`].
    pub(super) fn delete_files(&self, content: &Content) {
        let layout = self.workspace.layout();
        let path = match content {
            Content::Staged(name) => layout.staging().join(name),
            Content::Direct(name) => layout.scratch().join(name),
            Content::None | Content::Blob(_) | Content::Target(_) => return,
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                self.note_problem(format!("can't remove {}: {error}", path.display()));
            }
            _ => {}
        }
    }

    /// Deletes the files of a node without a name: open handles keep what they have open.
    pub(super) fn drop_files(&self, node: &Node) {
        let (content, scratch, working) = {
            let state = node.lock();
            let unnamed = state.working.as_ref().filter(|_| !state.is_direct());
            (state.content.clone(), state.scratch, unnamed.map(|working| working.path.clone()))
        };
        self.drop_content(content, scratch);
        if let Some(path) = working {
            let _ = fs::remove_file(path);
        }
    }

    /// Deletes the file of a content whose name is gone. A power cut may bring the name back: nobody needs a scratch file
    /// then.
    pub(super) fn drop_content(&self, content: Content, scratch: Scratch) {
        match scratch {
            Scratch::No => self.delete_later(content),
            Scratch::Provisional | Scratch::Yes => self.delete_files(&content),
        }
    }

    /// Takes a node's draft away under its open handles: what they write becomes a recovery copy.
    pub(super) fn detach(&self, node: &Arc<Node>, reason: &str) {
        let claim = node.claim();
        self.detach_claimed(&claim, reason);
    }

    pub(super) fn detach_claimed(&self, claim: &Claim, reason: &str) {
        let unsaved = self.wanted_of(claim.node.lock().lease);
        let (artifact, was_named, loses) = {
            let mut state = claim.node.lock();
            let was_named = state.fate == Fate::Named;
            // Whoever opened without a lease and has written nothing loses nothing.
            let loses = state.lease.is_some() || state.drafted || state.is_dirty();
            state.fate = Fate::Detached;
            state.lost |= state.is_dirty();
            state.lease = None;
            state.unsaved = unsaved;
            (state.artifact, was_named, loses)
        };
        if !was_named {
            return;
        }
        if loses {
            self.note_event(EventKind::LeaseLost, artifact, reason);
        }
        self.nodes.unswitch_from(artifact, claim.node.ino);
        self.put_aside_claimed(claim, reason);
        self.invalidate_name(artifact);
        self.tell_attributes(claim.node.ino);
    }

    /// What somebody said is to become of bytes that were written under a lease; where nobody can tell, they are kept.
    fn wanted_of(&self, lease: Option<HeldLease>) -> Unsaved {
        let discarded = lease.map(|lease| self.workspace.catalog().is_discarded(lease.generation));
        if matches!(discarded, Some(Ok(true))) { Unsaved::Discard } else { Unsaved::Keep }
    }

    /// Whether what a detached node is written to in place is no draft's content any more.
    fn is_orphan_in_place(&self, claim: &Claim) -> bool {
        let (artifact, content) = {
            let state = claim.node.lock();
            if state.fate != Fate::Detached || state.handles > 0 || !state.is_direct() {
                return false;
            }
            (state.artifact, state.content.clone())
        };
        let entry = self.workspace.catalog().entry_of(self.checkout, artifact);
        entry.is_ok_and(|entry| entry.is_none_or(|entry| entry.content != content))
    }

    /// Lets open handles read the last save again.
    fn reopen_saved(&self, node: &Node) {
        let saved = {
            let mut state = node.lock();
            state.file = None;
            state.handles > 0
        };
        if !saved {
            return;
        }
        match self.open_content(node) {
            Ok(file) => node.lock().file = file,
            Err(error) => {
                self.note_problem(format!("inode {}: its last save can't be read: {error}", node.ino))
            }
        }
    }

    /// Makes unsaved bytes a recovery copy; the node shows its last save again.
    pub(super) fn put_aside(&self, node: &Arc<Node>, reason: &str) {
        let claim = node.claim();
        self.put_aside_claimed(&claim, reason);
    }

    fn put_aside_claimed(&self, claim: &Claim, reason: &str) {
        let orphan = self.is_orphan_in_place(claim);
        let (working, artifact, id, base, named, unsaved) = {
            let mut state = claim.node.lock();
            let direct = state.is_direct();
            let taken = if direct && !orphan { None } else { state.working.take() };
            let named = state.fate == Fate::Named;
            if let Some(working) = taken.as_ref().filter(|_| !named) {
                // Handles go on reading what they wrote.
                state.file = (state.handles > 0).then(|| Arc::clone(&working.file));
            } else if taken.is_some() {
                state.size = state.content_size;
            }
            (taken, state.artifact, state.id, state.base, named, state.unsaved)
        };
        if named {
            self.reopen_saved(&claim.node);
        }
        let Some(working) = working.filter(|working| working.dirty) else { return };
        if unsaved == Unsaved::Discard {
            // What can't be removed now is found, and listed, at the next mount.
            let _ = fs::remove_file(&working.path);
            return self.invalidate_content(claim.node.ino);
        }
        let path = self.workspace.catalog().any_path_of(self.checkout, artifact).unwrap_or_default();
        let (holder, reason) = (self.options.holder.clone(), reason.to_owned());
        let meta = RecoveryMeta { artifact: Some(id), path, base, holder, reason };
        let kept = if orphan { give_name_again(&working) } else { Ok(()) };
        if let Err(error) = kept {
            self.note_problem(format!("{}: the last bytes of a reverted file are lost: {error}", meta.path));
        } else if let Err(error) = self.workspace.put_aside(&working.path, &meta) {
            self.note_problem(format!(
                "unsaved bytes stay in {} until the next mount: {error}",
                working.path.display()
            ));
        }
        self.invalidate_content(claim.node.ino);
    }
}

/// Gives a file that a revert has removed while it was open its name again, as a copy.
fn give_name_again(working: &Working) -> std::io::Result<()> {
    let copy = match sys::create_private(&working.path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    };
    sys::copy_bytes(&working.file, &copy, u64::MAX).inspect_err(|_| drop(fs::remove_file(&working.path)))
}
