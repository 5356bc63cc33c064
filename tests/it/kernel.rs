//! System calls as applications make them, and their error numbers.
#![allow(unsafe_code, reason = "the standard library has no words for most of what applications do")]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use serde::{Deserialize, Serialize};

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(pub i32);

/// A result of a system call.
pub type Sys<T> = Result<T, Errno>;

pub const EACCES: Errno = Errno(libc::EACCES);
pub const EAGAIN: Errno = Errno(libc::EAGAIN);
pub const EBUSY: Errno = Errno(libc::EBUSY);
pub const EEXIST: Errno = Errno(libc::EEXIST);
pub const EFBIG: Errno = Errno(libc::EFBIG);
pub const EINVAL: Errno = Errno(libc::EINVAL);
pub const EISDIR: Errno = Errno(libc::EISDIR);
pub const EIO: Errno = Errno(libc::EIO);
pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
pub const ENODATA: Errno = Errno(libc::ENODATA);
pub const ENOENT: Errno = Errno(libc::ENOENT);
pub const ENOSPC: Errno = Errno(libc::ENOSPC);
pub const ENOTDIR: Errno = Errno(libc::ENOTDIR);
pub const ENOTEMPTY: Errno = Errno(libc::ENOTEMPTY);
pub const ENOTSUP: Errno = Errno(libc::ENOTSUP);
pub const ENOTTY: Errno = Errno(libc::ENOTTY);
pub const EPERM: Errno = Errno(libc::EPERM);
pub const EROFS: Errno = Errno(libc::EROFS);

impl Errno {
    /// The number that the last failed call left.
    fn last() -> Self {
        Self::of(&io::Error::last_os_error())
    }

    /// The number of an error of the standard library.
    pub fn of(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(0))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}

fn path_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn done(result: libc::c_int) -> Sys<()> {
    if result == -1 { Err(Errno::last()) } else { Ok(()) }
}

fn counted(result: isize) -> Sys<usize> {
    usize::try_from(result).map_err(|_| Errno::last())
}

pub fn open(path: &Path, flags: i32) -> Sys<i32> {
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { libc::open(path_of(path).as_ptr(), flags | libc::O_CLOEXEC, 0o644) };
    if fd == -1 { Err(Errno::last()) } else { Ok(fd) }
}

pub fn close(fd: i32) -> Sys<()> {
    // SAFETY: closing a number that is not open is an error and no more.
    done(unsafe { libc::close(fd) })
}

pub fn dup(fd: i32) -> Sys<i32> {
    // SAFETY: dup takes a number.
    let new = unsafe { libc::dup(fd) };
    if new == -1 { Err(Errno::last()) } else { Ok(new) }
}

pub fn read_at(fd: i32, offset: i64, length: usize) -> Sys<Vec<u8>> {
    let mut bytes = vec![0; length];
    // SAFETY: the buffer is valid for its whole length.
    let count = counted(unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), length, offset) })?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Writes all of the bytes at the descriptor's own offset, or at one that is given.
pub fn write(fd: i32, offset: Option<i64>, bytes: &[u8]) -> Sys<()> {
    let mut written = 0;
    while written < bytes.len() {
        let rest = &bytes[written..];
        // SAFETY: the buffer is valid for its whole length.
        written += counted(unsafe {
            match offset {
                None => libc::write(fd, rest.as_ptr().cast(), rest.len()),
                Some(at) => libc::pwrite(fd, rest.as_ptr().cast(), rest.len(), at + written as i64),
            }
        })?;
    }
    Ok(())
}

pub fn fsync(fd: i32) -> Sys<()> {
    // SAFETY: fsync takes a number.
    done(unsafe { libc::fsync(fd) })
}

pub fn truncate(path: &Path, length: i64) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::truncate(path_of(path).as_ptr(), length) })
}

pub fn ftruncate(fd: i32, length: i64) -> Sys<()> {
    // SAFETY: ftruncate takes numbers.
    done(unsafe { libc::ftruncate(fd, length) })
}

/// `flags`: 0, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
pub fn rename(from: &Path, to: &Path, flags: u32) -> Sys<()> {
    let (from, to) = (path_of(from), path_of(to));
    // SAFETY: both paths are NUL-terminated.
    done(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })
}

pub fn unlink(path: &Path) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::unlink(path_of(path).as_ptr()) })
}

pub fn mkdir(path: &Path) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::mkdir(path_of(path).as_ptr(), 0o755) })
}

pub fn rmdir(path: &Path) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::rmdir(path_of(path).as_ptr()) })
}

pub fn chmod(path: &Path, mode: u32) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::chmod(path_of(path).as_ptr(), mode) })
}

pub fn fchmod(fd: i32, mode: u32) -> Sys<()> {
    // SAFETY: fchmod takes numbers.
    done(unsafe { libc::fchmod(fd, mode) })
}

/// Changes owner and group of what the path names itself, a symlink too; -1 leaves one as it is.
pub fn lchown(path: &Path, uid: u32, gid: u32) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::lchown(path_of(path).as_ptr(), uid, gid) })
}

/// As [`lchown`], following symlinks, those of `/proc` to open files too.
pub fn chown(path: &Path, uid: u32, gid: u32) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::chown(path_of(path).as_ptr(), uid, gid) })
}

/// Sets the times of last access and last change in seconds, or to now; `flags`: 0 or `AT_SYMLINK_NOFOLLOW`.
pub fn set_times(path: &Path, times: Option<(i64, i64)>, flags: i32) -> Sys<()> {
    let spec = |seconds| libc::timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = times.map(|(atime, mtime)| [spec(atime), spec(mtime)]);
    let pointer = times.as_ref().map_or(ptr::null(), |times| times.as_ptr());
    // SAFETY: the path is NUL-terminated, and the pointer is null or to two times that outlive the call.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path_of(path).as_ptr(), pointer, flags) })
}

/// `operation`: `LOCK_SH`, `LOCK_EX` or `LOCK_UN`; never waits.
pub fn flock(fd: i32, operation: i32) -> Sys<()> {
    // SAFETY: flock takes numbers.
    done(unsafe { libc::flock(fd, operation | libc::LOCK_NB) })
}

/// Locks bytes for the process; `kind`: `F_RDLCK`, `F_WRLCK` or `F_UNLCK`; never waits.
pub fn lock_range(fd: i32, kind: i32, start: i64, length: i64) -> Sys<()> {
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    let lock = libc::flock { l_type, l_whence, l_start: start, l_len: length, l_pid: 0 };
    // SAFETY: the pointer is to a lock that outlives the call.
    done(unsafe { libc::fcntl(fd, libc::F_SETLK, &lock) })
}

pub fn access(path: &Path, mode: i32) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::access(path_of(path).as_ptr(), mode) })
}

pub fn link(from: &Path, to: &Path) -> Sys<()> {
    // SAFETY: both paths are NUL-terminated.
    done(unsafe { libc::link(path_of(from).as_ptr(), path_of(to).as_ptr()) })
}

/// `kind`: `S_IFIFO`, `S_IFSOCK`, `S_IFCHR` or `S_IFREG`.
pub fn mknod(path: &Path, kind: libc::mode_t) -> Sys<()> {
    // SAFETY: the path is NUL-terminated.
    done(unsafe { libc::mknod(path_of(path).as_ptr(), kind | 0o644, libc::makedev(1, 3)) })
}

pub fn getxattr(path: &Path, name: &str) -> Sys<Vec<u8>> {
    let (path, name) = (path_of(path), CString::new(name).unwrap());
    let mut value = vec![0_u8; 4096];
    // SAFETY: the strings are NUL-terminated, and the buffer is valid for its whole length.
    let length =
        unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(counted(length)?);
    Ok(value)
}

/// The names of the attributes that are listed.
pub fn listxattr(path: &Path) -> Sys<Vec<String>> {
    let path = path_of(path);
    let mut names = vec![0_u8; 65_536];
    // SAFETY: the path is NUL-terminated, and the buffer is valid for its whole length.
    let length = counted(unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) })?;
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

pub fn setxattr(path: &Path, name: &str, value: &[u8]) -> Sys<()> {
    let (path, name) = (path_of(path), CString::new(name).unwrap());
    // SAFETY: the strings are NUL-terminated, and the value is valid for its whole length.
    done(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

pub fn removexattr(path: &Path, name: &str) -> Sys<()> {
    let (path, name) = (path_of(path), CString::new(name).unwrap());
    // SAFETY: the strings are NUL-terminated.
    done(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })
}

/// Lets the kernel forget the pages of a file that nobody has changed since they were written (posix_fadvise(2)).
pub fn drop_pages(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: posix_fadvise takes numbers, and the descriptor is open.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(error, 0, "posix_fadvise of {}", path.display());
}

/// An ioctl(2) with a number as its argument.
pub fn ioctl(fd: i32, request: libc::Ioctl, argument: libc::c_ulong) -> Sys<()> {
    // SAFETY: the requests that tests make take numbers, or are refused before the argument is looked at.
    done(unsafe { libc::ioctl(fd, request, argument) })
}

/// Sends a signal to one process.
pub fn kill(pid: i32, signal: i32) {
    assert!(pid > 1, "BUG: {pid} is no process of ours");
    // SAFETY: kill takes numbers.
    unsafe { libc::kill(pid, signal) };
}

pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Whether a test that only root can do may go on; else says why not, which CI doesn't accept.
pub fn is_root_for(tested: &str, needed: &str) -> bool {
    if !is_root() {
        assert!(std::env::var_os("CI").is_none(), "not root, and CI wants {tested} tested");
        eprintln!("SKIPPED: only root can {needed}");
    }
    is_root()
}

/// A shared mapping.
pub struct Mapping {
    at: *mut u8,
    length: usize,
}

impl Mapping {
    pub fn new(fd: i32, length: usize, writable: bool) -> Sys<Self> {
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, fd, 0) };
        if at == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(Self { at: at.cast(), length }) }
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length, "BUG: outside of the mapping");
        // SAFETY: the range lies in the mapping, which lives as long as `self`.
        (offset..offset + length).map(|at| unsafe { ptr::read_volatile(self.at.add(at)) }).collect()
    }

    /// The mapping must be writable: the process ends by SIGSEGV otherwise.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length, "BUG: outside of the mapping");
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: the range lies in the mapping, which lives as long as `self`.
            unsafe { ptr::write_volatile(self.at.add(offset + at), *byte) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody refers to it any more.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

/// What inotify(7) tells of a file or directory.
pub struct Watch(OwnedFd);

impl Watch {
    pub fn new(path: &Path, mask: u32) -> Self {
        // SAFETY: inotify_init1 takes flags only.
        let inotify = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) });
        // SAFETY: the path is NUL-terminated.
        let added = unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path_of(path).as_ptr(), mask) };
        assert_ne!(added, -1, "{}: {:?}", path.display(), Errno::last());
        Self(inotify)
    }

    /// Everything that was told since the last call: which events, of which name in a watched directory.
    pub fn events(&self) -> Vec<(u32, OsString)> {
        let mut buffer = vec![0_u8; 1 << 16];
        // SAFETY: the buffer is valid for its whole length.
        let read = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let Ok(length) = usize::try_from(read) else { return Vec::new() };
        let (mut rest, mut events) = (&buffer[..length], Vec::new());
        while let Some((header, tail)) = rest.split_at_checked(size_of::<libc::inotify_event>()) {
            let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
            let (name, tail) = tail.split_at(word(12) as usize);
            let name = CStr::from_bytes_until_nul(name).map_or(&b""[..], CStr::to_bytes);
            events.push((word(4), OsStr::from_bytes(name).to_owned()));
            rest = tail;
        }
        events
    }
}

/// What fanotify(7) tells of all files of a mount; for root.
pub struct MountWatch(OwnedFd);

impl MountWatch {
    pub fn new(mount: &Path, mask: u64) -> Self {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: fanotify_init takes flags only.
        let fanotify =
            owned(unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as u32) });
        let (add, path) = (libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT, path_of(mount));
        // SAFETY: the path is NUL-terminated.
        let marked =
            unsafe { libc::fanotify_mark(fanotify.as_raw_fd(), add, mask, libc::AT_FDCWD, path.as_ptr()) };
        assert_ne!(marked, -1, "{}: {:?}", mount.display(), Errno::last());
        Self(fanotify)
    }

    /// Everything that was told since the last call: which events, of which file.
    pub fn events(&self) -> Vec<(u64, PathBuf)> {
        let size = size_of::<libc::fanotify_event_metadata>();
        let mut buffer = vec![0_u8; 1 << 16];
        // SAFETY: the buffer is valid for its whole length.
        let read = unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let events = buffer[..usize::try_from(read).unwrap_or(0)].chunks_exact(size);
        let event = |event: &[u8]| {
            // The events lie one behind the other, each with an open file (`struct fanotify_event_metadata`).
            let mask = u64::from_ne_bytes(event[8..16].try_into().unwrap());
            let file = owned(i32::from_ne_bytes(event[16..20].try_into().unwrap()));
            (mask, path_of_fd(file.as_raw_fd()).read_link().unwrap())
        };
        events.map(event).collect()
    }
}

/// Gives a descriptor that is ours an owner, who closes it.
pub fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the caller has just made the descriptor, and nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Copies of what another process has open of a file (pidfd_getfd(2)); root may do that.
pub fn copies_of_open(pid: u32, file: &Path) -> Vec<OwnedFd> {
    let pid_number = libc::pid_t::try_from(pid).unwrap();
    // SAFETY: no memory is passed, and a descriptor that comes back is ours.
    let process = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid_number, 0) }.try_into().unwrap());
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    let open = entries.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link == file));
    let copy = |entry: std::fs::DirEntry| {
        let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: as above.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        owned(copy.try_into().unwrap())
    };
    open.map(copy).collect()
}

/// The path of an open descriptor of the calling process.
pub fn path_of_fd(fd: i32) -> std::path::PathBuf {
    Path::new("/proc/self/fd").join(OsStr::new(&fd.to_string()))
}

/// Records what happens to the names of a directory (inotify(7)).
pub struct NameEvents(std::fs::File);

impl NameEvents {
    pub fn watch(directory: &Path) -> Self {
        // SAFETY: inotify_init1 takes flags only.
        let inotify = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        assert!(inotify >= 0, "{}", io::Error::last_os_error());
        let path = path_of(directory);
        let events = libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVE;
        // SAFETY: the descriptor is open and the path ends in NUL.
        let watch = unsafe { libc::inotify_add_watch(inotify, path.as_ptr(), events) };
        assert!(watch >= 0, "{}", io::Error::last_os_error());
        Self(owned(inotify).into())
    }

    /// What has happened since the last time, in order: `CREATE name`.
    pub fn take(&mut self) -> Vec<String> {
        let mut buffer = vec![0; 1 << 16];
        let length = io::Read::read(&mut self.0, &mut buffer).unwrap_or(0);
        let (mut rest, mut events) = (&buffer[..length], Vec::new());
        while let Some((header, names)) = rest.split_at_checked(16) {
            let field = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
            let (name, after) = names.split_at(field(12) as usize);
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            let kind = match field(4) & (libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVE) {
                libc::IN_CREATE => "CREATE",
                libc::IN_DELETE => "DELETE",
                libc::IN_MOVED_FROM => "MOVED_FROM",
                _ => "MOVED_TO",
            };
            events.push(format!("{kind} {name}"));
            rest = after;
        }
        events
    }
}
