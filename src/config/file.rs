//! The file of the policy: whether it may be trusted, and whether it is another one than before.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::ConfigError;
use crate::sys;

/// A file or directory that everybody may write (inode(7)).
const WRITABLE_BY_OTHERS: u32 = 0o002;
/// The user that may do anything anyway.
const ROOT: u32 = 0;

/// What tells a file from what it was before, without reading it, and whether it may still be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device, inode, size, owner, and the times of the last change in seconds and nanoseconds; none if it is missing.
    file: Option<(u64, u64, u64, u32, [i64; 4])>,
    /// Owner and mode of its directory.
    directory: Option<(u32, u32)>,
}

impl FileIdentity {
    /// Looks at a file. What can't be looked at is as good as missing: whoever reads it is told why.
    pub fn of(path: &Path) -> Self {
        let file = path.symlink_metadata().ok().map(|it| {
            let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
            (it.dev(), it.ino(), it.size(), it.uid(), times)
        });
        let directory = directory_of(path).metadata().ok().map(|it| (it.uid(), it.mode()));
        Self { file, directory }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Reads the file, unless it is missing; asks the open file for what it is, so that it is the one that is read.
pub(super) fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let directory = directory_of(path).metadata().map_err(failed)?;
    if is_writable_by_others(&directory) {
        return Err(ConfigError::OpenDirectory { path: directory_of(path).to_owned() });
    }
    let mut file = match sys::open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if sys::is_symlink(&error) => return Err(ConfigError::Symlink { path: path.to_owned() }),
        opened => opened.map_err(failed)?,
    };
    check(path, &file, &directory)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

fn check(path: &Path, file: &File, directory: &Metadata) -> Result<(), ConfigError> {
    let path = path.to_owned();
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(source) => return Err(ConfigError::Read { path, source }),
    };
    if is_writable_by_others(&metadata) {
        return Err(ConfigError::WorldWritable { path });
    }
    let (owner, workspace) = (metadata.uid(), directory.uid());
    if owner != workspace && owner != ROOT {
        return Err(ConfigError::ForeignOwner { path, owner, workspace });
    }
    Ok(())
}

fn is_writable_by_others(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & WRITABLE_BY_OTHERS != 0
}
