use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::check;
use super::host::c_path;

/// `FS_CASEFOLD_FL` (linux/fs.h): names in the directory that differ in case alone are one name.
const FS_CASEFOLD_FL: libc::c_long = 0x4000_0000;

/// Where and what a path's last component is, which is not followed if it is a symlink (statx(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathFacts {
    /// The mount that it was reached through: the number that starts its line of `/proc/self/mountinfo`.
    pub mount: u64,
    /// The type and the permissions, as in `st_mode`.
    pub mode: u32,
    /// How many names it has.
    pub links: u32,
}

impl PathFacts {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Whether it is a symlink.
    pub fn is_symlink(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFLNK
    }
}

/// Looks at a path. A fact that the kernel or the filesystem leaves out is an error, `Unsupported`.
pub fn path_facts(path: &Path) -> io::Result<PathFacts> {
    let path = c_path(path)?;
    let mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK | libc::STATX_MNT_ID;
    // SAFETY: an all-zero statx is valid, and the kernel fills it.
    let mut raw: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in NUL and `raw` is valid for writing.
    check(unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW, mask, &mut raw) })?;
    if raw.stx_mask & mask != mask {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(PathFacts { mount: raw.stx_mnt_id, mode: raw.stx_mode.into(), links: raw.stx_nlink })
}

/// Whether a filesystem says of a directory that names in it are compared without their case, as ext4 and f2fs can
/// (ioctl_iflags(2)). One that has no such flags says nothing.
pub fn folds_case(dir: &File) -> io::Result<bool> {
    // The kernel fills an int, whatever the request's number says (ioctl_iflags(2), BUGS).
    let mut flags: libc::c_long = 0;
    // SAFETY: the descriptor is open, and `flags` is valid for writing.
    match check(unsafe { libc::ioctl(dir.as_raw_fd(), libc::FS_IOC_GETFLAGS, &mut flags) }) {
        Ok(_) => Ok(flags & FS_CASEFOLD_FL != 0),
        Err(error) if has_no_flags(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn has_no_flags(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL))
}

/// Whether a path could not be followed for its many symlinks, which mostly go round (path_resolution(7)).
pub fn is_symlink_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::open_dir;

    #[test]
    fn a_path_is_looked_at_without_being_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| path_facts(&dir.path().join(name));
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::fs::hard_link(dir.path().join("file"), dir.path().join("second")).unwrap();
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        let file = at("file").unwrap();
        assert!(file.is_file() && file.links == 2 && at("loop").unwrap().is_symlink());
        let here = path_facts(dir.path()).unwrap();
        assert!(here.is_dir() && here.mount == file.mount);
        assert_ne!(path_facts(Path::new("/proc")).unwrap().mount, path_facts(Path::new("/")).unwrap().mount);
        assert!(is_symlink_loop(&dir.path().join("loop").canonicalize().unwrap_err()));
        assert_eq!(at("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn ordinary_directories_fold_no_case() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path(), Path::new("/proc"), Path::new("/dev/shm")] {
            assert!(!folds_case(&open_dir(path).unwrap()).unwrap(), "{}", path.display());
        }
    }
}
