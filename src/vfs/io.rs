//! Open files: opening, reading, writing, closing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::attr::{READ, WRITE, without_set_ids};
use super::error::io;
use super::handles::OpenFile;
use super::node::{Fate, Node, State};
use super::saving::Closing;
use super::terms::NOT_RENEWED;
use super::{Caller, Handle, Io, OpenRequest, Opened, Pace, Result, SetAttr, Vfs, VfsError};
use crate::config::LeaseNeed;
use crate::model::{Content, Ino, Kind, Scratch, Seq};
use crate::sys;

/// A copy within one request goes on for no more than this, so that it answers in bounded time.
const COPY_BYTES: u64 = 64 << 20;

/// A copy before a first write that is larger than this is worth a worker thread.
const SMALL_COPY_BYTES: u64 = 256 << 10;

impl Vfs {
    /// Opens a file.
    pub fn open(&self, caller: &Caller, ino: Ino, request: &OpenRequest) -> Result<Opened> {
        let node = self.node(ino)?;
        self.check_node_seen(&node)?;
        if request.read {
            self.check_access(caller, &node, READ)?;
        }
        if request.write || request.truncate {
            self.check_node_edit(&node)?;
        }
        if request.write {
            self.check_access(caller, &node, WRITE)?;
        }
        // A cut is a write, whatever else the opener wants (open(2): the effect of O_RDONLY|O_TRUNC is unspecified).
        let request = OpenRequest { write: request.write || request.truncate, ..*request };
        self.open_node(caller, &node, &request)
    }

    /// How long opening may take: it hashes a blob, commits a lease, or waits for a shared store.
    pub fn open_pace(&self, ino: Ino, request: &OpenRequest) -> Pace {
        let Ok(node) = self.node(ino) else { return Pace::AtOnce };
        let (content, is_open) = {
            let state = node.lock();
            (state.content.clone(), state.working.is_some() || state.file.is_some())
        };
        let slow_if = |slow| if slow { Pace::Slow } else { Pace::AtOnce };
        match content {
            Content::Blob(digest)
                if !is_open && !request.truncate && self.workspace.is_blob_elsewhere(&digest) =>
            {
                Pace::Elsewhere
            }
            _ if request.write => slow_if(!self.has_fresh_lease(&node)),
            Content::Blob(digest) => slow_if(self.workspace.blobs().needs_hashing(&digest).unwrap_or(true)),
            _ => Pace::AtOnce,
        }
    }

    /// How long a change of attributes may take: a cut copies what it keeps.
    pub fn setattr_pace(&self, ino: Ino, change: &SetAttr) -> Pace {
        match change.size {
            Some(size) if size > 0 => {
                let request = OpenRequest { write: true, ..OpenRequest::default() };
                let opening = self.open_pace(ino, &request);
                if opening == Pace::Elsewhere { opening } else { Pace::Slow }
            }
            _ => Pace::AtOnce,
        }
    }

    /// Opens a node after the checks of permission.
    pub(super) fn open_node(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        request: &OpenRequest,
    ) -> Result<Opened> {
        let (kind, immutable, artifact) = {
            let state = node.lock_idle();
            (state.kind, state.immutable, state.artifact)
        };
        match kind {
            Kind::Directory if request.write => return Err(VfsError::IsDirectory),
            Kind::File => {}
            _ => return Err(VfsError::Invalid),
        }
        let opened = match request.write {
            false if immutable => self.open_version(caller, node)?,
            false => self.open_cached(caller, node, request, Io::Cached)?,
            true => self.open_for_write(caller, node, request, immutable)?,
        };
        if request.read {
            self.note_reading(caller, node, artifact);
        }
        Ok(opened)
    }

    /// Notes what the caller's process knows of an artifact from now on: who reads the draft knows what that becomes.
    fn note_reading(&self, caller: &Caller, node: &Node, artifact: Seq) {
        let (base, drafted) = {
            let state = node.lock();
            (state.base, state.drafted)
        };
        if drafted {
            self.seen.note_author(caller, artifact, self.now());
        } else {
            self.seen.note(caller, artifact, base, self.now());
        }
    }

    fn open_for_write(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        request: &OpenRequest,
        immutable: bool,
    ) -> Result<Opened> {
        self.refuse_if_read_only()?;
        let fate = node.lock().fate;
        match fate {
            Fate::Named if immutable => self.open_switched(caller, node, request),
            Fate::Named => self.open_writable(caller, node, request, Io::Cached),
            Fate::Unlinked if immutable => Err(VfsError::ReadOnly),
            Fate::Unlinked => self.open_cached(caller, node, request, Io::Cached),
            // The kernel has not heard yet that the name means another node, or has no name to look up.
            Fate::Replaced | Fate::Detached if first_time(node, caller) => {
                self.switch_ahead(node)?;
                Err(VfsError::Reopen)
            }
            Fate::Replaced | Fate::Detached => Err(VfsError::ReadOnly),
        }
    }

    /// Switches the name that a node had to a working node: the kernel looks it up only once, and must find that one.
    fn switch_ahead(&self, node: &Node) -> Result<()> {
        let artifact = node.lock().artifact;
        let Some(entry) = self.workspace.catalog().entry_of(self.checkout, artifact)? else { return Ok(()) };
        let present = self.node_of(&entry);
        let immutable = present.lock().immutable;
        if immutable { self.switch(&present).map(drop) } else { Ok(()) }
    }

    fn open_writable(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        request: &OpenRequest,
        io: Io,
    ) -> Result<Opened> {
        if !self.waits_for_first_write(node)? {
            self.lease_for_open(caller, node)?;
            self.keep_switched(node);
        }
        self.open_cached(caller, node, request, io).inspect_err(|_| self.give_back_unused(node))
    }

    /// Does what `O_TRUNC` asks for, when the handle is sure to be given out: a refused open must not have cut.
    pub fn cut_opened(&self, caller: &Caller, handle: Handle) -> Result<()> {
        let open = self.handles.get(handle)?;
        self.set_size(caller, &open.node, 0, true)
    }

    /// Whether policy lets this file be opened for writing without a lease.
    fn waits_for_first_write(&self, node: &Node) -> Result<bool> {
        Ok(self.terms_of(node)?.terms.need == LeaseNeed::OnFirstWrite)
    }

    /// The name of an undrafted working node is switched to it as long as somebody may write.
    fn keep_switched(&self, node: &Node) {
        let (artifact, switched) = {
            let state = node.lock();
            (state.artifact, !state.drafted && state.scratch == Scratch::No && state.base.is_some())
        };
        if switched {
            self.nodes.switch_to(artifact, node.ino);
        }
    }

    /// Sends the opener of a version to the working node of its name; a second one without a look-up between has no
    /// name to look up, and gets a handle on the working node that goes past this node's pages.
    fn open_switched(&self, caller: &Caller, node: &Arc<Node>, request: &OpenRequest) -> Result<Opened> {
        let working = self.switch(node)?;
        if first_time(node, caller) {
            return Err(VfsError::Reopen);
        }
        let opened = self.open_writable(caller, &working, request, Io::Direct)?;
        // No look-up has told the kernel that the name is at the working node.
        let artifact = working.lock().artifact;
        self.invalidate_name(artifact);
        Ok(opened)
    }

    /// The working node of a version's name, unless somebody else holds the lease that opening it takes.
    pub(super) fn switch(&self, node: &Arc<Node>) -> Result<Arc<Node>> {
        let (artifact, fate) = {
            let state = node.lock();
            (state.artifact, state.fate)
        };
        if fate != Fate::Named {
            return Err(VfsError::ReadOnly);
        }
        let catalog = self.workspace.catalog();
        if let Some(lease) = catalog.refusing_lease(&self.actor(), artifact)?
            && !self.waits_for_first_write(node)?
        {
            return Err(VfsError::Held { lease: Some(Box::new(lease)) });
        }
        match self.nodes.switched(artifact) {
            // A version that has a node of its own beside its number's is switched to that one, which is no working node.
            Some(working) if working.ino != node.ino => Ok(working),
            _ => Ok(self.nodes.switch(artifact, node.ino, node.working_copy(catalog.next_ino()?))),
        }
    }

    fn open_version(&self, caller: &Caller, node: &Arc<Node>) -> Result<Opened> {
        let content = node.lock().content.clone();
        let file = match &content {
            Content::Blob(digest) => Some(self.workspace.open_blob(digest)?),
            _ => self
                .open_content(node)?
                .map(|file| file.try_clone())
                .transpose()
                .map_err(io("open a save"))?,
        };
        let kept = file.as_ref().map(File::try_clone).transpose().map_err(io("open a version"))?;
        node.lock().handles += 1;
        let open = OpenFile {
            opener: *caller,
            node: Arc::clone(node),
            version: kept.map(Arc::new),
            write: false,
            append: false,
            direct: false,
        };
        let handle = self.handles.insert(open);
        Ok(Opened { handle, io: file.map_or(Io::Cached, Io::Version) })
    }

    fn open_cached(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        request: &OpenRequest,
        io: Io,
    ) -> Result<Opened> {
        loop {
            let content = node.lock().content.clone();
            // A cut needs none of the old bytes, which may even be damaged.
            let file = if request.truncate { None } else { self.open_content(node)? };
            if count_handle(node, request, file, &content) {
                break;
            }
        }
        let direct = matches!(io, Io::Direct);
        let OpenRequest { write, append, .. } = *request;
        let open = OpenFile {
            opener: *caller,
            node: Arc::clone(node),
            version: None,
            write,
            append: append && direct,
            direct,
        };
        let handle = self.handles.insert(open);
        Ok(Opened { handle, io })
    }

    /// Opens the file of a node's last save, wherever it is at the moment; none if it is empty.
    pub(super) fn open_content(&self, node: &Node) -> Result<Option<Arc<File>>> {
        for _ in 0..8 {
            let content = {
                let state = node.lock();
                if state.working.is_some() || state.file.is_some() {
                    return Ok(state.readable());
                }
                state.content.clone()
            };
            let layout = self.workspace.layout();
            let opened = match &content {
                Content::Blob(digest) => {
                    return Ok(Some(Arc::new(self.workspace.open_blob(digest)?)));
                }
                Content::Staged(name) => File::open(layout.staging().join(name)),
                Content::Direct(name) => {
                    File::options().read(true).write(true).open(layout.scratch().join(name))
                }
                Content::None | Content::Target(_) => return Ok(None),
            };
            match opened {
                // The publisher moves the save into the store, and tells the node as soon as the catalog knows.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if let Some(file) = self.open_noted(&content)? {
                        return Ok(Some(file));
                    }
                    self.publisher.wait_for_running();
                    self.reread_content(node, &content)?;
                }
                other => return other.map(|file| Some(Arc::new(file))).map_err(io("open a save")),
            }
        }
        let source = std::io::ErrorKind::NotFound.into();
        Err(VfsError::Io { doing: "open a save", source })
    }

    /// Opens a save that is on its way into the store: its digest was noted before its file left `staging/`.
    fn open_noted(&self, content: &Content) -> Result<Option<Arc<File>>> {
        let Content::Staged(name) = content else { return Ok(None) };
        match self.workspace.catalog().noted_digest(name)? {
            Some(digest) => Ok(self.workspace.blobs().open_verified(&digest).ok().map(Arc::new)),
            None => Ok(None),
        }
    }

    /// Takes the content from the catalog, if the node still has the one that can't be found.
    fn reread_content(&self, node: &Node, missing: &Content) -> Result<()> {
        let artifact = node.lock().artifact;
        let entry = self.workspace.catalog().entry_of(self.checkout, artifact)?;
        let mut state = node.lock();
        if let Some(entry) = entry.filter(|entry| entry.ino == node.ino && state.content == *missing) {
            state.content = entry.content;
        }
        Ok(())
    }

    /// Reads up to `size` bytes; fewer at the end of the file.
    pub fn read(&self, handle: Handle, offset: u64, size: usize) -> Result<Vec<u8>> {
        let open = self.handles.get(handle)?;
        let file = match &open.version {
            Some(file) => Some(Arc::clone(file)),
            None => open.node.lock().readable(),
        };
        let Some(file) = file else { return Ok(Vec::new()) };
        let mut buffer = vec![0; size];
        let mut filled = 0;
        while filled < size {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(VfsError::Io { doing: "read", source }),
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }

    /// Whether a write must first copy a large file or talk to the catalog.
    pub fn write_may_block(&self, handle: Handle, _offset: u64, _length: usize) -> bool {
        let Ok(open) = self.handles.get(handle) else { return false };
        let copies = {
            let state = open.node.lock();
            state.working.is_none() && state.content_size > SMALL_COPY_BYTES
        };
        copies || !self.has_fresh_lease(&open.node)
    }

    /// Writes all of the bytes.
    pub fn write(
        &self,
        _caller: &Caller,
        handle: Handle,
        offset: u64,
        data: &[u8],
        kill_suid: bool,
    ) -> Result<usize> {
        let open = self.handles.get(handle)?;
        self.change_bytes(&open.node, kill_suid, |file, size| {
            // A direct handle's offset comes from the size of the version that it was opened on.
            let offset = if open.append { size } else { offset };
            file.write_all_at(data, offset).map_err(Failed::Written)?;
            Ok(NewSize::AtLeast(offset + data.len() as u64))
        })?;
        if open.direct {
            self.invalidate_content(open.node.ino);
        }
        Ok(data.len())
    }

    pub(super) fn invalidate_content(&self, ino: Ino) {
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.content(ino);
        }
    }

    /// Changes the bytes of a working file: `change` gets it with the present size, and returns the new one.
    fn change_bytes(
        &self,
        node: &Arc<Node>,
        kill_suid: bool,
        change: impl FnOnce(&File, u64) -> std::result::Result<NewSize, Failed>,
    ) -> Result<()> {
        let lost = self.prepare_write(node)?;
        let (file, size) = self.start_write(node)?;
        let result = change(&file, size);
        let now = self.now().wall;
        {
            let mut state = node.lock();
            finish_write(&mut state, &result, kill_suid, now);
            node.write_done(&mut state);
        }
        result.map_err(|failed| io("write")(failed.into()))?;
        if lost { Err(VfsError::LeaseLost) } else { Ok(()) }
    }

    /// Sees to lease and working file; tells whether the bytes can only become a recovery copy.
    fn prepare_write(&self, node: &Arc<Node>) -> Result<bool> {
        let fate = node.lock_idle().fate;
        if fate == Fate::Named && self.is_overdue(node) {
            self.detach(node, NOT_RENEWED);
        } else if fate == Fate::Named {
            self.check_open_edit(node)?;
            match self.lease_for_write(node) {
                Ok(()) => {}
                Err(error @ (VfsError::Held { .. } | VfsError::Stale { .. } | VfsError::LeaseLost)) => {
                    if !self.has_written(node) {
                        return Err(error);
                    }
                    self.detach(node, "the lease was lost while the file was being written");
                }
                Err(error) => return Err(error),
            }
        }
        self.begin_working(node, None)?;
        Ok(node.lock().fate == Fate::Detached)
    }

    /// Whether bytes are at stake: some are unsaved, or they were to be written under a lease that is lost.
    fn has_written(&self, node: &Node) -> bool {
        let state = node.lock();
        state.lease.is_some() || state.is_dirty()
    }

    fn start_write(&self, node: &Arc<Node>) -> Result<(Arc<File>, u64)> {
        loop {
            let mut state = node.lock_idle();
            let size = state.size;
            if let Some(working) = &state.working {
                let file = Arc::clone(&working.file);
                state.step.in_flight += 1;
                return Ok((file, size));
            }
            drop(state);
            // A save sealed the working file since: the next bytes go to a new copy.
            self.begin_working(node, None)?;
        }
    }

    /// Allocates, punches or zeroes a range, as fallocate(2).
    pub fn fallocate(&self, handle: Handle, mode: i32, offset: i64, length: i64) -> Result<()> {
        let open = self.handles.get(handle)?;
        if !open.write {
            return Err(VfsError::BadHandle);
        }
        self.change_bytes(&open.node, false, |file, size| {
            sys::fallocate(file, mode, offset, length).map_err(Failed::Unchanged)?;
            let end = offset.saturating_add(length).cast_unsigned();
            Ok(NewSize::AtLeast(if mode & sys::FALLOC_KEEP_SIZE == 0 { end } else { size }))
        })
    }

    /// Finds data or a hole, as lseek(2).
    pub fn lseek(&self, handle: Handle, offset: i64, whence: i32) -> Result<i64> {
        let open = self.handles.get(handle)?;
        let file = open.version.clone().or_else(|| open.node.lock().readable());
        match file {
            Some(file) => sys::lseek(&file, offset, whence).map_err(io("seek")),
            None => {
                Err(VfsError::Io { doing: "seek", source: std::io::Error::from_raw_os_error(sys::ENXIO) })
            }
        }
    }

    /// Copies between two open files, as copy_file_range(2); perhaps less than asked.
    pub fn copy_file_range(
        &self,
        _caller: &Caller,
        (from, from_offset): (Handle, u64),
        (to, to_offset): (Handle, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, target) = (self.handles.get(from)?, self.handles.get(to)?);
        let mut copied = 0;
        let file = source.version.clone().or_else(|| source.node.lock().readable());
        let Some(file) = file else { return Ok(0) };
        self.change_bytes(&target.node, false, |target, size| {
            let (from, to) = (from_offset.cast_signed(), to_offset.cast_signed());
            let length = length.min(COPY_BYTES) as usize;
            copied = sys::copy_file_range(&file, from, target, to, length).map_err(Failed::Unchanged)? as u64;
            Ok(NewSize::AtLeast(if copied == 0 { size } else { to_offset + copied }))
        })?;
        Ok(copied)
    }

    /// Cuts or extends a file.
    pub(super) fn set_size(&self, caller: &Caller, node: &Arc<Node>, size: u64, open: bool) -> Result<()> {
        let (kind, immutable, fate, present) = {
            let state = node.lock_idle();
            (state.kind, state.immutable, state.fate, state.size)
        };
        match kind {
            Kind::Directory => return Err(VfsError::IsDirectory),
            Kind::File => {}
            _ => return Err(VfsError::Invalid),
        }
        if immutable {
            self.switch(node)?;
            return Err(VfsError::Reopen);
        }
        if fate == Fate::Named {
            self.lease_for_open(caller, node)?;
            self.keep_switched(node);
        }
        if size == present && node.lock().working.is_none() {
            // What failed was put aside by now, and nothing of it is left here to be cut.
            if size == 0 {
                node.lock().tainted = false;
            }
            return Ok(());
        }
        self.begin_working(node, Some(size))?;
        self.change_bytes(node, false, |file, _| {
            file.set_len(size).map(|()| NewSize::Exactly(size)).map_err(Failed::Written)
        })?;
        if size == 0 {
            self.mark_emptied(node);
            // Whoever comes to save it: the next bytes' writer, a timer or a command.
            let artifact = node.lock().artifact;
            self.seen.note_author(caller, artifact, self.now());
        }
        if open { Ok(()) } else { self.after_truncate(caller, node, size) }
    }

    fn mark_emptied(&self, node: &Node) {
        let mut state = node.lock();
        let direct = state.is_direct();
        state.tainted = false;
        if let Some(working) = &mut state.working {
            working.emptied = !direct;
        }
    }

    /// truncate(2) names a file and has no handle: the cut is a save of its own, but for one to nothing.
    fn after_truncate(&self, caller: &Caller, node: &Arc<Node>, size: u64) -> Result<()> {
        if node.lock().writers > 0 {
            return Ok(());
        }
        if size > 0 {
            self.save(node, Closing::Save)?;
            self.note_saved_by(caller, node);
            return Ok(());
        }
        self.pending.add_emptied(node, self.grace_deadline());
        Ok(())
    }

    /// Opens a directory: it needs no state.
    ///
    /// Tells whether what the kernel has cached of its listing is still good.
    pub fn opendir(&self, caller: &Caller, ino: Ino) -> Result<(Handle, bool)> {
        let node = self.node(ino)?;
        if node.lock().kind != Kind::Directory {
            return Err(VfsError::NotDirectory);
        }
        self.check_access(caller, &node, READ)?;
        self.check_node_seen(&node)?;
        let changed = std::mem::replace(&mut node.lock().listing_changed, false);
        Ok((Handle(0), !changed))
    }

    /// Closes a directory.
    pub fn releasedir(&self, _handle: Handle) {}

    /// Makes the names of a directory survive a power cut, with what was saved under them.
    pub fn fsyncdir(&self, _ino: Ino) -> Result<()> {
        self.publisher.drain();
        self.publish_unsynced()?;
        Ok(self.workspace.catalog().sync()?)
    }

    /// Sizes and free space of the filesystem that the workspace is on.
    pub fn statfs(&self) -> Result<sys::FsStats> {
        sys::fs_stats(&self.staging).map_err(io("read the filesystem's sizes"))
    }
}

/// What a change makes of a file's size. Changes may overlap in time, so that most can only say what it is at least.
enum NewSize {
    AtLeast(u64),
    Exactly(u64),
}

/// How a change failed.
enum Failed {
    /// Part of the bytes may be written: the file is not whole.
    Written(std::io::Error),
    /// Nothing is changed, or nothing that the caller counts on.
    Unchanged(std::io::Error),
}

impl From<Failed> for std::io::Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Written(error) | Failed::Unchanged(error) => error,
        }
    }
}

/// Whether this thread was not yet sent to look the name up again since somebody last did.
/// Counts a handle that reads a node's last save from `file`; false if another save has come while that was opened.
fn count_handle(node: &Node, request: &OpenRequest, file: Option<Arc<File>>, content: &Content) -> bool {
    let mut state = node.lock();
    if state.file.is_none() && state.working.is_none() {
        if !request.truncate && state.content != *content {
            return false;
        }
        state.file = file;
    }
    state.handles += 1;
    state.writers += u32::from(request.write);
    true
}

fn first_time(node: &Node, caller: &Caller) -> bool {
    let mut state = node.lock();
    let first = !state.reopen_sent.contains(&caller.pid);
    if first {
        state.reopen_sent.push(caller.pid);
    }
    first
}

/// Notes what a write did to the node.
fn finish_write(
    state: &mut State,
    result: &std::result::Result<NewSize, Failed>,
    kill_suid: bool,
    now: crate::model::Timestamp,
) {
    if let Ok(size) = result {
        state.size = match *size {
            NewSize::AtLeast(size) => state.size.max(size),
            NewSize::Exactly(size) => size,
        };
        state.attrs.mtime = now;
        state.attrs.ctime = now;
        if kill_suid {
            state.attrs.mode = without_set_ids(state.attrs.mode);
        }
    }
    if let Some(lease) = &mut state.lease {
        lease.came_with_open = false;
    }
    state.tainted |= matches!(result, Err(Failed::Written(_)));
    if let (Ok(_), Some(working)) = (result, &mut state.working) {
        working.dirty = true;
        working.emptied = false;
    }
}
