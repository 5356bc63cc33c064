//! Attributes: what stat(2) shows, what chmod(2) and its kin change, and who may do what.

use std::sync::Arc;

use super::node::{Claim, Fate, Node, State};
use super::{Caller, Handle, NodeAttr, Result, SetAttr, SetTime, Vfs, VfsError};
use crate::catalog::AttrChange;
use crate::model::{Attrs, Content, Entry, Ino, Kind, Layer, Scratch, Timestamp};

/// Bits of access(2).
pub(super) const EXECUTE: u32 = 1;
pub(super) const WRITE: u32 = 2;
pub(super) const READ: u32 = 4;

/// The size of a block in `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

impl Vfs {
    /// Reads a node's attributes.
    pub fn getattr(&self, ino: Ino, handle: Option<Handle>) -> Result<NodeAttr> {
        let node = self.node_for(ino, handle)?;
        let attr = self.attr_of(&node)?;
        // A direct handle is open on the old version's node, and the kernel expects that number back.
        Ok(NodeAttr { ino, ..attr })
    }

    /// The node that a request means: the one that a handle writes to, if it came with one.
    fn node_for(&self, ino: Ino, handle: Option<Handle>) -> Result<Arc<Node>> {
        match handle.and_then(|handle| self.handles.get(handle).ok()) {
            Some(open) => Ok(Arc::clone(&open.node)),
            None => self.node(ino),
        }
    }

    pub(super) fn attr_of(&self, node: &Node) -> Result<NodeAttr> {
        let (attr, artifact) = {
            let state = node.lock();
            (attr_from(node.ino, &state), state.artifact)
        };
        let mode = self.shown_mode(artifact, attr.attrs.mode)?;
        let attr = NodeAttr { attrs: Attrs { mode, ..attr.attrs }, ..attr };
        if attr.kind != Kind::Directory {
            return Ok(attr);
        }
        let (time, directories) = self.workspace.catalog().dir_facts(self.checkout, artifact)?;
        // Where some may be hidden, the number of directories is nobody's to know: 1 says that it is not counted.
        let nlink = if self.is_limited() { 1 } else { attr.nlink.saturating_add(directories) };
        let attr = NodeAttr { nlink, ..attr };
        let Some(mtime) = time else { return Ok(attr) };
        let ctime = attr.attrs.ctime.max(mtime);
        Ok(NodeAttr { attrs: Attrs { mtime, ctime, ..attr.attrs }, ..attr })
    }

    /// The attributes of an entry in this mount: versions belong to the mount's user.
    pub(super) fn shown_attrs(&self, entry: &Entry) -> Attrs {
        match entry.layer {
            Layer::Head => Attrs { uid: self.options.uid, gid: self.options.gid, ..entry.attrs },
            Layer::Draft { .. } => entry.attrs,
        }
    }

    /// Changes attributes, the size among them.
    pub fn setattr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttr,
        handle: Option<Handle>,
    ) -> Result<NodeAttr> {
        self.refuse_if_read_only()?;
        let node = self.node_for(ino, handle)?;
        if handle.is_some() { self.check_open_edit(&node) } else { self.check_node_edit(&node) }?;
        self.check_setattr(caller, &node, change, handle.is_some())?;
        if let Some(size) = change.size {
            self.set_size(caller, &node, size, handle.is_some())?;
        }
        let change = self.attr_change(caller, &node.lock(), change);
        if change != AttrChange::default() {
            self.change_attrs(&node, change)?;
        }
        let attr = self.attr_of(&node)?;
        Ok(NodeAttr { ino, ..attr })
    }

    /// What a request changes besides the size. A change of owner takes the set-id bits away (chown(2)), and so does
    /// a cut by an ordinary user (`FUSE_HANDLE_KILLPRIV_V2` leaves that to the daemon).
    fn attr_change(&self, caller: &Caller, state: &State, change: &SetAttr) -> AttrChange {
        let now = self.now().wall;
        let at = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let chowned = change.uid.is_some() || change.gid.is_some();
        let kills = chowned && state.kind != Kind::Directory || change.size.is_some() && caller.uid != 0;
        let killed = without_set_ids(state.attrs.mode);
        let mode = change.mode.or((kills && killed != state.attrs.mode).then_some(killed));
        AttrChange {
            mode,
            uid: change.uid,
            gid: change.gid,
            atime: change.atime.map(at),
            mtime: change.mtime.map(at),
        }
    }

    pub(super) fn change_attrs(&self, node: &Arc<Node>, change: AttrChange) -> Result<()> {
        let claim = node.claim();
        let (artifact, scratch, named, written) = {
            let state = claim.node.lock();
            let written = state.working.is_some() && !state.is_direct();
            (state.artifact, state.scratch, state.fate == Fate::Named, written)
        };
        if !named || written {
            if named {
                self.lease_for_write(&claim.node)?;
            }
            let now = self.now().wall;
            let mut state = claim.node.lock();
            apply(&mut state.attrs, change, now);
            return Ok(());
        }
        if claim.node.lock().writers == 0 {
            self.check_in_later(artifact, scratch);
        }
        if self.is_unnamed_working(&claim) {
            // The catalog gets to know the node by its own number, not by the version's.
            let now = self.now().wall;
            apply(&mut claim.node.lock().attrs, change, now);
            return self.save_number(&claim);
        }
        let entry = self.workspace.catalog().set_attrs(&self.actor(), artifact, change)?;
        let mut state = claim.node.lock();
        state.attrs = entry.attrs;
        state.drafted |= entry.is_drafted();
        Ok(())
    }

    /// Whether the node is one that its name was switched to, and that the catalog has no draft for.
    fn is_unnamed_working(&self, claim: &Claim) -> bool {
        let state = claim.node.lock();
        state.kind == Kind::File && !state.drafted && !state.immutable && state.base.is_some()
    }

    fn check_setattr(&self, caller: &Caller, node: &Node, change: &SetAttr, open: bool) -> Result<()> {
        let owns = self.options.allow_other || caller.uid == 0 || caller.uid == node.lock().attrs.uid;
        let touches = |time: Option<SetTime>| matches!(time, Some(SetTime::Now));
        if change.size.is_some() && !open {
            self.check_access(caller, node, WRITE)?;
        }
        self.check_chown(caller, node, change)?;
        if owns {
            return Ok(());
        }
        let sets_owner = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        if sets_owner || matches!(change.mtime, Some(SetTime::At(_))) {
            return Err(VfsError::NotPermitted);
        }
        if touches(change.mtime) { self.check_access(caller, node, WRITE) } else { Ok(()) }
    }

    /// Only root gives files away (chown(2)): others may name the owner and group that a file has, or their own group.
    fn check_chown(&self, caller: &Caller, node: &Node, change: &SetAttr) -> Result<()> {
        if self.options.allow_other || caller.uid == 0 {
            return Ok(());
        }
        let attrs = node.lock().attrs;
        let same_user = change.uid.is_none_or(|uid| uid == attrs.uid);
        let same_group = change.gid.is_none_or(|gid| gid == attrs.gid || gid == caller.gid);
        if same_user && same_group { Ok(()) } else { Err(VfsError::NotPermitted) }
    }

    /// Checks permission bits, unless the kernel did (mounts for several users have `default_permissions`).
    pub(super) fn check_access(&self, caller: &Caller, node: &Node, wanted: u32) -> Result<()> {
        if self.options.allow_other || caller.uid == 0 {
            return Ok(());
        }
        let attrs = node.lock().attrs;
        let class = if caller.uid == attrs.uid {
            6
        } else if caller.gid == attrs.gid {
            3
        } else {
            0
        };
        let granted = attrs.mode >> class & 7;
        if granted & wanted == wanted { Ok(()) } else { Err(VfsError::Denied) }
    }

    /// Answers access(2): writing is denied while somebody else holds the lease, so that editors say so early.
    pub fn access(&self, caller: &Caller, ino: Ino, mask: i32) -> Result<()> {
        let node = self.node(ino)?;
        let wanted = mask.cast_unsigned() & 7;
        self.check_access(caller, &node, wanted)?;
        if wanted & WRITE == 0 {
            return Ok(());
        }
        self.refuse_if_read_only()?;
        self.check_node_edit(&node)?;
        let (artifact, leased) = {
            let state = node.lock();
            (state.artifact, state.scratch == Scratch::No)
        };
        let catalog = self.workspace.catalog();
        let blocked = leased && catalog.refusing_lease(&self.actor(), artifact)?.is_some();
        if blocked { Err(VfsError::Denied) } else { Ok(()) }
    }

    /// Reads a symlink's target.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.node(ino)?.lock().content {
            Content::Target(target) => Ok(target.clone()),
            _ => Err(VfsError::Invalid),
        }
    }
}

fn attr_from(ino: Ino, state: &State) -> NodeAttr {
    let nlink = match (state.fate, state.kind) {
        // Of a file that another check-in replaced, or whose draft was taken away, no name is left either.
        (Fate::Unlinked | Fate::Replaced | Fate::Detached, _) => 0,
        (Fate::Named, Kind::Directory) => 2,
        (Fate::Named, _) => 1,
    };
    let blocks = state.size.div_ceil(BLOCK_BYTES);
    // Editors compare the number before and after they open a file, and take another one for another's change.
    let shown = state.version_ino.filter(|_| !state.drafted).unwrap_or(ino);
    NodeAttr { ino, shown, kind: state.kind, size: state.size, blocks, attrs: state.attrs, nlink }
}

fn apply(attrs: &mut Attrs, change: AttrChange, now: Timestamp) {
    attrs.mode = change.mode.unwrap_or(attrs.mode);
    attrs.uid = change.uid.unwrap_or(attrs.uid);
    attrs.gid = change.gid.unwrap_or(attrs.gid);
    attrs.atime = change.atime.unwrap_or(attrs.atime);
    attrs.mtime = change.mtime.unwrap_or(attrs.mtime);
    attrs.ctime = now;
}

/// A mode without set-user-id, and without set-group-id where that means execution (inode(7)).
pub(super) fn without_set_ids(mode: u32) -> u32 {
    let setgid = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | setgid)
}
