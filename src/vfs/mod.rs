//! What the mounted tree means: nodes, handles, attributes, scratch and drafts; no protocol.
//!
//! Names are read from the catalog each time: the kernel caches them, and nothing here can be stale. What is kept in
//! memory is what only this mount knows: nodes with open handles and unsaved bytes, and leases as last seen.

mod access;
mod attr;
mod error;
mod handles;
mod io;
mod leasing;
mod names;
mod node;
mod ops;
mod powercut;
mod problems;
mod publisher;
mod saving;
mod seen;
mod settle;
mod sync;
mod table;
mod terms;
mod xattr;

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

pub use error::{Result, VfsError};

use crate::catalog::Actor;
use crate::engine::{EngineError, Workspace};
use crate::model::{Attrs, CheckoutId, Generation, Holder, Ino, Instant, Kind, Name, Seq, Timestamp};
use crate::sys;
use handles::Handles;
use seen::SeenVersions;
use table::NodeTable;

/// Who sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The thread, as FUSE names it; 0 where the kernel itself asks.
    pub pid: u32,
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// What stat(2) shows of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAttr {
    /// The node's number.
    pub ino: Ino,
    /// The inode number that stat(2) shows: a working node shows its version's until it has bytes of its own.
    pub shown: Ino,
    /// What it is.
    pub kind: Kind,
    /// The size in bytes.
    pub size: u64,
    /// The space it takes, in units of 512 bytes.
    pub blocks: u64,
    /// Mode, owner and times.
    pub attrs: Attrs,
    /// The number of names.
    pub nlink: u32,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to set; none stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// The permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenRequest {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// With `O_APPEND`.
    pub append: bool,
    /// With `O_TRUNC`.
    pub truncate: bool,
    /// With `O_EXCL`.
    pub exclusive: bool,
}

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// No longer than a look at the catalog.
    AtOnce,
    /// As long as the disk needs.
    Slow,
    /// As long as a shared store needs, which may be dead.
    Elsewhere,
}

/// How the bytes of an open file travel.
#[derive(Debug)]
pub enum Io {
    /// They never change: straight to this file where that is permitted, otherwise through the page cache.
    Version(File),
    /// Through the page cache of a node that this mount alone changes.
    Cached,
    /// Past the page cache, which belongs to other bytes.
    Direct,
}

/// A file that was opened.
#[derive(Debug)]
pub struct Opened {
    /// Names it in later requests.
    pub handle: Handle,
    /// How its bytes travel.
    pub io: Io,
}

pub use crate::catalog::RenameMode;

/// One name in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// The name.
    pub name: &'a [u8],
    /// Where a later listing goes on.
    pub cookie: u64,
}

/// Takes word of what the kernel has to forget; only queues it, since telling the kernel may block.
pub trait Invalidate: Send + Sync {
    /// A name means another node, or none.
    fn entry(&self, parent: Ino, name: &Name);
    /// A node's pages and attributes are old.
    fn content(&self, ino: Ino);
    /// A node's attributes are old.
    fn attributes(&self, ino: Ino);
    /// Waits, but not for long, until the kernel has been told; never called from a request's thread.
    fn settle(&self);
}

/// How a checkout is mounted.
#[derive(Debug, Clone)]
pub struct VfsOptions {
    /// The holder of its leases.
    pub holder: Holder,
    /// How long a lease lasts, in milliseconds, if not as policy has it; cut to what policy permits.
    pub ttl_ms: Option<i64>,
    /// Whether a file is checked in some time after its last writer closed it.
    pub checkin_on_close: bool,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// Whether other users may look in: then the kernel checks permissions.
    pub allow_other: bool,
    /// The user that versions belong to.
    pub uid: u32,
    /// The group that versions belong to.
    pub gid: u32,
}

/// A mounted checkout.
pub struct Vfs {
    workspace: Arc<Workspace>,
    options: VfsOptions,
    checkout: CheckoutId,
    nodes: NodeTable,
    handles: Handles,
    seen: SeenVersions,
    staging: File,
    names_synced_with_files: bool,
    invalidate: OnceLock<Arc<dyn Invalidate>>,
    mountpoint: OnceLock<std::path::PathBuf>,
    passthrough: AtomicBool,
    pending: settle::Pending,
    publisher: Arc<publisher::Queue>,
    trash: powercut::Trash,
    follower: sync::Follower,
    access: access::Following,
    owed: sync::Owed,
    epochs: terms::Epochs,
    synced_boot_ms: AtomicI64,
    /// The artifacts whose unsaved bytes the catalog knows of.
    noted_writers: Mutex<Vec<(Seq, Generation)>>,
    problems: problems::Problems,
}

impl std::fmt::Debug for Vfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vfs").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Drop for Vfs {
    /// Lets go of everything as a crash would: [`Vfs::close`] is what saves.
    fn drop(&mut self) {
        self.publisher.stop();
    }
}

impl Vfs {
    /// Opens a checkout of a workspace for mounting: recovers what a dead mount left, and starts the publisher.
    pub fn new(
        workspace: Arc<Workspace>,
        options: VfsOptions,
    ) -> std::result::Result<Arc<Self>, EngineError> {
        let checkout = workspace.in_catalog(workspace.catalog().checkout(&options.holder))?;
        workspace.recover_checkout(checkout)?;
        workspace.in_catalog(workspace.catalog().checkpoint_by_hand())?;
        let staging_dir = workspace.layout().staging();
        let staging = File::open(&staging_dir).map_err(|source| EngineError::File {
            doing: "open",
            path: staging_dir.clone(),
            source,
        })?;
        let follower = sync::Follower::new(&workspace)?;
        let access = access::Following::new(&workspace)?;
        let vfs = Arc::new(Self {
            checkout,
            options,
            nodes: NodeTable::default(),
            handles: Handles::default(),
            seen: SeenVersions::default(),
            names_synced_with_files: sys::syncs_names_with_files(&staging).unwrap_or(false),
            staging,
            invalidate: OnceLock::new(),
            mountpoint: OnceLock::new(),
            passthrough: AtomicBool::new(false),
            pending: settle::Pending::default(),
            publisher: Arc::default(),
            trash: powercut::Trash::default(),
            follower,
            access,
            owed: sync::Owed::default(),
            epochs: terms::Epochs::default(),
            synced_boot_ms: AtomicI64::new(0),
            noted_writers: Mutex::default(),
            problems: problems::Problems::default(),
            workspace,
        });
        publisher::start(&vfs);
        vfs.requeue_staged()?;
        vfs.workspace.in_catalog(vfs.give_back_drafts_later())?;
        Ok(vfs)
    }

    /// Says who tells the kernel what to forget.
    pub fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        let _ = self.invalidate.set(invalidate);
    }

    /// Says where the checkout is mounted, so that pages of mappings can be asked for before a check-in.
    pub fn set_mountpoint(&self, mountpoint: &std::path::Path) {
        let _ = self.mountpoint.set(mountpoint.to_owned());
    }

    /// Says whether reads of versions go straight to the store's files; `status` shows it.
    pub fn set_reads(&self, passthrough: bool) {
        self.passthrough.store(passthrough, Ordering::Relaxed);
    }

    /// The workspace that is mounted.
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }

    fn now(&self) -> Instant {
        self.workspace.clock().now()
    }

    fn actor(&self) -> Actor {
        let VfsOptions { ref holder, ttl_ms, uid, gid, .. } = self.options;
        self.workspace.actor(self.checkout, holder, ttl_ms, (uid, gid))
    }

    fn refuse_if_read_only(&self) -> Result<()> {
        if self.options.read_only { Err(VfsError::ReadOnly) } else { Ok(()) }
    }
}
