//! How each open file reaches its bytes, and the backing files of those that pass through.
//!
//! The kernel decides per inode (fs/fuse/iomode.c): while one handle is passthrough, all must be, with the same
//! backing file; while one is cached, none may be. Handles with direct I/O are free only beside cached ones. A
//! wrong answer fails the open with EIO, so the table holds what the kernel holds. It counts a handle from before
//! the kernel hears of it until after the kernel has dropped it: it may be late in giving an inode free, never early.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, FopenFlags};
use parking_lot::Mutex;

use crate::model::Ino;
use crate::sys;
use crate::vfs::{Io, OpenRequest};

/// How the handles of one inode reach its bytes.
#[derive(Debug)]
enum Sharing<B> {
    Passthrough(Arc<B>),
    Cached,
}

impl<B> Clone for Sharing<B> {
    fn clone(&self) -> Self {
        match self {
            Self::Passthrough(backing) => Self::Passthrough(Arc::clone(backing)),
            Self::Cached => Self::Cached,
        }
    }
}

/// An inode with open handles that bind it.
struct Inode<B> {
    sharing: Sharing<B>,
    handles: HashSet<u64>,
}

/// What a new handle would have, were it the only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Immutable bytes that can only be read.
    Immutable,
    /// Bytes that change, through the page cache.
    Working,
    /// Bytes that change, past the page cache.
    Direct,
}

impl Claim {
    /// A handle that can write never counts as immutable: passing through, it would write into the blob.
    fn of(io: &Io, request: &OpenRequest) -> Self {
        match io {
            Io::Version(_) if !request.write => Self::Immutable,
            Io::Version(_) | Io::Cached => Self::Working,
            Io::Direct => Self::Direct,
        }
    }

    /// A direct handle binds an inode to nothing, unless it shares the backing file of others.
    fn binds<B>(self, sharing: &Sharing<B>) -> bool {
        self != Self::Direct || matches!(sharing, Sharing::Passthrough(_))
    }
}

/// The answer to an open: the kernel's flags, and the backing file if the handle passes through.
#[derive(Debug)]
pub(super) struct Admission<B> {
    pub(super) flags: FopenFlags,
    pub(super) backing: Option<Arc<B>>,
}

/// A handle that reads and writes was wanted on an inode whose other handles pass through.
///
/// Reads and writes of such a handle would come to us (`FOPEN_DIRECT_IO`), but a shared writable mapping of it
/// would go straight into the immutable backing file. Handles that only write can't be mapped (mmap(2)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MappableBesidePassthrough;

/// The inodes with open files, with how they are open. `B` is fuser's `BackingId`, or a test's stand-in.
///
/// Lock: taken alone and briefly; backing files are registered and given back outside it.
pub(super) struct BackingTable<B> {
    permitted: AtomicBool,
    inodes: Mutex<HashMap<Ino, Inode<B>>>,
}

impl<B> Default for BackingTable<B> {
    fn default() -> Self {
        Self { permitted: AtomicBool::new(false), inodes: Mutex::default() }
    }
}

impl<B> BackingTable<B> {
    /// Says whether files may pass through at all; until told, none does.
    pub(super) fn permit(&self, passthrough: bool) {
        self.permitted.store(passthrough, Ordering::Relaxed);
    }

    /// Decides how a new handle reaches its bytes, and counts it until [`leave`](Self::leave).
    ///
    /// `register` makes the kernel know a backing file. Should it fail, this one inode is read through the cache.
    pub(super) fn admit(
        &self,
        ino: Ino,
        handle: u64,
        io: &Io,
        request: &OpenRequest,
        register: impl FnOnce(&File) -> io::Result<B>,
    ) -> Result<Admission<B>, MappableBesidePassthrough> {
        let claim = Claim::of(io, request);
        // Declared before the guard, and so dropped after it: another open may have been faster.
        let alone = match io {
            Io::Version(file) if claim == Claim::Immutable => self.offer(ino, file, register),
            _ => Sharing::Cached,
        };
        let mut inodes = self.inodes.lock();
        let sharing = inodes.get(&ino).map_or(&alone, |inode| &inode.sharing).clone();
        let admission = decide(claim, request, &sharing)?;
        if claim.binds(&sharing) {
            let inode = inodes.entry(ino).or_insert_with(|| Inode { sharing, handles: HashSet::new() });
            inode.handles.insert(handle);
        }
        Ok(admission)
    }

    /// Stops counting a handle; one that was never counted is ignored.
    pub(super) fn leave(&self, ino: Ino, handle: u64) {
        let emptied = self.remove(ino, handle);
        // Gives the backing file back, if this was its last handle: a call to the kernel, so outside the lock.
        drop(emptied);
    }

    fn remove(&self, ino: Ino, handle: u64) -> Option<Inode<B>> {
        let mut inodes = self.inodes.lock();
        let inode = inodes.get_mut(&ino)?;
        inode.handles.remove(&handle);
        if inode.handles.is_empty() { inodes.remove(&ino) } else { None }
    }

    /// Registers a backing file where that is permitted and the inode isn't bound already.
    fn offer(&self, ino: Ino, file: &File, register: impl FnOnce(&File) -> io::Result<B>) -> Sharing<B> {
        if !self.permitted.load(Ordering::Relaxed) || self.inodes.lock().contains_key(&ino) {
            return Sharing::Cached;
        }
        match register(file) {
            Ok(backing) => Sharing::Passthrough(Arc::new(backing)),
            Err(error) => {
                tracing::warn!(%ino, %error, "no passthrough for this file: it is read through the cache");
                Sharing::Cached
            }
        }
    }
}

/// The kernel's rules: passthrough takes no `FOPEN_KEEP_CACHE` (EINVAL, `FOPEN_PASSTHROUGH_MASK`), and closing a
/// handle that can't write needs no flush.
fn decide<B>(
    claim: Claim,
    request: &OpenRequest,
    sharing: &Sharing<B>,
) -> Result<Admission<B>, MappableBesidePassthrough> {
    let keep = FopenFlags::FOPEN_KEEP_CACHE;
    let (flags, backing) = match (sharing, claim) {
        (Sharing::Passthrough(backing), Claim::Immutable) => (FopenFlags::FOPEN_NOFLUSH, Some(backing)),
        (Sharing::Passthrough(_), _) if request.read && request.write => {
            return Err(MappableBesidePassthrough);
        }
        (Sharing::Passthrough(backing), _) => (FopenFlags::FOPEN_DIRECT_IO, Some(backing)),
        (Sharing::Cached, Claim::Immutable) => (keep | FopenFlags::FOPEN_NOFLUSH, None),
        (Sharing::Cached, Claim::Working) => (keep, None),
        (Sharing::Cached, Claim::Direct) => (FopenFlags::FOPEN_DIRECT_IO, None),
    };
    Ok(Admission { flags, backing: backing.cloned() })
}

/// Finds out whether the kernel passes files like `file` through for this mount (it needs `CAP_SYS_ADMIN`, and a
/// filesystem below that isn't stacked too deep).
pub(super) fn probe(device: impl AsFd, file: &Path) -> io::Result<()> {
    let file = File::open(file)?;
    let backing = BackingId::create_raw(&device, &file)?;
    sys::close_fuse_backing(&device, backing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: OpenRequest =
        OpenRequest { read: true, write: false, append: false, truncate: false, exclusive: false };
    const WRITE: OpenRequest =
        OpenRequest { read: false, write: true, append: false, truncate: false, exclusive: false };
    const BOTH: OpenRequest =
        OpenRequest { read: true, write: true, append: false, truncate: false, exclusive: false };
    const INO: Ino = Ino(7);

    type Outcome = Result<(FopenFlags, Option<u32>), MappableBesidePassthrough>;

    struct Bench {
        table: BackingTable<u32>,
        next_backing: u32,
        next_handle: u64,
    }

    impl Bench {
        fn new(passthrough: bool) -> Self {
            let table = BackingTable::default();
            table.permit(passthrough);
            Self { table, next_backing: 0, next_handle: 0 }
        }

        /// Opens as handle 1, 2, …; each registration gives backing 1, 2, ….
        fn open(&mut self, io: &Io, request: &OpenRequest) -> Outcome {
            self.next_handle += 1;
            let register = |_: &File| {
                self.next_backing += 1;
                Ok(self.next_backing)
            };
            let admission = self.table.admit(INO, self.next_handle, io, request, register)?;
            Ok((admission.flags, admission.backing.map(|backing| *backing)))
        }

        fn is_bound(&self) -> bool {
            self.table.inodes.lock().contains_key(&INO)
        }
    }

    fn version() -> Io {
        Io::Version(tempfile::tempfile().unwrap())
    }

    fn through(backing: u32) -> Outcome {
        Ok((FopenFlags::FOPEN_NOFLUSH, Some(backing)))
    }

    fn cached_version() -> Outcome {
        Ok((FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH, None))
    }

    /// All readers of a version share one backing file, until the last has closed.
    #[test]
    fn readers_share_one_backing_file() {
        let mut bench = Bench::new(true);
        assert_eq!(bench.open(&version(), &READ), through(1));
        assert_eq!(bench.open(&version(), &READ), through(1));
        bench.table.leave(INO, 1);
        assert_eq!(bench.open(&version(), &READ), through(1));
        bench.table.leave(INO, 2);
        bench.table.leave(INO, 3);
        assert!(!bench.is_bound());
        assert_eq!(bench.open(&version(), &READ), through(2));
    }

    /// Without permission all is cached, and an inode with cached handles stays so when permission comes.
    #[test]
    fn a_cached_inode_stays_cached_while_it_is_open() {
        let mut bench = Bench::new(false);
        assert_eq!(bench.open(&version(), &READ), cached_version());
        bench.table.permit(true);
        assert_eq!(bench.open(&version(), &READ), cached_version());
        assert_eq!(bench.open(&Io::Cached, &BOTH), Ok((FopenFlags::FOPEN_KEEP_CACHE, None)));
        (1..=3).for_each(|handle| bench.table.leave(INO, handle));
        assert_eq!(bench.open(&version(), &READ), through(1));
    }

    /// A backing file that the kernel refuses makes its inode cached, and no open fails.
    #[test]
    fn a_refused_backing_file_falls_back_to_the_cache() {
        let mut bench = Bench::new(true);
        let refuse = |_: &File| Err(io::ErrorKind::PermissionDenied.into());
        let admission = bench.table.admit(INO, 99, &version(), &READ, refuse).unwrap();
        assert!(admission.backing.is_none());
        assert_eq!(bench.open(&version(), &READ), cached_version());
    }

    /// Of two opens that both registered a backing file, the later one takes the earlier one's.
    #[test]
    fn a_lost_race_takes_the_backing_file_that_won() {
        let table = BackingTable::default();
        table.permit(true);
        let admission = table.admit(INO, 1, &version(), &READ, |_| {
            let winner = table.admit(INO, 2, &version(), &READ, |_| Ok(20)).unwrap();
            assert_eq!(winner.backing.as_deref(), Some(&20));
            Ok(10)
        });
        assert_eq!(admission.unwrap().backing.as_deref(), Some(&20));
    }

    /// What can write never passes through, whatever the vfs says of it.
    #[test]
    fn a_handle_that_can_write_never_passes_through() {
        for request in [&WRITE, &BOTH] {
            let mut bench = Bench::new(true);
            assert_eq!(bench.open(&version(), request), Ok((FopenFlags::FOPEN_KEEP_CACHE, None)));
        }
    }

    /// Beside readers that pass through, direct handles need the same backing file, and mappable ones are refused.
    #[test]
    fn direct_handles_beside_passthrough_cant_be_mapped_for_writing() {
        let mut bench = Bench::new(true);
        assert_eq!(bench.open(&version(), &READ), through(1));
        for io in [Io::Direct, Io::Cached] {
            assert_eq!(bench.open(&io, &BOTH), Err(MappableBesidePassthrough));
            assert_eq!(bench.open(&io, &WRITE), Ok((FopenFlags::FOPEN_DIRECT_IO, Some(1))));
            assert_eq!(bench.open(&io, &READ), Ok((FopenFlags::FOPEN_DIRECT_IO, Some(1))));
        }
        bench.table.leave(INO, 1);
        assert!(bench.is_bound(), "BUG: direct handles that share the backing file were not counted");
    }

    /// Alone or beside cached handles, a direct handle binds nothing.
    #[test]
    fn a_direct_handle_alone_binds_nothing() {
        let mut bench = Bench::new(true);
        assert_eq!(bench.open(&Io::Direct, &BOTH), Ok((FopenFlags::FOPEN_DIRECT_IO, None)));
        assert!(!bench.is_bound());
        assert_eq!(bench.open(&version(), &READ), through(1));
        bench.table.leave(INO, 1);
        assert!(bench.is_bound(), "BUG: a handle that was never counted gave the inode free");
    }
}
