use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::blobs::BlobError;
use crate::sys::{self, Facts};

/// Which file it is, as long as the file lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(super) fn named(facts: &Facts) -> Self {
        Self { device: facts.device, inode: facts.inode }
    }
}

/// What was to be removed and isn't there is removed.
pub(super) fn gone_is_removed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A directory, with what is at its path expected to stay that very directory.
///
/// All calls go through the descriptor, so nothing behind a symlink is ever reached; the check tells when others don't
/// see any more what is done here.
pub(super) struct Dir {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) id: FileId,
}

impl Dir {
    /// Takes an open directory that was found at `path`.
    pub(super) fn new(file: File, path: PathBuf) -> Result<Self, BlobError> {
        let metadata = file.metadata().map_err(BlobError::io("stat", &path))?;
        Ok(Self { file, path, id: FileId::of(&metadata) })
    }

    /// Opens the directory of blobs; that there is none is told as for one that went.
    pub(super) fn open(path: &Path) -> Result<Self, BlobError> {
        match sys::open_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(BlobError::Swapped { path: path.to_owned() })
            }
            opened => Self::new(opened.map_err(BlobError::open_dir(path))?, path.to_owned()),
        }
    }

    pub(super) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }

    /// For `map_err`: names the action and the file.
    pub(super) fn error(
        &self,
        action: &'static str,
        name: &OsStr,
    ) -> impl FnOnce(io::Error) -> BlobError + use<> {
        let path = self.path_of(name);
        move |source| BlobError::Io { action, path, source }
    }

    /// Makes sure that the directory is where it was; called before each change in it.
    pub(super) fn check(&self) -> Result<(), BlobError> {
        match self.path.symlink_metadata() {
            Ok(metadata) if FileId::of(&metadata) == self.id => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(BlobError::io("stat", &self.path)(error))
            }
            _ => Err(self.swapped()),
        }
    }

    pub(super) fn swapped(&self) -> BlobError {
        BlobError::Swapped { path: self.path.clone() }
    }

    /// Whether a name still is of this file.
    pub(super) fn holds(&self, name: &OsStr, file: FileId) -> io::Result<bool> {
        match sys::facts_at(&self.file, name) {
            Ok(facts) => Ok(FileId::named(&facts) == file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
