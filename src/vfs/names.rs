//! Names: look-up, listing, and everything that makes, moves or removes one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::attr::{EXECUTE, WRITE};
use super::node::{Claim, Fate, Node};
use super::{Caller, DirEntry, NodeAttr, OpenRequest, Opened, Result, Vfs, VfsError};
use crate::catalog::{NewEntry, Place, RenameMode, RenameRequest, Renamed};
use crate::model::{Attrs, Content, Entry, Ino, Kind, Name, NameClass, NameError, Scratch, Seq};

/// How many entries of a directory are read at a time.
const LISTING_BATCH: usize = 512;

/// Cookies below this are `.` and `..`; an artifact's is its number plus this.
const FIRST_COOKIE: u64 = 2;

/// The nodes that a rename changes; what an exchange swaps are two.
struct RenameClaims {
    source: Claim,
    target: Option<Claim>,
}

impl RenameClaims {
    fn any_is_dirty(&self) -> bool {
        std::iter::once(&self.source).chain(&self.target).any(|claim| claim.node.lock().is_dirty())
    }
}

impl Vfs {
    /// Finds what a name stands for, and counts one reference of the kernel's.
    pub fn lookup(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<NodeAttr> {
        let place = self.place(caller, parent, name)?;
        let entry = self.seen_at(&place)?.ok_or(VfsError::NotFound)?;
        let node = self.node_of(&entry);
        node.count_lookup();
        self.attr_of(&node)
    }

    /// Takes back references of the kernel's.
    pub fn forget(&self, ino: Ino, count: u64) {
        let Some(node) = self.nodes.get(ino) else { return };
        node.forget_lookups(count);
        let unused = !node.is_known() && node.lock().handles == 0;
        drop(node);
        if unused {
            self.nodes.remove_if(ino, |node| is_forgettable(node));
        }
    }

    /// The node of an entry: the working node that the name was switched to, or the one of its inode number.
    pub(super) fn node_of(&self, entry: &Entry) -> Arc<Node> {
        if let Some(working) = self.nodes.switched(entry.artifact) {
            if let Some(version) = self.nodes.get(entry.ino) {
                version.lock().reopen_sent.clear();
            }
            return working;
        }
        let node = self.nodes.get_or_insert(entry.ino, || self.new_node(entry));
        let other = {
            let mut state = node.lock();
            state.reopen_sent.clear();
            state.artifact != entry.artifact || state.fate != Fate::Named
        };
        if other { self.alias(entry).unwrap_or(node) } else { node }
    }

    fn new_node(&self, entry: &Entry) -> Node {
        let node = Node::of(entry, self.shown_attrs(entry));
        // What is written in place has the size of its file: where a save failed, its row has not heard of the last bytes.
        if let Content::Direct(name) = &entry.content
            && let Ok(file) = std::fs::metadata(self.workspace.layout().scratch().join(name))
        {
            let mut state = node.lock();
            state.size = file.len();
            state.content_size = file.len();
        }
        node
    }

    /// A node of its own for a name whose number another node has: a version that was moved away as a backup keeps its
    /// number there, and a revert brings the same version back to its name.
    fn alias(&self, entry: &Entry) -> Option<Arc<Node>> {
        let ino = self.workspace.catalog().next_ino().ok()?;
        let node = Node::of(&Entry { ino, ..entry.clone() }, self.shown_attrs(entry));
        node.lock().immutable = entry.kind == Kind::File && !entry.is_drafted();
        Some(self.nodes.switch(entry.artifact, entry.ino, node))
    }

    /// The node that the kernel named; the root and those of an earlier mount are found in the catalog.
    pub(super) fn node(&self, ino: Ino) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.get(ino) {
            return Ok(node);
        }
        if ino != Ino::ROOT {
            return Err(VfsError::Reopen);
        }
        let root = self.workspace.catalog().entry_of(self.checkout, Seq::ROOT)?.ok_or(VfsError::NotFound)?;
        Ok(self.node_of(&root))
    }

    /// The directory of an inode number.
    fn directory(&self, ino: Ino) -> Result<Arc<Node>> {
        let node = self.node(ino)?;
        let kind = node.lock().kind;
        if kind == Kind::Directory { Ok(node) } else { Err(VfsError::NotDirectory) }
    }

    fn place(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<Place> {
        let dir = self.directory(parent)?;
        self.check_access(caller, &dir, EXECUTE)?;
        let name = Name::new(name.as_bytes()).map_err(|error| match error {
            NameError::TooLong => VfsError::NameTooLong,
            NameError::Empty | NameError::Forbidden(_) => VfsError::Invalid,
        })?;
        let parent = dir.lock().artifact;
        Ok(Place { parent, name })
    }

    /// A name that is to be changed, after the checks that every change needs.
    pub(super) fn place_to_change(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<Place> {
        self.refuse_if_read_only()?;
        let place = self.place(caller, parent, name)?;
        let dir = self.directory(parent)?;
        if dir.lock().fate != Fate::Named {
            return Err(VfsError::NotFound);
        }
        self.check_access(caller, &dir, WRITE)?;
        Ok(place)
    }

    /// Makes a regular file, FIFO or socket.
    pub fn mknod(&self, c: &Caller, parent: Ino, name: &OsStr, kind: Kind, mode: u32) -> Result<NodeAttr> {
        self.make(c, parent, name, (kind, Content::None), mode, false)
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: &Caller, parent: Ino, name: &OsStr, mode: u32) -> Result<NodeAttr> {
        self.make(caller, parent, name, (Kind::Directory, Content::None), mode, false)
    }

    /// Makes a symlink.
    pub fn symlink(&self, caller: &Caller, parent: Ino, name: &OsStr, target: &[u8]) -> Result<NodeAttr> {
        self.make(caller, parent, name, (Kind::Symlink, Content::Target(target.to_vec())), 0o777, false)
    }

    fn make(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        what: (Kind, Content),
        mode: u32,
        exclusive: bool,
    ) -> Result<NodeAttr> {
        let node = self.make_node(caller, parent, name, what, mode, exclusive)?;
        self.attr_of(&node)
    }

    /// Makes a regular file and opens it.
    pub fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        mode: u32,
        request: &OpenRequest,
    ) -> Result<(NodeAttr, Opened)> {
        let what = (Kind::File, Content::None);
        let node = self.make_node(caller, parent, name, what, mode, request.exclusive)?;
        let opened = self.open_node(caller, &node, request)?;
        Ok((self.attr_of(&node)?, opened))
    }

    fn make_node(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &OsStr,
        (kind, content): (Kind, Content),
        mode: u32,
        exclusive: bool,
    ) -> Result<Arc<Node>> {
        let place = self.place_to_make(caller, parent, name)?;
        let dir = self.directory(parent)?;
        let (attrs, in_scratch) = {
            let dir = dir.lock();
            (self.first_attrs(caller, &dir.attrs, kind, mode), dir.scratch == Scratch::Yes)
        };
        let size = if let Content::Target(target) = &content { target.len() as u64 } else { 0 };
        let scratch = self.classify(&place, kind, in_scratch, exclusive)?;
        let catalog = self.workspace.catalog();
        let (id, ino) = (self.workspace.ids().artifact(self.now().wall), catalog.next_ino()?);
        let new = NewEntry { id, kind, ino, attrs, content, size, scratch };
        let unseen = kind == Kind::File && self.check_seen_at(caller, &place, None, None)?;
        let displaced = catalog.moved_away(self.checkout, &place)?;
        let claim = displaced.as_ref().map(|displaced| self.node_of(displaced).claim());
        let entry = catalog.create_entry(&self.actor(), &place, &new)?;
        if let (Some(claim), Some(displaced)) = (&claim, &displaced) {
            self.rebind_displaced(claim, displaced)?;
        }
        drop(claim);
        self.nodes.unswitch(entry.artifact);
        let node = self.nodes.get_or_insert(entry.ino, || Node::of(&entry, entry.attrs));
        node.count_lookup();
        node.lock().unseen = unseen;
        // A file that is opened now is checked in after it is closed.
        self.check_in_later(entry.artifact, entry.scratch);
        Ok(node)
    }

    /// Mode, owner and times of something that a caller makes in a directory (setgid directories pass on their group).
    fn first_attrs(&self, caller: &Caller, dir: &Attrs, kind: Kind, mode: u32) -> Attrs {
        let inherits = dir.mode & 0o2000 != 0;
        let setgid = if inherits && kind == Kind::Directory { 0o2000 } else { 0 };
        let now = self.now().wall;
        Attrs {
            mode: mode & 0o7777 | setgid,
            uid: caller.uid,
            gid: if inherits { dir.gid } else { caller.gid },
            atime: now,
            mtime: now,
            ctime: now,
        }
    }

    /// Whether a name that comes to be is scratch. An ambiguous one is, beside its document or while it is young.
    fn classify(&self, place: &Place, kind: Kind, in_scratch: bool, exclusive: bool) -> Result<Scratch> {
        if in_scratch || !kind.is_versioned() {
            return Ok(Scratch::Yes);
        }
        let rules = &self.workspace.policy().scratch;
        let class = match kind {
            Kind::Directory => rules.classify_directory(&place.name),
            _ => rules.classify(&place.name),
        };
        match class {
            NameClass::Scratch => Ok(Scratch::Yes),
            NameClass::Document => Ok(Scratch::No),
            NameClass::Ambiguous => {
                for stem in rules.stems(&place.name) {
                    let document = Place { parent: place.parent, name: stem };
                    if self.workspace.catalog().lookup(self.checkout, &document)?.is_some() {
                        return Ok(Scratch::Yes);
                    }
                }
                Ok(if exclusive { Scratch::Provisional } else { Scratch::No })
            }
        }
    }

    /// Removes a name that is no directory.
    pub fn unlink(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<()> {
        let place = self.place_to_take(caller, parent, name)?;
        let catalog = self.workspace.catalog();
        self.check_seen(caller, catalog.lookup(self.checkout, &place)?.as_ref())?;
        let gone = catalog.unlink(&self.actor(), &place)?;
        self.after_removal(&gone);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<()> {
        let place = self.place_to_take(caller, parent, name)?;
        let gone = self.workspace.catalog().rmdir(&self.actor(), &place)?;
        self.after_removal(&gone);
        Ok(())
    }

    /// The node of a name that is no more goes on for who has it open; its files go at once.
    pub(super) fn after_removal(&self, gone: &Entry) {
        if gone.head.is_some() {
            self.check_in_gone_later(gone.artifact, gone.scratch);
        }
        let working = self.nodes.switched(gone.artifact);
        self.nodes.unswitch(gone.artifact);
        let node = working.or_else(|| self.nodes.get(gone.ino));
        let Some(node) = node else { return self.drop_content(gone.content.clone(), gone.scratch) };
        let claim = node.claim();
        {
            let mut state = claim.node.lock();
            state.fate = Fate::Unlinked;
            state.attrs.ctime = self.now().wall;
        }
        self.drop_files(&claim.node);
    }

    /// Moves a name, over what is there or not, or swaps two.
    pub fn rename(
        &self,
        caller: &Caller,
        (parent, name): (Ino, &OsStr),
        (new_parent, new_name): (Ino, &OsStr),
        mode: RenameMode,
    ) -> Result<()> {
        let from = self.place_to_take(caller, parent, name)?;
        let to = self.place_to_make(caller, new_parent, new_name)?;
        let catalog = self.workspace.catalog();
        let source = catalog.lookup(self.checkout, &from)?.ok_or(VfsError::NotFound)?;
        let target = catalog.lookup(self.checkout, &to)?;
        self.check_moved(&source, &to)?;
        target.iter().try_for_each(|target| self.check_moved(target, &from))?;
        let unseen = self.check_seen_at(caller, &to, target.as_ref(), Some(source.artifact))?;
        let to_class = self.class_under(&source, new_parent, &to)?;
        if to_class != Scratch::No || mode == RenameMode::Exchange {
            self.check_seen(caller, Some(&source))?;
        }
        let from_class = match (&target, mode) {
            (Some(target), RenameMode::Exchange) => self.class_under(target, parent, &from)?,
            _ => Scratch::No,
        };
        let exchanged = target.as_ref().filter(|_| mode == RenameMode::Exchange);
        let displaced = self.displaced_by(&source, target.as_ref(), &to)?;
        let claims = self.claim_for_rename(&source, exchanged.or(displaced.as_ref()));
        let spare = self.workspace.ids().artifact(self.now().wall);
        let classes = (from_class, to_class);
        let request = RenameRequest { from: from.clone(), to: to.clone(), mode, classes, spare };
        if claims.any_is_dirty() {
            // A rename that is refused must not have made a save of what is half written.
            catalog.check_rename(&self.actor(), &request)?;
        }
        self.save_before_rename(&claims.source, target.as_ref(), to_class)?;
        self.seal_in_place(&claims.source, to_class, &to)?;
        if let Some(claim) = claims.target.as_ref().filter(|_| exchanged.is_some()) {
            self.save_before_rename(claim, Some(&source), from_class)?;
            self.seal_in_place(claim, from_class, &from)?;
        }
        let renamed = catalog.rename(&self.actor(), &request)?;
        self.epochs.names_changed();
        self.rebind(&claims.source, &renamed.source, &renamed.moved);
        if let (Some(claim), Some(exchanged)) = (&claims.target, &renamed.exchanged) {
            self.rebind(claim, exchanged, exchanged);
        }
        if let (Some(claim), Some(displaced)) = (&claims.target, &displaced) {
            self.rebind_displaced(claim, displaced)?;
        }
        let synced = self.sync_renamed(&claims.source, &renamed);
        drop(claims);
        if unseen {
            self.note_overwrite(renamed.moved.artifact);
        }
        // Who gave a version another name has not written its bytes.
        if source.is_drafted() || source.artifact != renamed.moved.artifact {
            self.seen.note_author(caller, renamed.moved.artifact, self.now());
        }
        self.check_in_gone_later(renamed.source.artifact, renamed.source.scratch);
        self.check_in_later(renamed.moved.artifact, renamed.moved.scratch);
        if let Some(replaced) = renamed.replaced.filter(|replaced| replaced.ino != renamed.moved.ino) {
            self.after_removal(&replaced);
        }
        synced
    }

    /// Lets what came to a document's name survive a power cut, if it is time.
    fn sync_renamed(&self, claim: &Claim, renamed: &Renamed) -> Result<()> {
        if renamed.exchanged.is_none() {
            claim.node.lock().unsynced_since_ms = renamed.unsynced_since_ms;
        }
        let is_save = renamed.moved.kind == Kind::File && renamed.moved.scratch == Scratch::No;
        if is_save && self.is_due_on_disk(&claim.node) { self.sync_saved(claim) } else { Ok(()) }
    }

    /// Claims the nodes that a rename changes, in the order of their numbers, so that two exchanges can't wait for each
    /// other.
    fn claim_for_rename(&self, source: &Entry, target: Option<&Entry>) -> RenameClaims {
        let source = self.node_of(source);
        let target = target.map(|target| self.node_of(target)).filter(|target| target.ino != source.ino);
        match target {
            Some(target) if target.ino < source.ino => {
                let target = target.claim();
                RenameClaims { source: source.claim(), target: Some(target) }
            }
            target => RenameClaims { source: source.claim(), target: target.map(|target| target.claim()) },
        }
    }

    /// Whether a file is scratch under a name that it is moved to.
    fn class_under(&self, entry: &Entry, parent: Ino, place: &Place) -> Result<Scratch> {
        let in_scratch = self.directory(parent)?.lock().scratch == Scratch::Yes;
        self.classify(place, entry.kind, in_scratch, false)
    }

    /// Lets a node mean what its name means after a rename.
    fn rebind(&self, claim: &Claim, source: &Entry, moved: &Entry) {
        if source.artifact != moved.artifact {
            self.nodes.unswitch(source.artifact);
        }
        let content_changed = {
            let mut state = claim.node.lock();
            state.lease = if state.artifact == moved.artifact { state.lease } else { None };
            state.refresh(moved, self.shown_attrs(moved))
        };
        if content_changed {
            self.publish_later(moved);
        }
    }

    /// What loses its identity to a file that moves to the name which it has in the head tree.
    fn displaced_by(&self, source: &Entry, target: Option<&Entry>, to: &Place) -> Result<Option<Entry>> {
        if target.is_some() {
            return Ok(None);
        }
        let moved_away = self.workspace.catalog().moved_away(self.checkout, to)?;
        Ok(moved_away.filter(|displaced| displaced.artifact != source.artifact))
    }

    /// Lets the node of a file that lost its identity be the new artifact's; unsaved bytes stay with it.
    fn rebind_displaced(&self, claim: &Claim, displaced: &Entry) -> Result<()> {
        let place = Place { parent: displaced.parent, name: displaced.name.clone() };
        let Some(entry) = self.workspace.catalog().lookup(self.checkout, &place)? else { return Ok(()) };
        if entry.artifact == displaced.artifact {
            return Ok(());
        }
        if self.nodes.switched(displaced.artifact).is_some_and(|working| working.ino == claim.node.ino) {
            self.nodes.unswitch(displaced.artifact);
        }
        if entry.ino != claim.node.ino {
            self.nodes.switch_to(entry.artifact, claim.node.ino);
        }
        self.rebind(claim, &entry, &entry);
        Ok(())
    }

    /// Lists names after a cookie until `add` says that there is no more room.
    pub fn readdir(&self, ino: Ino, after: u64, add: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        self.list(ino, after, &mut |entry, child| {
            let (ino, kind) = match child {
                Some(child) => (self.nodes.switched(child.artifact).map_or(child.ino, |n| n.ino), child.kind),
                None => (entry.ino, entry.kind),
            };
            Ok(add(DirEntry { ino, kind, ..entry }))
        })
    }

    /// Lists names with their attributes, and counts a reference for each but `.` and `..`.
    pub fn readdirplus(
        &self,
        ino: Ino,
        after: u64,
        add: &mut dyn FnMut(DirEntry<'_>, &NodeAttr) -> bool,
    ) -> Result<()> {
        self.list(ino, after, &mut |entry, child| {
            let node = match child {
                Some(child) => self.node_of(child),
                None => self.node(ino)?,
            };
            let attr = self.attr_of(&node)?;
            let ino = if child.is_some() { attr.ino } else { entry.ino };
            let full = add(DirEntry { ino, kind: attr.kind, ..entry }, &attr);
            if child.is_some() && !full {
                node.count_lookup();
            }
            Ok(full)
        })
    }

    fn list(
        &self,
        ino: Ino,
        after: u64,
        add: &mut dyn FnMut(DirEntry<'_>, Option<&Entry>) -> Result<bool>,
    ) -> Result<()> {
        let dir = self.directory(ino)?;
        let (artifact, gone) = {
            let state = dir.lock();
            (state.artifact, state.fate != Fate::Named)
        };
        for (cookie, name) in [(1, &b"."[..]), (2, b"..")] {
            let dots = DirEntry { ino, kind: Kind::Directory, name, cookie };
            if after < cookie && add(dots, None)? {
                return Ok(());
            }
        }
        if gone {
            return Ok(());
        }
        let mut from = Seq(after.saturating_sub(FIRST_COOKIE).cast_signed());
        loop {
            let mut batch =
                self.workspace.catalog().children(self.checkout, artifact, from, LISTING_BATCH)?;
            let next = batch.last().filter(|_| batch.len() == LISTING_BATCH).map(|last| last.artifact);
            self.retain_seen(artifact, &mut batch)?;
            for child in &batch {
                let cookie = child.artifact.0.unsigned_abs() + FIRST_COOKIE;
                let entry =
                    DirEntry { ino: child.ino, kind: child.kind, name: child.name.as_bytes(), cookie };
                if add(entry, Some(child))? {
                    return Ok(());
                }
            }
            match next {
                Some(last) => from = last,
                None => return Ok(()),
            }
        }
    }
}

/// Whether nothing is lost with a node: the catalog knows all of it.
fn is_forgettable(node: &Node) -> bool {
    let state = node.lock();
    !node.is_known() && state.handles == 0 && state.working.is_none() && !state.step.busy
}
