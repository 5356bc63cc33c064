//! Small calls on files, with errors that name them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::{EngineError, Result};
use crate::sys;

/// For `map_err`: names what failed, and on which file.
pub(super) fn file_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    move |source| EngineError::File { doing, path: path.to_owned(), source }
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(file_error("sync", dir))
}

/// Makes a directory that only its owner may enter, wherever it is.
pub(super) fn make_private_dir(dir: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(dir).map_err(file_error("create", dir))
}

/// Makes a directory of a workspace: its owner's alone, or the group's if the workspace is shared.
pub(super) fn make_inner_dir(dir: &Path) -> Result<()> {
    sys::make_dirs(dir, 0o700).map_err(file_error("create", dir))
}

/// Removes a file; one that is gone is fine.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Refuses a directory on a network filesystem, where SQLite's log would not work.
pub(super) fn check_filesystem(dir: &File, root: &Path) -> Result<()> {
    match sys::network_filesystem(dir).map_err(file_error("examine", root))? {
        Some(kind) => Err(EngineError::Refused(format!(
            "{}: a workspace can't be on {kind}, since its catalog needs a local filesystem; choose another directory",
            root.display()
        ))),
        None => Ok(()),
    }
}
