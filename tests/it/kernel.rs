//! System calls as applications make them, and their error numbers.
#![allow(unsafe_code, reason = "the standard library has no words for most of what applications do")]

use std::ffi::{CString, OsStr};
use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use serde::{Deserialize, Serialize};

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errno(pub i32);

/// A result of a system call.
pub type Sys<T> = Result<T, Errno>;

pub const EACCES: Errno = Errno(libc::EACCES);
pub const EBUSY: Errno = Errno(libc::EBUSY);
pub const EIO: Errno = Errno(libc::EIO);
pub const ENODATA: Errno = Errno(libc::ENODATA);
pub const ENOENT: Errno = Errno(libc::ENOENT);
pub const ENOSPC: Errno = Errno(libc::ENOSPC);
pub const ENOTSUP: Errno = Errno(libc::ENOTSUP);
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

/// Gives a descriptor that is ours an owner, who closes it.
pub fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the caller has just made the descriptor, and nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(fd) }
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
