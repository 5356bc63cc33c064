use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;

use super::check;
use super::files::{c_string, open_dir_at};

/// What a name stands for, which is not followed if it is a symlink (fstatat(2), `AT_SYMLINK_NOFOLLOW`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The filesystem.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The type and the permissions, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last write, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The time of the last change of bytes or attributes, in nanoseconds since 1970.
    pub ctime_ns: i64,
}

impl Facts {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

/// Looks at the name `name` of `dir`.
pub fn facts_at(dir: &File, name: &OsStr) -> io::Result<Facts> {
    let name = c_string(name)?;
    // SAFETY: an all-zero stat is valid, and the kernel fills it.
    let mut raw: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the name ends in NUL and `raw` is valid for writing.
    check(unsafe { libc::fstatat(dir.as_raw_fd(), name.as_ptr(), &mut raw, libc::AT_SYMLINK_NOFOLLOW) })?;
    Ok(Facts {
        device: raw.st_dev,
        inode: raw.st_ino,
        mode: raw.st_mode,
        uid: raw.st_uid,
        size: raw.st_size.cast_unsigned(),
        mtime_ns: raw.st_mtime.saturating_mul(1_000_000_000).saturating_add(raw.st_mtime_nsec),
        ctime_ns: raw.st_ctime.saturating_mul(1_000_000_000).saturating_add(raw.st_ctime_nsec),
    })
}

/// The names in a directory, in no order, without `.` and `..` (readdir(3)).
pub fn names_in(dir: &File) -> io::Result<Vec<OsString>> {
    // A descriptor of its own: reading moves the offset, and closedir(3) closes it.
    let own = open_dir_at(dir, OsStr::new("."))?.into_raw_fd();
    // SAFETY: the descriptor is an open directory that nobody else owns.
    let stream = unsafe { libc::fdopendir(own) };
    if stream.is_null() {
        let error = io::Error::last_os_error();
        // SAFETY: the failed call left the descriptor ours.
        unsafe { libc::close(own) };
        return Err(error);
    }
    let names = read_names(stream);
    // SAFETY: the stream is open and not used after.
    unsafe { libc::closedir(stream) };
    names
}

fn read_names(stream: *mut libc::DIR) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    loop {
        // SAFETY: errno is this thread's own; only it tells an error from the end.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open, and only this thread reads it.
        let entry = unsafe { libc::readdir64(stream) };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(0) { Ok(names) } else { Err(error) };
        }
        // SAFETY: the entry is valid until the next call, and its name ends in NUL.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::open_dir;

    #[test]
    fn a_name_is_looked_at_and_listed_without_being_followed() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), b"four").unwrap();
        std::os::unix::fs::symlink("file", root.path().join("link")).unwrap();
        std::fs::create_dir(root.path().join("dir")).unwrap();
        let dir = open_dir(root.path()).unwrap();
        let facts = |name: &str| facts_at(&dir, OsStr::new(name)).unwrap();
        assert_eq!((facts("file").is_file(), facts("file").size), (true, 4));
        assert!(!facts("link").is_file() && !facts("link").is_dir() && facts("dir").is_dir());
        assert_eq!(facts_at(&dir, OsStr::new("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        for _ in 0..2 {
            let mut names = names_in(&dir).unwrap();
            names.sort();
            assert_eq!(names, ["dir", "file", "link"]);
        }
    }
}
