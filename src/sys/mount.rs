use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::check;

pub use libc::{O_APPEND, O_EXCL, O_TRUNC, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK};

/// `CAP_SYS_ADMIN`'s bit in a capability set (linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;

/// `FUSE_DEV_IOC_BACKING_CLOSE` (linux/fuse.h): takes the number of a backing file.
const FUSE_DEV_IOC_BACKING_CLOSE: libc::Ioctl = libc::_IOW::<u32>(229, 2);

/// Unmounts what is mounted at `mountpoint`, not lazily: EBUSY while anybody uses it (umount2(2)).
///
/// The last component is not followed if it is a symlink.
pub fn unmount(mountpoint: &Path) -> io::Result<()> {
    let path = CString::new(mountpoint.as_os_str().as_bytes())?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(path.as_ptr(), libc::UMOUNT_NOFOLLOW) }).map(drop)
}

/// Ends a FUSE filesystem, so that who waits for its daemon gets an error (`fuse_abort_conn` in the kernel).
///
/// `device` is its device, as `MAJOR:MINOR`. The owner of the mount may do so where the control filesystem is mounted
/// (Documentation/filesystems/fuse, "control filesystem"), and root everywhere, by unmounting with force: if it is busy it
/// stays mounted.
pub fn abort_fuse(mountpoint: &Path, device: &str) -> io::Result<()> {
    let minor = device.rsplit(':').next().unwrap_or_default();
    match fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1") {
        Ok(()) => Ok(()),
        Err(_) => force_unmount(mountpoint),
    }
}

/// umount2(2) with `MNT_FORCE`.
fn force_unmount(mountpoint: &Path) -> io::Result<()> {
    let path = CString::new(mountpoint.as_os_str().as_bytes())?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    let result = check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW) });
    match result {
        Err(error) if error.kind() != io::ErrorKind::ResourceBusy => Err(error),
        _ => Ok(()),
    }
}

/// Whether this process may call mount(2) in its user namespace (capabilities(7), `CapEff` of proc(5)).
pub fn may_mount() -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let set = set.ok_or_else(|| io::Error::other("no CapEff in /proc status"))?;
    Ok(set & (1 << CAP_SYS_ADMIN) != 0)
}

/// Gives back a passthrough backing file that was registered at the FUSE device `device`.
pub fn close_fuse_backing(device: impl AsFd, backing: u32) -> io::Result<()> {
    let device = device.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the kernel reads one u32 from the pointer.
    check(unsafe { libc::ioctl(device, FUSE_DEV_IOC_BACKING_CLOSE, &backing) }).map(drop)
}
