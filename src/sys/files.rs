use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::check;
use super::shared::{share_dir, share_file};

pub use libc::{ENXIO, FALLOC_FL_KEEP_SIZE as FALLOC_KEEP_SIZE};

/// The mode of a file that nobody but its owner may use.
const PRIVATE_MODE: u32 = 0o600;

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

/// Whether the filesystem that `file` is on, or the mount that it was opened through, is read-only.
pub fn is_read_only_filesystem(file: &File) -> io::Result<bool> {
    statvfs(file).map(|raw| raw.f_flag & libc::ST_RDONLY != 0)
}

/// fstatvfs(3).
fn statvfs(file: &File) -> io::Result<libc::statvfs> {
    // SAFETY: an all-zero statvfs is valid, and the kernel fills it.
    let mut raw: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `raw` is valid for writing.
    check(unsafe { libc::fstatvfs(file.as_raw_fd(), &mut raw) })?;
    Ok(raw)
}

/// Reads the sizes of the filesystem that `file` is on.
pub fn fs_stats(file: &File) -> io::Result<FsStats> {
    let raw = statvfs(file)?;
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

/// As [`syncfs`], for a FUSE filesystem that this very process serves.
///
/// The kernel lets nobody go who waits for an answer of a FUSE filesystem, also not a thread that was killed. So the one
/// that waits here holds none of this process's descriptors: if the process is killed, all that it has open of
/// `/dev/fuse` is closed all the same, which ends the filesystem, and with it the wait (`fuse_dev_release`).
pub fn sync_own_filesystem(root: &Path) -> io::Result<()> {
    let root = root.to_owned();
    apart(move || syncfs(&File::open(root)?))
}

/// Runs `work` in a thread with a table of descriptors of its own, which holds the standard ones alone.
///
/// The work may use nothing that was opened outside of it.
fn apart<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let thread = std::thread::Builder::new().name("apart".into()).spawn(move || {
        // Where a sandbox forbids it, the work is done all the same.
        let _ = leave_descriptors();
        work()
    })?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("BUG: the thread panicked")))
}

/// Lets the calling thread have a table of descriptors of its own, without those above 2 (close_range(2)).
fn leave_descriptors() -> io::Result<()> {
    let (first, last) = (libc::STDERR_FILENO.unsigned_abs() + 1, libc::c_uint::MAX);
    // SAFETY: what the other threads have open stays open for them, and nothing of it is used in this one.
    let left = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_UNSHARE) };
    if left == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
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

/// Opens a directory that is one itself; a symlink fails with `NotADirectory` (open(2), `O_NOFOLLOW`).
pub fn open_dir(path: &Path) -> io::Result<File> {
    open_at_raw(libc::AT_FDCWD, path.as_os_str(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)
}

/// Opens the directory `name` of `dir`, as [`open_dir`] does.
pub fn open_dir_at(dir: &File, name: &OsStr) -> io::Result<File> {
    open_at_raw(dir.as_raw_fd(), name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)
}

/// Opens `name` of `dir` for reading; a symlink is refused (see [`is_symlink`]) and a FIFO doesn't block.
pub fn open_file_at(dir: &File, name: &OsStr) -> io::Result<File> {
    open_at_raw(dir.as_raw_fd(), name, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0)
}

/// Creates `name` in `dir` for reading and writing, with `mode`; fails with `AlreadyExists` if the name is taken.
pub fn create_file_at(dir: &File, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let file = open_at_raw(dir.as_raw_fd(), name, flags, mode)?;
    share_file(&dir.metadata()?, &file, mode)?;
    Ok(file)
}

/// Creates a file without a name on the filesystem of `dir`, for reading and writing (open(2), `O_TMPFILE`).
///
/// [`name_at`] gives it its name; it is gone if nobody does. See [`lacks_unnamed_files`].
pub fn create_unnamed_at(dir: &File, mode: u32) -> io::Result<File> {
    let file = open_at_raw(dir.as_raw_fd(), OsStr::new("."), libc::O_RDWR | libc::O_TMPFILE, mode)?;
    share_file(&dir.metadata()?, &file, mode)?;
    Ok(file)
}

/// Whether an error says that the filesystem knows no files without names.
pub fn lacks_unnamed_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL))
}

/// Gives an open file the name `name` in `dir`; fails with `AlreadyExists` if it is taken (linkat(2)).
pub fn name_at(file: &File, dir: &File, name: &OsStr) -> io::Result<()> {
    let (path, name) = (c_string(path_of_open(file).as_os_str())?, c_string(name)?);
    let (dir, follow) = (dir.as_raw_fd(), libc::AT_SYMLINK_FOLLOW);
    // SAFETY: the descriptor is open, and both texts end in NUL.
    check(unsafe { libc::linkat(libc::AT_FDCWD, path.as_ptr(), dir, name.as_ptr(), follow) }).map(drop)
}

/// Opens for reading what is open already, whatever its name is by now: the new descriptor has an offset of its own.
pub fn reopen(file: &File) -> io::Result<File> {
    File::open(path_of_open(file))
}

/// A path of this process's own to what it has open (proc(5), `fd/`).
fn path_of_open(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Removes the directory `name` of `dir` with all that is in it; symlinks in it are removed, not followed.
pub fn remove_tree_at(dir: &File, name: &OsStr) -> io::Result<()> {
    std::fs::remove_dir_all(path_of_open(dir).join(name))
}

/// Whether an open was refused because the name is a symlink (open(2), `O_NOFOLLOW`).
pub fn is_symlink(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

/// Whether an open or read failed because of the file itself: a symlink, its mode, or a bad medium.
pub fn is_unreadable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EACCES | libc::EIO))
}

/// Makes the directory `name` in `dir` (mkdirat(2)).
pub fn make_dir_at(dir: &File, name: &OsStr, mode: u32) -> io::Result<()> {
    let text = c_string(name)?;
    // SAFETY: the descriptor is open and the name ends in NUL.
    check(unsafe { libc::mkdirat(dir.as_raw_fd(), text.as_ptr(), mode) })?;
    share_dir(&path_of_open(dir).join(name), mode)
}

/// Renames, replacing a file of the new name (renameat(2)).
pub fn rename_at(from: &File, old: &OsStr, to: &File, new: &OsStr) -> io::Result<()> {
    let (old, new) = (c_string(old)?, c_string(new)?);
    // SAFETY: both descriptors are open and both names end in NUL.
    check(unsafe { libc::renameat(from.as_raw_fd(), old.as_ptr(), to.as_raw_fd(), new.as_ptr()) }).map(drop)
}

/// Renames within a directory; fails with `AlreadyExists` if the new name is taken (renameat2(2), `RENAME_NOREPLACE`).
///
/// Filesystems that can't do that in one step refuse it with `InvalidInput`.
pub fn rename_new_at(dir: &File, old: &OsStr, new: &OsStr) -> io::Result<()> {
    let (dir, old, new) = (dir.as_raw_fd(), c_string(old)?, c_string(new)?);
    // SAFETY: the descriptor is open and both names end in NUL.
    check(unsafe { libc::renameat2(dir, old.as_ptr(), dir, new.as_ptr(), libc::RENAME_NOREPLACE) }).map(drop)
}

/// Whether [`rename_new_at`] can't be done at all here, or the new name is taken (renameat2(2), ERRORS).
pub fn refuses_rename_new(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EEXIST))
}

/// Gives a file a second name (linkat(2)); a symlink is linked itself.
pub fn link_at(from: &File, old: &OsStr, to: &File, new: &OsStr) -> io::Result<()> {
    let (old, new) = (c_string(old)?, c_string(new)?);
    // SAFETY: both descriptors are open and both names end in NUL.
    check(unsafe { libc::linkat(from.as_raw_fd(), old.as_ptr(), to.as_raw_fd(), new.as_ptr(), 0) }).map(drop)
}

/// Removes the file `name` of `dir` (unlinkat(2)).
pub fn unlink_at(dir: &File, name: &OsStr) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: the descriptor is open and the name ends in NUL.
    check(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Sets the times of the last access and the last write of a file to the kernel's present (futimens(2), `UTIME_NOW`).
pub fn touch(file: &File) -> io::Result<()> {
    let now = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    // SAFETY: the descriptor is open, and the array holds the two times that the call reads.
    check(unsafe { libc::futimens(file.as_raw_fd(), [now, now].as_ptr()) }).map(drop)
}

/// Starts to write a range back to the disk without waiting (sync_file_range(2)): a hint, not a barrier.
pub fn start_writeback(file: &File, offset: i64, length: i64) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) })
        .map(drop)
}

/// Waits for writeback that has begun, and reports an error of it that this descriptor has not yet reported.
///
/// It starts no writeback and flushes no disk cache: after syncfs(2) it only tells whose bytes failed
/// (`file_fdatawait_range` in the kernel's mm/filemap.c).
pub fn writeback_result(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WAIT_BEFORE) })
        .map(drop)
}

fn open_at_raw(dir: libc::c_int, name: &OsStr, flags: libc::c_int, mode: u32) -> io::Result<File> {
    let name = c_string(name)?;
    // SAFETY: the name ends in NUL, and `mode` is read only where the flags create a file.
    let fd = check(unsafe { libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC, mode) })?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

pub(super) fn c_string(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(io::Error::from)
}

/// Makes a file that only its owner may read and write, and opens it for both; fails where the name is taken. In a
/// directory that is shared with a group ([`super::is_shared`]) the file is so, too.
pub fn create_private(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).mode(PRIVATE_MODE).open(path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    share_file(&dir.metadata()?, &file, PRIVATE_MODE)?;
    Ok(file)
}

/// Makes a file without a name on the filesystem of a directory, open for reading and writing (open(2), `O_TMPFILE`).
///
/// Its bytes go with the last descriptor, however the process ends.
pub fn create_unnamed(dir: &Path) -> io::Result<File> {
    // Without O_EXCL it could be given a name by linkat(2).
    let flags = libc::O_TMPFILE | libc::O_EXCL;
    File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(dir)
}

/// Copies the first `length` bytes of one file to the start of another: shares the blocks where the filesystem can,
/// copies within the kernel where that works, and reads and writes elsewhere. A shorter source ends the copy.
pub fn copy_bytes(source: &File, target: &File, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    if source.metadata()?.len() <= length && reflink(source, target).is_ok() {
        return Ok(());
    }
    let mut done = 0;
    while done < length {
        let chunk = usize::try_from((length - done).min(64 << 20)).unwrap_or(64 << 20);
        let offset = i64::try_from(done).map_err(io::Error::other)?;
        match copy_file_range(source, offset, target, offset, chunk) {
            Ok(0) => break,
            Ok(copied) => done += copied as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // EXDEV, EINVAL, EOPNOTSUPP: not between these filesystems.
            Err(_) if done == 0 => return copy_through_memory(source, target, length),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy_through_memory(source: &File, target: &File, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    while done < length {
        let want = buffer.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
        match source.read_at(&mut buffer[..want], done)? {
            0 => break,
            count => {
                target.write_all_at(&buffer[..count], done)?;
                done += count as u64;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::mpsc::channel;

    use super::*;

    /// What a process has open is closed with its own descriptors, whatever a thread of [`apart`] waits for.
    #[test]
    fn a_thread_apart_keeps_nothing_open() {
        let (mut reader, writer) = io::pipe().unwrap();
        let ((begun, begins), (end, ended)) = (channel(), channel::<()>());
        let waiting = std::thread::spawn(move || {
            apart(move || {
                begun.send(()).map_err(io::Error::other)?;
                let _ = ended.recv();
                Ok(())
            })
        });
        begins.recv().unwrap();
        drop(writer);
        let (told, heard) = channel();
        std::thread::spawn(move || told.send(reader.read_to_end(&mut Vec::new()).is_ok()));
        let closed = heard.recv_timeout(std::time::Duration::from_secs(10));
        drop(end);
        assert_eq!(closed, Ok(true));
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_filesystem_is_synced_by_its_path() {
        sync_own_filesystem(Path::new(".")).unwrap();
        let absent = sync_own_filesystem(Path::new("/absent/for/sure")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
