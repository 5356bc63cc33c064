//! The directories that a change of the store stands on: opened for each change, and proven to be where their names say.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::DiskStore;
use crate::blobs::BlobError;
use crate::sys;

/// The name of the directory of temporary files in a directory of blobs that has none beside it; peers ignore it, since
/// it isn't two hexadecimal digits.
const STAGING: &str = ".staging";

/// Where files wait that aren't blobs yet.
#[derive(Debug)]
pub(super) enum Staging {
    /// In a directory of the caller's, on the filesystem of the blobs. Its files may be somebody's only copy.
    Beside(PathBuf),
    /// In `.staging` of the directory of blobs: temporary files of puts only.
    Within(PathBuf),
}

impl Staging {
    pub(super) fn within(objects: &Path) -> Self {
        Self::Within(objects.join(STAGING))
    }

    pub(super) fn path(&self) -> &Path {
        let (Self::Beside(path) | Self::Within(path)) = self;
        path
    }
}

/// Which directory it is, also after its inode number was used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirId {
    device: u64,
    inode: u64,
    /// When it was made; none where the filesystem doesn't tell.
    born: Option<SystemTime>,
}

impl DirId {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino(), born: metadata.created().ok() }
    }
}

/// An open directory, and where it was found.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) id: DirId,
}

impl Dir {
    /// Takes an open directory that was found at `path`.
    pub(super) fn new(file: File, path: PathBuf) -> Result<Self, BlobError> {
        let metadata = file.metadata().map_err(BlobError::io("stat", &path))?;
        Ok(Self { id: DirId::of(&metadata), file, path })
    }

    /// Whether what was found at its name now, or that nothing was, is still this directory.
    fn is_still(&self, found: io::Result<(u64, u64)>) -> Result<(), BlobError> {
        match found {
            Ok(found) if found == (self.id.device, self.id.inode) => Ok(()),
            Ok(_) => Err(BlobError::Swapped { path: self.path.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(BlobError::Swapped { path: self.path.clone() })
            }
            Err(error) => Err(BlobError::io("stat", &self.path)(error)),
        }
    }

    /// Fails unless this is what its path means still.
    pub(super) fn check_at_path(&self) -> Result<(), BlobError> {
        self.is_still(self.path.symlink_metadata().map(|found| (found.dev(), found.ino())))
    }

    /// Fails unless this is what its name in `parent` means still.
    pub(super) fn check_in(&self, parent: &Self) -> Result<(), BlobError> {
        let name = self.path.file_name().unwrap_or_default();
        self.is_still(sys::facts_at(&parent.file, name).map(|found| (found.device, found.inode)))
    }
}

/// The two directories of a change.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) objects: Dir,
    pub(super) staging: Dir,
}

impl DiskStore {
    /// Opens the directory of blobs for reading, if there is one.
    pub(super) fn open_objects(&self) -> Result<Option<File>, BlobError> {
        match sys::open_dir(&self.objects) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some).map_err(BlobError::open_dir(&self.objects)),
        }
    }

    /// Opens the directories for a change, and makes those that are the store's own to make.
    pub(super) fn ground(&self) -> Result<Ground, BlobError> {
        let objects = match (self.open_objects()?, &self.staging) {
            (Some(dir), _) => dir,
            (None, Staging::Within(_)) => self.make_objects()?,
            (None, Staging::Beside(_)) => {
                return Err(BlobError::open_dir(&self.objects)(io::ErrorKind::NotFound.into()));
            }
        };
        let objects = Dir::new(objects, self.objects.clone())?;
        let staging = match &self.staging {
            Staging::Beside(path) => sys::open_dir(path).map_err(BlobError::open_dir(path))?,
            Staging::Within(_) => self.open_or_make(&objects, OsStr::new(STAGING))?,
        };
        Ok(Ground { objects, staging: Dir::new(staging, self.staging.path().to_owned())? })
    }

    fn make_objects(&self) -> Result<File, BlobError> {
        let make = || sys::make_dirs(&self.objects, self.parts.settings.dir_mode);
        self.steps.make_objects(make).map_err(BlobError::io("create", &self.objects))?;
        sys::open_dir(&self.objects).map_err(BlobError::open_dir(&self.objects))
    }

    /// Opens a directory in the directory of blobs, and makes it if it is missing.
    pub(super) fn open_or_make(&self, objects: &Dir, name: &OsStr) -> Result<File, BlobError> {
        let path = objects.path.join(name);
        match sys::open_dir_at(&objects.file, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result.map_err(BlobError::open_dir(&path)),
        }
        match self.steps.make_dir(&objects.file, name, self.parts.settings.dir_mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(BlobError::io("create", &path)(error));
            }
            _ => {}
        }
        sys::open_dir_at(&objects.file, name).map_err(BlobError::open_dir(&path))
    }

    /// Opens the fan-out directory of this number, and makes it if it is missing.
    pub(super) fn open_or_make_fan_out(&self, objects: &Dir, number: u8) -> Result<Dir, BlobError> {
        let name = OsString::from(fan_out_name(number));
        Dir::new(self.open_or_make(objects, &name)?, objects.path.join(&name))
    }
}

pub(super) fn fan_out_name(number: u8) -> String {
    format!("{number:02x}")
}

/// Whether it is the name of a fan-out directory.
pub(super) fn is_fan_out(name: &OsStr) -> bool {
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    name.len() == 2 && name.as_bytes().iter().all(digit)
}
