//! Translation between the protocol's values and the vfs's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, OpenAccMode, OpenFlags, RenameFlags, Request, TimeOrNow};

use crate::model::{Ino, Kind, Timestamp};
use crate::sys;
use crate::vfs::{Caller, NodeAttr, OpenRequest, RenameMode, SetTime};

/// `st_blksize`: the page size, since a larger one gains nothing where the page cache reads ahead.
const BLOCK_BYTES: u32 = 4096;

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

pub(super) fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

pub(super) fn open_request(flags: OpenFlags) -> OpenRequest {
    let (mode, has) = (flags.acc_mode(), |flag| flags.0 & flag != 0);
    OpenRequest {
        read: mode != OpenAccMode::O_WRONLY,
        write: mode != OpenAccMode::O_RDONLY,
        append: has(sys::O_APPEND),
        truncate: has(sys::O_TRUNC),
        exclusive: has(sys::O_EXCL),
    }
}

/// Whiteouts and flags of later kernels are EINVAL, as rename(2) has it.
pub(super) fn rename_mode(flags: RenameFlags) -> Result<RenameMode, Errno> {
    match flags {
        RenameFlags::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        RenameFlags::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        flags if flags.is_empty() => Ok(RenameMode::Replace),
        _ => Err(Errno::EINVAL),
    }
}

/// What mknod(2) is to make: devices are EPERM, and no type at all means a regular file.
pub(super) fn special_kind(mode: u32) -> Result<Kind, Errno> {
    match mode & sys::S_IFMT {
        0 | sys::S_IFREG => Ok(Kind::File),
        sys::S_IFIFO => Ok(Kind::Fifo),
        sys::S_IFSOCK => Ok(Kind::Socket),
        _ => Err(Errno::EPERM),
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

/// Saturates outside the years 1677 to 2262.
///
/// Before 1970 the kernel counts nanoseconds forward from a negative second, and fuser 0.18 takes them off
/// (`system_time_from_time`): that is undone here.
fn timestamp(time: SystemTime) -> Timestamp {
    let nanos = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(error) => {
            let before = error.duration();
            i128::from(before.subsec_nanos()) - i128::from(before.as_secs()) * 1_000_000_000
        }
    };
    let bound = if nanos < 0 { i64::MIN } else { i64::MAX };
    Timestamp(i64::try_from(nanos).unwrap_or(bound))
}

fn system_time(time: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(time.0.unsigned_abs());
    if time.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
        Kind::Directory => FileType::Directory,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

pub(super) fn file_attr(node: &NodeAttr) -> FileAttr {
    let attrs = &node.attrs;
    FileAttr {
        ino: INodeNo(node.ino.0),
        size: node.size,
        blocks: node.blocks,
        atime: system_time(attrs.atime),
        mtime: system_time(attrs.mtime),
        ctime: system_time(attrs.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(node.kind),
        perm: u16::try_from(attrs.mode & 0o7777).expect("BUG: twelve bits fit into sixteen"),
        nlink: node.nlink,
        uid: attrs.uid,
        gid: attrs.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The access mode and the flags that matter are told apart, and others are left out.
    #[test]
    fn open_flags_are_told_apart() {
        let read = open_request(OpenFlags(0));
        assert!(read.read && !read.write && !read.append && !read.truncate && !read.exclusive);
        let write = open_request(OpenFlags(1 | sys::O_TRUNC));
        assert!(!write.read && write.write && write.truncate && !write.append);
        let both = open_request(OpenFlags(2 | sys::O_APPEND | sys::O_EXCL));
        assert!(both.read && both.write && both.append && both.exclusive && !both.truncate);
    }

    #[test]
    fn renames_that_cant_be_meant_are_invalid() {
        assert!(matches!(rename_mode(RenameFlags::empty()), Ok(RenameMode::Replace)));
        assert!(matches!(rename_mode(RenameFlags::RENAME_NOREPLACE), Ok(RenameMode::NoReplace)));
        assert!(matches!(rename_mode(RenameFlags::RENAME_EXCHANGE), Ok(RenameMode::Exchange)));
        let both = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        for bad in [RenameFlags::RENAME_WHITEOUT, both, RenameFlags::from_bits_retain(1 << 7)] {
            assert!(matches!(rename_mode(bad), Err(Errno::EINVAL)), "{bad:?}");
        }
    }

    #[test]
    fn devices_cant_be_made() {
        assert_eq!(special_kind(0o644), Ok(Kind::File));
        assert_eq!(special_kind(0o100_644), Ok(Kind::File));
        assert_eq!(special_kind(0o010_644), Ok(Kind::Fifo));
        assert_eq!(special_kind(0o140_644), Ok(Kind::Socket));
        for device in [0o020_644, 0o060_644] {
            assert_eq!(special_kind(device), Err(Errno::EPERM));
        }
    }

    /// A time goes out as it is; one that fuser read from -2 s + 0.8 s comes in as -1.2 s; the far ends saturate.
    #[test]
    fn times_keep_their_nanoseconds_on_both_sides_of_1970() {
        for nanos in [0, 1, 1_796_000_000_123_456_789] {
            assert_eq!(timestamp(system_time(Timestamp(nanos))), Timestamp(nanos));
        }
        assert_eq!(system_time(Timestamp(-1_200_000_000)), UNIX_EPOCH - Duration::from_millis(1_200));
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(2, 800_000_000)), Timestamp(-1_200_000_000));
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(1 << 40)), Timestamp(i64::MAX));
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1 << 40)), Timestamp(i64::MIN));
    }
}
