use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::check;

/// Sizes and free space of a filesystem (statvfs(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    /// The unit of the block counts, in bytes.
    pub block_bytes: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks that an ordinary user may still take.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
}

/// Reads the sizes of the filesystem that `file` is on.
pub fn fs_stats(file: &File) -> io::Result<FsStats> {
    // SAFETY: an all-zero statvfs is valid, and the kernel fills it.
    let mut raw: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `raw` is valid for writing.
    check(unsafe { libc::fstatvfs(file.as_raw_fd(), &mut raw) })?;
    Ok(FsStats {
        block_bytes: raw.f_frsize,
        blocks: raw.f_blocks,
        blocks_free: raw.f_bfree,
        blocks_available: raw.f_bavail,
        files: raw.f_files,
        files_free: raw.f_ffree,
    })
}

/// Makes everything written to the filesystem of `file` durable (syncfs(2)).
pub fn syncfs(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop)
}

/// Allocates, punches or zeroes a range; `mode` as in fallocate(2).
pub fn fallocate(file: &File, mode: i32, offset: i64, length: i64) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) }).map(drop)
}

/// Finds data, a hole or an offset; `whence` as in lseek(2).
pub fn lseek(file: &File, offset: i64, whence: i32) -> io::Result<i64> {
    // SAFETY: the descriptor is open.
    let result = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes `target` share all of `source`'s blocks, where the filesystem can (ioctl_ficlone(2)).
pub fn reflink(source: &File, target: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open; FICLONE takes a descriptor as its argument.
    check(unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) }).map(drop)
}

/// Copies a range within the kernel (copy_file_range(2)); returns how much, which may be less than asked.
pub fn copy_file_range(source: &File, from: i64, target: &File, to: i64, length: usize) -> io::Result<usize> {
    let (mut from, mut to) = (from, to);
    let (source, target) = (source.as_raw_fd(), target.as_raw_fd());
    // SAFETY: both descriptors are open, and both offsets are valid for reading and writing.
    let copied = unsafe { libc::copy_file_range(source, &mut from, target, &mut to, length, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}
