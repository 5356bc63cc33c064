//! The protocol's operations: each decodes its arguments, makes one call of the vfs, and replies.
//!
//! Nothing is decided here but which thread answers. Calls that may take long (they publish, copy, verify or wait
//! for the disk) are answered from the pool, so that the threads that read from the kernel never wait.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::answer::{Refusal, Reply, answer, contain};
use super::backing::{Admission, BackingTable};
use super::decode::{caller, file_attr, file_type, ino, open_request, rename_mode, set_time, special_kind};
use super::pool::Pool;
use crate::model::{Ino, Name};
use crate::sys::FsStats;
use crate::vfs::{Handle, NodeAttr, OpenRequest, Opened, Pace, SetAttr, Vfs, VfsError};

/// How long the kernel may trust a name or attributes: as good as for ever, since the notifier tells it of every
/// change that didn't come through the mount.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Inode numbers are never reused, so one generation serves all.
const GENERATION: Generation = Generation(0);

/// The largest write(2) in one request: what the kernel's default `fs.fuse.max_pages_limit` (256 pages) admits.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// How many requests that nobody waits for (readahead, writeback, release) may be under way (kernel default: 12).
const MAX_BACKGROUND: u16 = 64;

/// How many layers of filesystems may lie below a file that passes through: overlayfs counts as one.
const MAX_STACK_DEPTH: u32 = 2;

/// What the kernel is asked for, as far as it offers it.
///
/// `ATOMIC_O_TRUNC` saves a request at each save, and lets a cut through `/proc/self/fd` reach the right node. Left out
/// on purpose: `WRITEBACK_CACHE` (would hide single writes from the lease check), `POSIX_LOCKS` and `FLOCK_LOCKS` (the kernel's own can be
/// interrupted), `DIRECT_IO_ALLOW_MMAP`, and `DONT_MASK` (the kernel applies the umask).
const CAPABILITIES: InitFlags = InitFlags::FUSE_DO_READDIRPLUS
    .union(InitFlags::FUSE_READDIRPLUS_AUTO)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_ASYNC_READ)
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_ATOMIC_O_TRUNC)
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_PASSTHROUGH);

/// What the answering threads share.
pub(super) struct Shared {
    pub(super) vfs: Arc<Vfs>,
    pub(super) backings: BackingTable<BackingId>,
    /// Set when the kernel has ended the session.
    pub(super) ended: AtomicBool,
}

/// The filesystem as fuser sees it.
pub(super) struct Adapter {
    shared: Arc<Shared>,
    pool: Pool,
    /// For what waits for a shared store: however many do, they keep nobody else waiting.
    far_pool: Pool,
}

impl Adapter {
    pub(super) fn new(shared: Arc<Shared>, slow_threads: usize, far_threads: usize) -> io::Result<Self> {
        Ok(Self {
            shared,
            pool: Pool::start("slow", slow_threads)?,
            far_pool: Pool::start("far", far_threads)?,
        })
    }

    fn vfs(&self) -> &Vfs {
        &self.shared.vfs
    }

    /// Answers from the pool.
    fn later<R: Reply + Send + 'static, T, E: Into<Refusal>>(
        &self,
        operation: &'static str,
        reply: R,
        call: impl FnOnce(&Shared, &mut R) -> Result<T, E> + Send + 'static,
        send: impl FnOnce(R, T) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        self.pool.run(move || answer(operation, reply, |reply| call(&shared, reply), send));
    }

    /// Answers at once, or from the pool that is for calls of this pace.
    fn at_pace<R: Reply + Send + 'static, T, E: Into<Refusal>>(
        &self,
        pace: Pace,
        operation: &'static str,
        reply: R,
        call: impl FnOnce(&Shared, &mut R) -> Result<T, E> + Send + 'static,
        send: impl FnOnce(R, T) + Send + 'static,
    ) {
        match pace {
            Pace::AtOnce => answer(operation, reply, |reply| call(&self.shared, reply), send),
            Pace::Slow => self.later(operation, reply, call, send),
            Pace::Elsewhere => {
                let shared = Arc::clone(&self.shared);
                self.far_pool.run(move || answer(operation, reply, |reply| call(&shared, reply), send));
            }
        }
    }

    /// Asks the vfs how long a call may take; should that panic, the call is made where it does least harm.
    fn pace(&self, operation: &'static str, ask: impl FnOnce(&Vfs) -> Pace) -> Pace {
        contain(operation, || ask(self.vfs())).unwrap_or(Pace::Slow)
    }

    /// Answers from the pool if the vfs says that the call may be slow, else at once.
    fn sooner_or_later<R: Reply + Send + 'static, T, E: Into<Refusal>>(
        &self,
        may_block: bool,
        operation: &'static str,
        reply: R,
        call: impl FnOnce(&Shared, &mut R) -> Result<T, E> + Send + 'static,
        send: impl FnOnce(R, T) + Send + 'static,
    ) {
        let pace = if may_block { Pace::Slow } else { Pace::AtOnce };
        self.at_pace(pace, operation, reply, call, send);
    }

    /// Asks the vfs whether a call may be slow; should that panic, the call is made where it does least harm.
    fn may_block(&self, operation: &'static str, ask: impl FnOnce(&Vfs) -> bool) -> bool {
        contain(operation, || ask(self.vfs())).unwrap_or(true)
    }
}

impl Shared {
    /// Counts an opened file, and closes it again if the kernel couldn't take it.
    fn admit(
        &self,
        node: Ino,
        opened: Opened,
        request: &OpenRequest,
        register: impl FnOnce(&std::fs::File) -> io::Result<BackingId>,
    ) -> Result<(FileHandle, Admission<BackingId>), Refusal> {
        let Opened { handle, io } = opened;
        let number = FileHandle(handle.0);
        match self.backings.admit(node, handle.0, &io, request, register) {
            Ok(admission) => Ok((number, admission)),
            Err(refused) => {
                self.vfs.release(handle);
                tracing::info!(ino = %node, ?refused, "open refused until the readers have closed");
                Err(VfsError::InUse.into())
            }
        }
    }

    /// Closes a file again that was admitted and can't be given out after all.
    fn take_back(&self, node: Ino, handle: Handle) {
        self.backings.leave(node, handle.0);
        self.vfs.release(handle);
    }
}

fn send_ok(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

/// A node that shows another's number does so for a while: the kernel asks each time.
fn attr_ttl(node: &NodeAttr) -> Duration {
    if node.shown == node.ino { TTL } else { Duration::ZERO }
}

fn send_entry(reply: ReplyEntry, node: NodeAttr) {
    reply.entry_with_ttls(&attr_ttl(&node), &TTL, &file_attr(&node), GENERATION);
}

fn send_attr(reply: ReplyAttr, node: NodeAttr) {
    reply.attr(&attr_ttl(&node), &FileAttr { ino: INodeNo(node.shown.0), ..file_attr(&node) });
}

fn send_data(reply: ReplyData, data: Vec<u8>) {
    reply.data(&data);
}

fn send_opened(reply: ReplyOpen, (handle, admission): (FileHandle, Admission<BackingId>)) {
    match admission.backing {
        Some(backing) => reply.opened_passthrough(handle, admission.flags, &backing),
        None => reply.opened(handle, admission.flags),
    }
}

fn send_created(
    reply: ReplyCreate,
    (node, (handle, admission)): (NodeAttr, (FileHandle, Admission<BackingId>)),
) {
    let (attr, flags) = (file_attr(&node), admission.flags);
    match admission.backing {
        Some(backing) => reply.created_passthrough(&TTL, &attr, GENERATION, handle, flags, &backing),
        None => reply.created(&TTL, &attr, GENERATION, handle, flags),
    }
}

fn send_written(reply: ReplyWrite, written: usize) {
    reply.written(u32::try_from(written).expect("BUG: more was written than a request can hold"));
}

fn send_stats(reply: ReplyStatfs, stats: FsStats) {
    let FsStats { blocks, blocks_free, blocks_available, files, files_free, .. } = stats;
    let block_bytes = u32::try_from(stats.block_bytes).unwrap_or(u32::MAX);
    let name_bytes = u32::try_from(Name::MAX_BYTES).expect("BUG: NAME_MAX fits into 32 bits");
    reply.statfs(
        blocks,
        blocks_free,
        blocks_available,
        files,
        files_free,
        block_bytes,
        name_bytes,
        block_bytes,
    );
}

/// Room of 0 asks for the size; too little room is ERANGE (getxattr(2), listxattr(2)).
fn send_xattr(reply: ReplyXattr, value: &[u8], room: u32) {
    match u32::try_from(value.len()) {
        Ok(size) if room == 0 => reply.size(size),
        Ok(size) if size <= room => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = CAPABILITIES & config.capabilities();
        config
            .add_capabilities(offered)
            .map_err(|_| io::Error::other("BUG: asked for more than was offered"))?;
        // Each of these answers the nearest value that it takes. Readahead stays at what the kernel offers.
        let nearest = config.set_max_write(MAX_WRITE_BYTES).err();
        nearest.map(|bytes| config.set_max_write(bytes));
        let nearest = config.set_max_stack_depth(MAX_STACK_DEPTH).err();
        nearest.map(|depth| config.set_max_stack_depth(depth));
        let nearest = config.set_max_background(MAX_BACKGROUND).err();
        nearest.map(|count| config.set_max_background(count));
        Ok(())
    }

    fn destroy(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let call = |_: &mut _| self.vfs().lookup(&caller(request), ino(parent), name);
        answer("lookup", reply, call, send_entry);
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        contain("forget", || self.vfs().forget(ino(node), count));
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let call = |_: &mut _| self.vfs().getattr(ino(node), handle.map(|handle| Handle(handle.0)));
        answer("getattr", reply, call, send_attr);
    }

    /// A new size may have to copy the bytes that are kept.
    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (caller, node) = (caller(request), ino(node));
        let change = SetAttr { mode, uid, gid, size, atime: atime.map(set_time), mtime: mtime.map(set_time) };
        let call = move |shared: &Shared, _: &mut _| {
            shared.vfs.setattr(&caller, node, &change, handle.map(|handle| Handle(handle.0)))
        };
        let pace = self.pace("setattr", |vfs| vfs.setattr_pace(node, &change));
        self.at_pace(pace, "setattr", reply, call, send_attr);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        answer("readlink", reply, |_| self.vfs().readlink(ino(node)), send_data);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let call = |_: &mut _| {
            let kind = special_kind(mode)?;
            let made = self.vfs().mknod(&caller(request), ino(parent), name, kind, mode & 0o7777 & !umask);
            made.map_err(Refusal::from)
        };
        answer("mknod", reply, call, send_entry);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & 0o7777 & !umask;
        let call = |_: &mut _| self.vfs().mkdir(&caller(request), ino(parent), name, mode);
        answer("mkdir", reply, call, send_entry);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = |_: &mut _| self.vfs().unlink(&caller(request), ino(parent), name);
        answer("unlink", reply, call, send_ok);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = |_: &mut _| self.vfs().rmdir(&caller(request), ino(parent), name);
        answer("rmdir", reply, call, send_ok);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let call = |_: &mut _| self.vfs().symlink(&caller(request), ino(parent), name, target);
        answer("symlink", reply, call, send_entry);
    }

    /// A rename over an artifact publishes what comes in its place.
    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (caller, name, new_name) = (caller(request), name.to_owned(), new_name.to_owned());
        let call = move |shared: &Shared, _: &mut _| {
            let mode = rename_mode(flags)?;
            let (parent, new_parent) = (ino(parent), ino(new_parent));
            let renamed = shared.vfs.rename(&caller, (parent, &name), (new_parent, &new_name), mode);
            renamed.map_err(Refusal::from)
        };
        self.later("rename", reply, call, send_ok);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, node, wanted) = (caller(request), ino(node), open_request(flags));
        let pace = self.pace("open", |vfs| vfs.open_pace(node, &wanted));
        let call = move |shared: &Shared, reply: &mut ReplyOpen| {
            let opened = shared.vfs.open(&caller, node, &wanted)?;
            let handle = opened.handle;
            let admitted = shared.admit(node, opened, &wanted, |file| reply.open_backing(file))?;
            if wanted.truncate {
                shared.vfs.cut_opened(&caller, handle).inspect_err(|_| shared.take_back(node, handle))?;
            }
            Ok::<_, Refusal>(admitted)
        };
        self.at_pace(pace, "open", reply, call, send_opened);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let wanted = open_request(OpenFlags(flags));
        let call = |reply: &mut ReplyCreate| {
            let mode = mode & 0o7777 & !umask;
            let (node, opened) = self.vfs().create(&caller(request), ino(parent), name, mode, &wanted)?;
            let admitted = self.shared.admit(node.ino, opened, &wanted, |file| reply.open_backing(file))?;
            Ok::<_, Refusal>((node, admitted))
        };
        answer("create", reply, call, send_created);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let call = |_: &mut _| self.vfs().read(Handle(handle.0), offset, size as usize);
        answer("read", reply, call, send_data);
    }

    /// Only a write that may be slow is copied out of the request's buffer.
    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let caller = caller(request);
        let kill_suid = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        if self.may_block("write", |vfs| vfs.write_may_block(Handle(handle.0), offset, data.len())) {
            let data = data.to_vec();
            let call = move |shared: &Shared, _: &mut _| {
                shared.vfs.write(&caller, Handle(handle.0), offset, &data, kill_suid)
            };
            self.later("write", reply, call, send_written);
        } else {
            let call = |_: &mut _| self.vfs().write(&caller, Handle(handle.0), offset, data, kill_suid);
            answer("write", reply, call, send_written);
        }
    }

    fn flush(&self, request: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let caller = caller(request);
        let may_block = self.may_block("flush", |vfs| vfs.flush_may_block(Handle(handle.0)));
        let call = move |shared: &Shared, _: &mut _| shared.vfs.flush(&caller, Handle(handle.0));
        self.sooner_or_later(may_block, "flush", reply, call, send_ok);
    }

    /// A release publishes what a mapping wrote after the last flush.
    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        // At once, since the kernel has let go already, and an open may be waiting for it.
        contain("release", || self.shared.backings.leave(ino(node), handle.0));
        let may_block = self.may_block("release", |vfs| vfs.flush_may_block(Handle(handle.0)));
        let call = move |shared: &Shared, _: &mut _| {
            shared.vfs.release(Handle(handle.0));
            Ok::<_, Refusal>(())
        };
        self.sooner_or_later(may_block, "release", reply, call, send_ok);
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let call = move |shared: &Shared, _: &mut _| shared.vfs.fsync(Handle(handle.0), data_only);
        self.later("fsync", reply, call, send_ok);
    }

    /// The kernel keeps listings; one that somebody else changed, maybe while it was read, is dropped at the next opening.
    fn opendir(&self, request: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let call = |_: &mut _| self.vfs().opendir(&caller(request), ino(node));
        let send = |reply: ReplyOpen, (handle, keep): (Handle, bool)| {
            let keep = if keep { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
            reply.opened(FileHandle(handle.0), FopenFlags::FOPEN_CACHE_DIR | keep);
        };
        answer("opendir", reply, call, send);
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, after: u64, reply: ReplyDirectory) {
        let call = |reply: &mut ReplyDirectory| {
            self.vfs().readdir(ino(node), after, &mut |entry| {
                let name = OsStr::from_bytes(entry.name);
                reply.add(INodeNo(entry.ino.0), entry.cookie, file_type(entry.kind), name)
            })
        };
        answer("readdir", reply, call, |reply, ()| reply.ok());
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _: FileHandle,
        after: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let call = |reply: &mut ReplyDirectoryPlus| {
            self.vfs().readdirplus(ino(node), after, &mut |entry, attr| {
                let name = OsStr::from_bytes(entry.name);
                reply.add(
                    INodeNo(entry.ino.0),
                    entry.cookie,
                    name,
                    &attr_ttl(attr),
                    &file_attr(attr),
                    GENERATION,
                )
            })
        };
        answer("readdirplus", reply, call, |reply, ()| reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let call = |_: &mut _| {
            self.vfs().releasedir(Handle(handle.0));
            Ok::<_, Refusal>(())
        };
        answer("releasedir", reply, call, send_ok);
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        let call = move |shared: &Shared, _: &mut _| shared.vfs.fsyncdir(ino(node));
        self.later("fsyncdir", reply, call, send_ok);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        answer("statfs", reply, |_| self.vfs().statfs(), send_stats);
    }

    fn access(&self, request: &Request, node: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let call = |_: &mut _| self.vfs().access(&caller(request), ino(node), mask.bits());
        answer("access", reply, call, send_ok);
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let call = |_: &mut _| self.vfs().getxattr(ino(node), name);
        answer("getxattr", reply, call, |reply, value| send_xattr(reply, &value, room));
    }

    fn listxattr(&self, _: &Request, node: INodeNo, room: u32, reply: ReplyXattr) {
        let call = |_: &mut _| self.vfs().listxattr(ino(node));
        answer("listxattr", reply, call, |reply, names| send_xattr(reply, &names, room));
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let call = |_: &mut _| self.vfs().setxattr(&caller(request), ino(node), name, value, flags);
        answer("setxattr", reply, call, send_ok);
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = |_: &mut _| self.vfs().removexattr(&caller(request), ino(node), name);
        answer("removexattr", reply, call, send_ok);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let call = move |shared: &Shared, _: &mut _| {
            let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
            let length = i64::try_from(length).map_err(|_| Errno::EFBIG)?;
            shared.vfs.fallocate(Handle(handle.0), mode, offset, length).map_err(Refusal::from)
        };
        self.later("fallocate", reply, call, send_ok);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let call = |_: &mut _| self.vfs().lseek(Handle(handle.0), offset, whence);
        answer("lseek", reply, call, ReplyLseek::offset);
    }

    /// The reply counts in 32 bits, so a longer copy is cut short, as copy_file_range(2) permits.
    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let caller = caller(request);
        let length = length.min(u64::from(u32::MAX));
        let call = move |shared: &Shared, _: &mut _| {
            let (from, to) = (Handle(from.0), Handle(to.0));
            let copied = shared.vfs.copy_file_range(&caller, (from, from_offset), (to, to_offset), length)?;
            Ok::<_, VfsError>(usize::try_from(copied).expect("BUG: more was copied than asked for"))
        };
        self.later("copy_file_range", reply, call, send_written);
    }
}
