use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::check;

/// Filesystems whose files another machine may change (`linux/magic.h`; CIFS and SMB2: `fs/smb/client/cifsglob.h`).
///
/// SQLite's write-ahead log needs shared memory between all who open the database, which none of these has.
const NETWORK: [(u32, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9P"),
];

/// Filesystems whose fsync of a new file makes its name durable, too: ext4 (fs/ext4/fsync.c, `ext4_sync_parent`, or the
/// journal), XFS (the log is written up to the file's creation) and btrfs (the log tree records new names).
const NAMES_SYNCED_WITH_FILES: [u32; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// The name of the network filesystem that a file is on; none for any other one.
pub fn network_filesystem(file: &File) -> io::Result<Option<&'static str>> {
    let magic = magic_number(file)?;
    Ok(NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name))
}

/// Whether syncing a new file in this directory makes its name durable, so that the directory needs no sync.
pub fn syncs_names_with_files(dir: &File) -> io::Result<bool> {
    magic_number(dir).map(|magic| NAMES_SYNCED_WITH_FILES.contains(&magic))
}

/// Tells what filesystem a file is on (fstatfs(2), `f_type`).
fn magic_number(file: &File) -> io::Result<u32> {
    // SAFETY: an all-zero statfs is valid, and the kernel fills it.
    let mut raw: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `raw` is valid for writing.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), &mut raw) })?;
    // Magic numbers are 32 bits wide, whatever the field's width and sign on this architecture.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    let magic = raw.f_type as u32;
    Ok(magic)
}

/// Tells the lives of a filesystem apart, within one boot: what was written in the present one and never synced can still
/// be read, and of an earlier one it may be lost (a disk that was unplugged, say).
///
/// While a block device's filesystem is mounted, wherever and however often, it has a directory
/// `/sys/fs/<type>/<device>`, and within one boot sysfs gives no inode number twice (fs/kernfs/dir.c,
/// `__kernfs_new_node`). 0 for a filesystem without one (btrfs, overlayfs, tmpfs): the boot alone tells then.
pub fn filesystem_life(file: &File) -> io::Result<u64> {
    let device = file.metadata()?.dev();
    let number = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let Ok(device) = std::fs::read_link(number) else { return Ok(0) };
    let (Some(device), Ok(kinds)) = (device.file_name(), std::fs::read_dir("/sys/fs")) else { return Ok(0) };
    let lives = kinds.filter_map(|kind| kind.ok()?.path().join(device).metadata().ok());
    Ok(lives.map(|metadata| metadata.ino()).next().unwrap_or(0))
}

/// Opens a regular file for reading; anything else that took its name meanwhile is refused, and a FIFO doesn't block
/// (open(2), `O_NOFOLLOW`, `O_NONBLOCK`).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}
