use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use super::check;

/// Holds a passwd entry with a long list of fields; getpwuid_r(3) suggests this order of magnitude.
const PASSWD_BYTES: usize = 16 * 1024;

/// The name of the effective user (getpwuid_r(3)); none where the user database doesn't know the number.
pub fn user_name() -> Option<String> {
    let mut buffer = vec![0; PASSWD_BYTES];
    // SAFETY: an all-zero passwd is valid, and the call fills it.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: `entry`, `buffer` and `found` are valid for writing, and outlive the use of the entry.
    let code = unsafe {
        libc::getpwuid_r(libc::geteuid(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found)
    };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: a found entry's name is a NUL-terminated string in `buffer`.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    name.to_str().ok().map(str::to_owned)
}

/// The machine's name (uname(2), `nodename`), as the kernel shows it.
pub fn host_name() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim_end().to_owned())
}

/// Makes this process the leader of a new session, without a terminal (setsid(2)).
pub fn new_session() -> io::Result<()> {
    // SAFETY: setsid takes nothing.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Points standard output at `/dev/null` (dup2(2)).
pub fn close_stdout() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    // SAFETY: both descriptors are open; descriptor 1 is standard output by convention.
    check(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), libc::STDOUT_FILENO) }).map(drop)
}

/// Lets this process open as many files as it may (getrlimit(2), `RLIMIT_NOFILE`): a mount holds all its users' files.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }).map(drop)
}

/// Takes a mount out of the tree at once, though it may be busy (umount2(2), `MNT_DETACH`).
///
/// A user who may not is helped by `fusermount3`.
pub fn detach_mount(mountpoint: &Path) -> io::Result<()> {
    let path = c_path(mountpoint)?;
    // SAFETY: `path` is a NUL-terminated string.
    let result = check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) });
    match result {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => fusermount_detach(mountpoint),
        other => other.map(drop),
    }
}

fn fusermount_detach(mountpoint: &Path) -> io::Result<()> {
    let output = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(mountpoint).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The value of an extended attribute (lgetxattr(2)); none where the file has no such attribute.
///
/// Values of more than 4 KiB are refused with `ERANGE`.
pub fn xattr(path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let (path, name) = (c_path(path)?, CString::new(name)?);
    let mut value = vec![0_u8; 4096];
    let buffer = value.as_mut_ptr().cast();
    // SAFETY: both strings are NUL-terminated, and the buffer is valid for writing its whole length.
    let length = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), buffer, value.len()) };
    match usize::try_from(length) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(_) => absent_or_error(io::Error::last_os_error()),
    }
}

/// The value of an extended attribute of an open file (fgetxattr(2)), of up to 4 KiB; none where it has no such attribute.
pub fn xattr_of(file: &File, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0_u8; 4096];
    let buffer = value.as_mut_ptr().cast();
    // SAFETY: the name is NUL-terminated, the descriptor is open, and the buffer is valid for writing its whole length.
    let length = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), buffer, value.len()) };
    match usize::try_from(length) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(_) => absent_or_error(io::Error::last_os_error()),
    }
}

/// Sets an extended attribute of an open file (fsetxattr(2)).
pub fn set_xattr_of(file: &File, name: &CStr, value: &[u8]) -> io::Result<()> {
    let (descriptor, bytes) = (file.as_raw_fd(), value.as_ptr().cast());
    // SAFETY: the name is NUL-terminated, the descriptor is open, and the value is valid for reading its whole length.
    check(unsafe { libc::fsetxattr(descriptor, name.as_ptr(), bytes, value.len(), 0) }).map(drop)
}

fn absent_or_error(error: io::Error) -> io::Result<Option<Vec<u8>>> {
    if error.raw_os_error() == Some(libc::ENODATA) { Ok(None) } else { Err(error) }
}

/// Whether an error says that the daemon of a mount is gone: `ENOTCONN`, or `ECONNABORTED` for what was being asked when
/// it went (`fuse_abort_conn` in the kernel).
pub fn is_dead_mount(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// The path as the kernel takes it; an inner NUL is refused.
pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_and_the_host_have_names() {
        assert!(user_name().is_some_and(|name| !name.is_empty()));
        assert!(!host_name().unwrap().is_empty());
    }

    #[test]
    fn an_absent_attribute_is_none() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        assert_eq!(xattr(file.path(), "user.absent").unwrap(), None);
    }
}
