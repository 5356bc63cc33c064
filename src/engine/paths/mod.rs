//! What a path that somebody wrote means: which mount shows it, and which artifact it names.

mod admission;
mod error;
mod table;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

pub use admission::{AdmissionPaths, Disk, SystemDisk};
pub use error::PathError;
pub use table::{Mount, MountTable, inner_path};

/// A path, split where it ends to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealPrefix {
    /// What exists, absolute and without symlinks.
    pub real: PathBuf,
    /// The names below it that don't, as they were written; empty if all does.
    pub rest: PathBuf,
}

impl RealPrefix {
    /// The whole path.
    pub fn path(&self) -> PathBuf {
        // Not by `join`, which ends a path in a slash where nothing follows.
        self.real.components().chain(self.rest.components()).collect()
    }
}

/// Resolves what exists of an absolute path (realpath(3)), and keeps the names below: a deleted directory still names
/// artifacts. A symlink that leads nowhere doesn't exist.
pub fn real_prefix(path: &Path) -> io::Result<RealPrefix> {
    match std::fs::canonicalize(path) {
        Ok(real) => Ok(RealPrefix { real, rest: PathBuf::new() }),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else { return Err(error) };
            let RealPrefix { real, rest } = real_prefix(parent)?;
            Ok(RealPrefix { real, rest: rest.join(name) })
        }
        Err(error) => Err(error),
    }
}
