//! A small filesystem with a directory that ignores case, for kernels whose own filesystems can't.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    IoctlFlags, ReplyAttr, ReplyEntry, ReplyIoctl, Request,
};

const FOLD: INodeNo = INodeNo(2);
const DOC: INodeNo = INodeNo(3);

/// `FS_IOC_GETFLAGS` and `FS_CASEFOLD_FL` (linux/fs.h); the number is that of a 64-bit machine.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_CASEFOLD_FL: u32 = 0x4000_0000;

/// `Fold`, a directory that says that it ignores case and does, and in it `Doc`.
struct Folding;

fn attr(ino: INodeNo) -> FileAttr {
    let is_dir = ino != DOC;
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_dir { FileType::Directory } else { FileType::RegularFile },
        perm: 0o755,
        nlink: if is_dir { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        flags: 0,
        blksize: 512,
    }
}

impl Filesystem for Folding {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = match parent {
            INodeNo::ROOT if name == "Fold" => Some(FOLD),
            FOLD if name.eq_ignore_ascii_case("doc") => Some(DOC),
            _ => None,
        };
        match found {
            Some(ino) => reply.entry(&Duration::ZERO, &attr(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &attr(ino));
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let flags = if ino == FOLD { FS_CASEFOLD_FL } else { 0 };
        match command {
            FS_IOC_GETFLAGS => reply.ioctl(0, &flags.to_ne_bytes()),
            _ => reply.error(Errno::ENOTTY),
        }
    }
}

/// Mounts it until what this returns is dropped; only root can do so without a helper.
pub fn mount(at: &Path) -> BackgroundSession {
    fuser::spawn_mount(Folding, at, &Config::default()).unwrap()
}
