use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::check;
use super::host::c_path;

/// Holds a group's entry with many members; getgrnam_r(3).
const GROUP_BYTES: usize = 256 * 1024;

/// The setgid bit of a directory, and its group's right to write (inode(7)).
const SHARED_BITS: u32 = 0o2020;

/// Whether what is made in a directory is shared with its group: the directory passes its group on (setgid), and the
/// group may write it. So one look at the directory tells, whatever process makes something, under whatever umask.
pub fn is_shared(dir: &Metadata) -> bool {
    dir.is_dir() && dir.mode() & SHARED_BITS == SHARED_BITS
}

/// The group with which what is made in a directory is shared, if it is.
pub fn sharing_group(dir: &Path) -> Option<u32> {
    dir.metadata().ok().filter(is_shared).map(|found| found.gid())
}

/// As [`is_shared`], for a path; a directory that can't be examined is not shared.
pub fn is_shared_dir(dir: &Path) -> bool {
    dir.metadata().is_ok_and(|found| is_shared(&found))
}

/// The mode with the owner's rights for the group as well.
pub fn with_group(mode: u32) -> u32 {
    mode | (mode & 0o700) >> 3
}

/// Gives a file that was just made in a directory, with `mode` under some umask, the group's rights if it is to be shared.
pub(super) fn share_file(dir: &Metadata, file: &File, mode: u32) -> io::Result<()> {
    if is_shared(dir) { file.set_permissions(Permissions::from_mode(with_group(mode))) } else { Ok(()) }
}

/// Makes a directory, and those above it that are missing, with `mode` under the umask; one in a shared directory is
/// shared, too. One that is there stays as it is.
pub fn make_dirs(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => share_dir(path, mode),
        Err(_) if path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            make_dirs(above.ok_or(error)?, mode)?;
            make_dirs(path, mode)
        }
        Err(error) => Err(error),
    }
}

/// Lets a directory that was just made be shared, if that above it is.
pub(super) fn share_dir(path: &Path, mode: u32) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if is_shared_dir(above) {
        return fs::set_permissions(path, Permissions::from_mode(with_group(mode) | SHARED_BITS));
    }
    Ok(())
}

/// Lets the group own a directory, and everything that is made in it from now on be shared with it.
///
/// Only root, and its owner if he is a member, may do that (chown(2)).
pub fn share_dir_with(path: &Path, gid: u32) -> io::Result<()> {
    let name = c_path(path)?;
    // SAFETY: the path ends in NUL; the largest user number leaves the owner as it is.
    check(unsafe { libc::lchown(name.as_ptr(), libc::uid_t::MAX, gid) })?;
    fs::set_permissions(path, Permissions::from_mode(0o2770))
}

/// Opens a file for appending, and makes it if it is missing: its owner's alone, or shared as its directory is. A
/// symlink is refused: in a shared directory it may be another user's trap.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    make_missing(path)?;
    File::options().append(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// As [`open_to_append`], for writing from the start.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    make_missing(path)?;
    File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn make_missing(path: &Path) -> io::Result<()> {
    match super::create_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The number of a group by its name (getgrnam_r(3)), or by its number as text; none where there is no such group.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    let text = CString::new(name)?;
    let mut buffer = vec![0; GROUP_BYTES];
    // SAFETY: an all-zero group is valid, and the call fills it.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: `text` ends in NUL; `entry`, `buffer` and `found` are valid for writing.
    let code =
        unsafe { libc::getgrnam_r(text.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    match code {
        0 if !found.is_null() => Ok(Some(entry.gr_gid)),
        0 | libc::ENOENT | libc::ESRCH => Ok(name.parse().ok()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{create_file_at, create_private, effective_ids, make_dir_at, open_dir};
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    /// Whatever makes something in a shared directory shares it; elsewhere it is its owner's alone.
    #[test]
    fn what_is_made_is_shared_as_its_directory_is() {
        let root = tempfile::tempdir().unwrap();
        for (name, shared, file_mode, dir_mode) in
            [("own", false, 0o600, 0o700), ("group", true, 0o660, 0o2770)]
        {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            if shared {
                share_dir_with(&dir, effective_ids().1).unwrap();
            }
            let opened = open_dir(&dir).unwrap();
            create_file_at(&opened, "a".as_ref(), 0o600).unwrap();
            create_private(&dir.join("b")).unwrap();
            open_to_append(&dir.join("c")).unwrap();
            make_dir_at(&opened, "d".as_ref(), 0o700).unwrap();
            make_dirs(&dir.join("e/f"), 0o700).unwrap();
            assert_eq!(["a", "b", "c"].map(|name| mode(&dir.join(name))), [file_mode; 3], "{name}");
            assert_eq!(["d", "e", "e/f"].map(|name| mode(&dir.join(name))), [dir_mode; 3], "{name}");
            assert_eq!(is_shared_dir(&dir.join("e/f")), shared);
        }
    }

    #[test]
    fn a_group_is_found_by_name_or_number() {
        assert_eq!(group_id("root").unwrap(), Some(0));
        assert_eq!(group_id("12345").unwrap(), Some(12345));
        assert_eq!(group_id("no such group").unwrap(), None);
    }
}
