//! Nodes: one content state of one name each.
//!
//! Locking: a node's state has a mutex that is held only to look at or change the state in memory. Whatever takes
//! time (copying, syncing, the catalog) happens between two holds, with [`Step::busy`] set: who finds it waits.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::{LeasePolicy, Renew};
use crate::engine::Unsaved;
use crate::model::{
    ArtifactId, Attrs, Content, Entry, Generation, Ino, Kind, Lease, RENEW_FRACTION, Scratch, Seq,
    VersionNumber,
};

/// What the kernel knows by an inode number.
#[derive(Debug)]
pub(super) struct Node {
    pub ino: Ino,
    state: Mutex<State>,
    changed: Condvar,
    /// The kernel's references. Beside the lock, since the table has to look at them when it forgets a node.
    lookups: AtomicU64,
}

/// What a node means now.
#[derive(Debug)]
pub(super) struct State {
    pub artifact: Seq,
    pub id: ArtifactId,
    pub kind: Kind,
    pub attrs: Attrs,
    /// The size as applications see it, unsaved bytes included.
    pub size: u64,
    /// The last save.
    pub content: Content,
    /// How many bytes the last save has.
    pub content_size: u64,
    /// Since when the name has had no save that is known to be on the disk, by the boot's clock; none if it has one.
    pub unsynced_since_ms: Option<i64>,
    pub scratch: Scratch,
    /// The version that the content is or was made on.
    pub base: Option<VersionNumber>,
    /// Whether the catalog has a draft for it.
    pub drafted: bool,
    /// The number of the version that the name was switched from.
    pub version_ino: Option<Ino>,
    /// The bytes may not change: readers of a version have it open or cached.
    pub immutable: bool,
    /// Somebody else changed the names in this directory since it was last opened.
    pub listing_changed: bool,
    /// The threads that were sent to look the name up again, since the last look-up.
    pub reopen_sent: Vec<u32>,
    pub fate: Fate,
    /// A write or sync failed since the file was last cut to nothing: it may replace no document.
    pub tainted: bool,
    /// Bytes of a detached node were put aside: its writers are told at every call.
    pub lost: bool,
    /// What becomes of bytes that can't become the draft any more.
    pub unsaved: Unsaved,
    /// The version that this checkout's last check-in made of it.
    pub checked_in: Option<VersionNumber>,
    /// Its process had not read the version that it writes over.
    pub unseen: bool,
    pub lease: Option<HeldLease>,
    /// Writing goes on without a lease, as policy has it.
    pub unleased: Option<Unleased>,
    /// On which terms the artifact is leased, as this mount last found out.
    pub terms: Option<KnownTerms>,
    /// An open file of the last save, while handles are open.
    pub file: Option<Arc<File>>,
    pub working: Option<Working>,
    pub step: Step,
    pub handles: u32,
    pub writers: u32,
}

/// Whether a name still stands for the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The checkout has a name for it.
    Named,
    /// Its name was removed or replaced: what is written to it goes when the last handle closes.
    Unlinked,
    /// The name means newer bytes: who has these open goes on reading them.
    Replaced,
    /// Its draft was taken away under open handles: what is written becomes a recovery copy.
    Detached,
}

/// The lease on a node's artifact, as this mount last saw it.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldLease {
    pub generation: Generation,
    pub expires_boot_ms: i64,
    pub renewed_boot_ms: i64,
    /// From when on use renews it.
    pub due_boot_ms: i64,
    /// Time renews it while somebody has the file open for writing: if it ends all the same, it is lost.
    pub kept_open: bool,
    /// The policy under which it was taken or renewed.
    pub policy: u64,
    /// It came with an open handle that has not written yet.
    pub came_with_open: bool,
}

impl HeldLease {
    /// A lease that was taken or renewed at `now_boot_ms` under the terms of a policy.
    pub fn new(lease: &Lease, now_boot_ms: i64, terms: &KnownTerms, came_with_open: bool) -> Self {
        let due_boot_ms = match terms.terms.renew {
            Renew::Activity | Renew::Open => now_boot_ms + terms.terms.ttl_ms / RENEW_FRACTION,
            Renew::Never => i64::MAX,
        };
        Self {
            generation: lease.generation,
            expires_boot_ms: lease.expires_boot_ms,
            renewed_boot_ms: now_boot_ms,
            due_boot_ms,
            kept_open: terms.terms.renew == Renew::Open,
            policy: terms.found_at.policy,
            came_with_open,
        }
    }
}

/// That writing needs no lease for now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unleased {
    pub found_at: Epoch,
    /// When it is to be asked again: somebody else's lease may have ended.
    pub until_boot_ms: i64,
}

/// Counts what makes terms and leases old that were found before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The policies that have held.
    pub policy: u64,
    /// The changes of names after which another rule may match.
    pub names: u64,
}

/// The terms for an artifact.
#[derive(Debug, Clone)]
pub(super) struct KnownTerms {
    pub artifact: Seq,
    pub found_at: Epoch,
    pub terms: Arc<LeasePolicy>,
}

/// Bytes that no save holds yet.
#[derive(Debug)]
pub(super) struct Working {
    /// The name of the file in `staging/`, or in `scratch/` if the node is written in place.
    pub name: String,
    pub path: PathBuf,
    pub file: Arc<File>,
    /// Written since the last save.
    pub dirty: bool,
    /// Cut to nothing and not written since: not yet a save.
    pub emptied: bool,
}

/// What is going on with a node while its lock is free.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// Somebody prepares, seals or rebinds the node: everybody else waits.
    pub busy: bool,
    /// Writes on their way to the working file.
    pub in_flight: u32,
}

impl Node {
    /// A node for what a name stands for. Only a draft with an inode of its own may change its bytes.
    pub fn of(entry: &Entry, attrs: Attrs) -> Self {
        let state = State {
            artifact: entry.artifact,
            id: entry.id,
            kind: entry.kind,
            attrs,
            size: entry.size,
            content: entry.content.clone(),
            content_size: entry.size,
            unsynced_since_ms: None,
            scratch: entry.scratch,
            base: entry.base(),
            drafted: entry.is_drafted(),
            version_ino: None,
            immutable: is_immutable(entry),
            listing_changed: true,
            reopen_sent: Vec::new(),
            fate: Fate::Named,
            tainted: false,
            lost: false,
            unsaved: Unsaved::Keep,
            checked_in: None,
            unseen: false,
            lease: None,
            unleased: None,
            terms: None,
            file: None,
            working: None,
            step: Step::default(),
            handles: 0,
            writers: 0,
        };
        Self::new(entry.ino, state)
    }

    /// A node with the same content and attributes, whose bytes may change.
    pub fn working_copy(&self, ino: Ino) -> Self {
        let state = self.lock();
        let copy = State {
            content: state.content.clone(),
            version_ino: Some(self.ino),
            immutable: false,
            reopen_sent: Vec::new(),
            fate: Fate::Named,
            lease: None,
            unleased: None,
            terms: None,
            file: None,
            working: None,
            step: Step::default(),
            handles: 0,
            writers: 0,
            ..*state
        };
        Self::new(ino, copy)
    }

    fn new(ino: Ino, state: State) -> Self {
        Self { ino, state: Mutex::new(state), changed: Condvar::new(), lookups: AtomicU64::new(0) }
    }

    /// Counts a reference that the kernel gets with an answer.
    pub fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back references of the kernel's.
    pub fn forget_lookups(&self, count: u64) {
        let fewer = |lookups: u64| Some(lookups.saturating_sub(count));
        // Never an error: the closure always has a new value.
        let _ = self.lookups.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }

    /// Whether the kernel may still name the node.
    pub fn is_known(&self) -> bool {
        self.lookups.load(Ordering::Acquire) > 0
    }

    /// Looks at or changes the state; never held across anything that takes time.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until nobody prepares, seals or rebinds the node.
    pub fn lock_idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.step.busy {
            self.changed.wait(&mut state);
        }
        state
    }

    /// Waits until the node is idle and no write is on its way, and claims it until [`Claim`] is dropped.
    pub fn claim(self: &Arc<Self>) -> Claim {
        let mut state = self.lock_idle();
        state.step.busy = true;
        while state.step.in_flight > 0 {
            self.changed.wait(&mut state);
        }
        drop(state);
        Claim { node: Arc::clone(self) }
    }

    /// Counts a write that has reached the working file, well or not.
    pub fn write_done(&self, state: &mut State) {
        state.step.in_flight -= 1;
        self.changed.notify_all();
    }
}

/// Whether a name's bytes may not be changed in place: a version's, and those of a draft that has only its attributes.
pub(super) fn is_immutable(entry: &Entry) -> bool {
    entry.head_ino == Some(entry.ino) && entry.kind == Kind::File
}

/// The right to change a node step by step; everybody else waits meanwhile.
#[derive(Debug)]
pub(super) struct Claim {
    pub node: Arc<Node>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.node.state.lock().step.busy = false;
        self.node.changed.notify_all();
    }
}

impl State {
    /// Whether there are bytes that no save holds.
    pub fn is_dirty(&self) -> bool {
        self.working.as_ref().is_some_and(|working| working.dirty)
    }

    /// Whether the file was cut to nothing and not written since.
    pub fn is_emptied(&self) -> bool {
        self.working.as_ref().is_some_and(|working| working.emptied)
    }

    /// The file that reads come from; none for an empty one that was never written.
    pub fn readable(&self) -> Option<Arc<File>> {
        self.working.as_ref().map(|working| Arc::clone(&working.file)).or_else(|| self.file.clone())
    }

    /// Whether the node is written in place: scratch files and `live` drafts.
    pub fn is_direct(&self) -> bool {
        matches!(self.content, Content::Direct(_))
    }

    /// Takes over what the catalog says of the node's name, but for bytes that are not saved. Tells whether the bytes
    /// that readers see are others now.
    pub fn refresh(&mut self, entry: &Entry, attrs: Attrs) -> bool {
        self.artifact = entry.artifact;
        self.id = entry.id;
        self.scratch = entry.scratch;
        self.base = entry.base();
        self.drafted = entry.is_drafted();
        self.version_ino = None;
        self.immutable = is_immutable(entry) && self.writers == 0 && self.working.is_none();
        if self.working.is_some() {
            return false;
        }
        // A save that became a blob has the same bytes; two saves or two blobs don't.
        let stored = matches!((&self.content, &entry.content), (Content::Staged(_), Content::Blob(_)));
        let changed = self.content != entry.content && !stored;
        self.attrs = attrs;
        self.size = entry.size;
        self.content = entry.content.clone();
        self.content_size = entry.size;
        if changed {
            self.file = None;
        }
        changed
    }
}
