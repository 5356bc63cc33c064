use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::check;

/// The fixed part of `struct inotify_event`: wd, mask, cookie and the name's length, four bytes each (inotify(7)).
const HEADER_BYTES: usize = 16;
/// Holds at least one event with the longest name (`NAME_MAX` + 1).
const BUFFER_BYTES: usize = 4096;
/// A touched, written, created or renamed file.
const CHANGES: u32 =
    libc::IN_ATTRIB | libc::IN_MODIFY | libc::IN_CLOSE_WRITE | libc::IN_CREATE | libc::IN_MOVED_TO;
/// A file that a writer has closed, or that was renamed to its name.
const WHOLE: u32 = libc::IN_CLOSE_WRITE | libc::IN_MOVED_TO;

/// Tells when one name in a directory is touched, written or replaced (inotify(7)).
///
/// The directory is watched, not the file, so that the name may come, go and be replaced.
#[derive(Debug)]
pub struct NameWatch {
    inotify: OwnedFd,
    name: OsString,
}

impl NameWatch {
    /// Watches `name` in `directory`, which must exist.
    pub fn new(directory: &Path, name: &OsStr) -> io::Result<Self> {
        Self::watch(directory, name, CHANGES)
    }

    /// Watches for a file of that name that is whole: a writer has closed it, or it was renamed there. What others write in
    /// the directory wakes nobody.
    pub fn of_whole(directory: &Path, name: &OsStr) -> io::Result<Self> {
        Self::watch(directory, name, WHOLE)
    }

    fn watch(directory: &Path, name: &OsStr, changes: u32) -> io::Result<Self> {
        // SAFETY: inotify_init1 takes flags only.
        let fd = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let inotify = unsafe { OwnedFd::from_raw_fd(fd) };
        let path = super::host::c_path(directory)?;
        // SAFETY: the descriptor is open and `path` is a NUL-terminated string.
        check(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), changes) })?;
        Ok(Self { inotify, name: name.into() })
    }

    /// Waits at most `timeout` for a change of the name, and takes all that happened so far; whether it changed.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        if !self.readable(timeout)? {
            return Ok(false);
        }
        let mut changed = false;
        let mut buffer = [0; BUFFER_BYTES];
        while let Some(length) = self.read(&mut buffer)? {
            changed |= names(&buffer[..length]).any(|name| name == self.name.as_bytes());
        }
        Ok(changed)
    }

    fn readable(&self, timeout: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.inotify.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout_ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `poll` is one valid pollfd.
        match check(unsafe { libc::poll(&mut poll, 1, timeout_ms) }) {
            Ok(ready) => Ok(ready > 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: the descriptor is open, and the buffer is valid for writing its whole length.
        let length =
            unsafe { libc::read(self.inotify.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(length) {
            Ok(length) => Ok(Some(length)),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// The names in a buffer of events, without the NULs that pad them.
fn names(mut events: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (header, rest) = events.split_at_checked(HEADER_BYTES)?;
        let length = header[12..].try_into().map(u32::from_ne_bytes).ok()?;
        let (name, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        events = rest;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(&name[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_of_the_name_wakes_and_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let watch = NameWatch::new(dir.path(), OsStr::new("wake")).unwrap();
        assert!(!watch.wait(Duration::ZERO).unwrap());
        std::fs::write(dir.path().join("other"), "").unwrap();
        assert!(!watch.wait(Duration::ZERO).unwrap());
        std::fs::write(dir.path().join("wake"), "").unwrap();
        assert!(watch.wait(Duration::from_secs(1)).unwrap());
        let file = std::fs::File::open(dir.path().join("wake")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).unwrap());
        assert!(!watch.wait(Duration::ZERO).unwrap(), "all events were taken");
    }

    #[test]
    fn a_file_counts_as_whole_when_its_writer_has_closed_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy");
        let watch = NameWatch::of_whole(dir.path(), OsStr::new("policy")).unwrap();
        let mut file = std::fs::File::create(&path).unwrap();
        std::io::Write::write_all(&mut file, b"half").unwrap();
        assert!(!watch.wait(Duration::ZERO).unwrap(), "it is being written");
        drop(file);
        assert!(watch.wait(Duration::from_secs(1)).unwrap());
        std::fs::rename(&path, dir.path().join("other")).unwrap();
        assert!(!watch.wait(Duration::ZERO).unwrap(), "it is gone");
        std::fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).unwrap());
    }
}
