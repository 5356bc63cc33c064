//! Blobs as files of a directory: how they get there, and how they are proven to be what they are.

mod adopt;
mod batch;
mod publish;
mod settings;
mod stamp;
mod steps;
mod sweep;
mod verify;

#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;

pub use adopt::Note;
pub use settings::{DiskParts, DiskSettings, Durability};
pub use stamp::{MemoryStamps, Stamp, Stamps};
pub use sweep::Stored;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use self::publish::Candidate;
use self::steps::{DIR_MODE, Steps};
use super::hashing::{BUFFER_BYTES, Hasher, fill};
use super::locks::Locks;
use super::{Blob, BlobError, BlobStore, Faults};
use crate::model::Digest;
use crate::sys;

/// How many bytes a streamed put writes before it asks the kernel to begin writing them to the disk.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// Keeps blobs as files: `objects/<first two hex digits>/<64 hex digits>`.
///
/// A blob comes into being as a file of `staging/`, which is synced, renamed to its address, and the directories
/// synced. Whoever has a blob open keeps its bytes whatever happens to the address.
pub struct DiskStore {
    objects: PathBuf,
    staging: PathBuf,
    objects_dir: File,
    staging_dir: File,
    parts: DiskParts,
    steps: Steps,
    locks: Arc<Locks>,
    /// The fan-out directories, by number and inode, whose own entries are known to be durable.
    durable_fan_outs: Mutex<HashMap<u8, u64>>,
    /// The staging files of which a sync failed.
    tainted: Mutex<HashSet<OsString>>,
}

impl DiskStore {
    /// Makes the two directories where they are missing (mode 0700), durably, and opens the store.
    pub fn create(objects: &Path, staging: &Path, parts: &DiskParts) -> Result<Self, BlobError> {
        for dir in [objects, staging] {
            DirBuilder::new()
                .recursive(true)
                .mode(DIR_MODE)
                .create(dir)
                .map_err(BlobError::io("create", dir))?;
            let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let synced = File::open(parent).and_then(|parent| parent.sync_all());
            synced.map_err(BlobError::io("sync", parent))?;
        }
        Self::open(objects, staging, parts)
    }

    /// Opens the store in two directories that exist, aren't symlinks, and are on one filesystem.
    pub fn open(objects: &Path, staging: &Path, parts: &DiskParts) -> Result<Self, BlobError> {
        let objects_dir = sys::open_dir(objects).map_err(BlobError::open_dir(objects))?;
        let staging_dir = sys::open_dir(staging).map_err(BlobError::open_dir(staging))?;
        if device(&objects_dir, objects)? != device(&staging_dir, staging)? {
            return Err(BlobError::TwoFilesystems {
                objects: objects.to_owned(),
                staging: staging.to_owned(),
            });
        }
        let DiskSettings { coordination, lock_wait_ms, .. } = parts.settings;
        let (clock, ids) = (Arc::clone(&parts.clock), Arc::clone(&parts.ids));
        let locks = Locks::new(objects, coordination, lock_wait_ms, clock, ids)?;
        Ok(Self {
            objects: objects.to_owned(),
            staging: staging.to_owned(),
            objects_dir,
            staging_dir,
            parts: parts.clone(),
            steps: Steps::default(),
            locks: Arc::new(locks),
            durable_fan_outs: Mutex::default(),
            tainted: Mutex::default(),
        })
    }

    /// The same store, whose changes of the disk fail as `faults` says; for tests.
    pub fn with_faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.locks = Arc::new(self.locks.with_faults(Arc::clone(&faults)));
        self.steps = Steps { faults: Some(faults) };
        self
    }

    /// The directory of files that aren't blobs yet.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// The directory of blobs.
    pub fn objects(&self) -> &Path {
        &self.objects
    }

    /// Where a blob is, if it is in the store.
    pub fn path_of(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        self.objects.join(&hex[..2]).join(hex)
    }

    /// Streams a source into a new file of staging, unless it is short and its bytes are stored already.
    ///
    /// The bytes are written, not synced. On failure nothing is left of them.
    fn write_temporary(
        &self,
        source: &mut dyn Read,
        buffer: &mut [u8],
    ) -> Result<(Candidate, Option<File>), BlobError> {
        let mut hasher = Hasher::default();
        let count = fill(source, buffer).map_err(|source| BlobError::Source { source })?;
        hasher.update(&buffer[..count]);
        if count < buffer.len()
            && let Some(known) = self.find_stored(&hasher.clone().finish())?
        {
            return Ok((known, None));
        }
        let name = OsString::from(self.parts.ids.token());
        let path = self.staging.join(&name);
        let file = self.steps.create(&self.staging_dir, &name).map_err(BlobError::io("create", &path))?;
        let written = self.write_rest(source, buffer, (hasher, count), &file, &path);
        match written.and_then(|done| Ok((done, file.metadata().map_err(BlobError::io("stat", &path))?))) {
            Ok(((digest, size), metadata)) => {
                Ok((Candidate { name: Some(name), digest, size, stamp: Stamp::of(&metadata) }, Some(file)))
            }
            Err(error) => {
                self.remove_staged(&name);
                Err(error)
            }
        }
    }

    /// Writes what the buffer holds and then the rest of the source.
    fn write_rest(
        &self,
        source: &mut dyn Read,
        buffer: &mut [u8],
        (mut hasher, mut count): (Hasher, usize),
        file: &File,
        path: &Path,
    ) -> Result<(Digest, u64), BlobError> {
        let mut started = 0;
        while count > 0 {
            self.steps.write(file, &buffer[..count]).map_err(BlobError::io("write", path))?;
            started = begin_writeback(file, started, hasher.bytes());
            if count < buffer.len() {
                break;
            }
            count = fill(source, buffer).map_err(|source| BlobError::Source { source })?;
            hasher.update(&buffer[..count]);
        }
        let size = hasher.bytes();
        Ok((hasher.finish(), size))
    }

    /// Removes what a candidate has in staging; what can't be removed is litter, and no error.
    fn discard(&self, candidate: &Candidate) {
        if let Some(name) = &candidate.name {
            self.remove_staged(name);
        }
    }

    fn remove_staged(&self, name: &OsStr) {
        if let Err(error) = self.steps.remove(&self.staging_dir, name)
            && error.kind() != io::ErrorKind::NotFound
        {
            let path = self.staging.join(name);
            tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "can't remove");
        }
    }
}

impl BlobStore for DiskStore {
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        let (candidate, file) = self.write_temporary(source, &mut vec![0; BUFFER_BYTES])?;
        let synced = file.map_or(Ok(()), |file| self.steps.sync_file(&file));
        let stored = synced.map_err(|source| candidate.sync_error(self, source)).and_then(|()| {
            let mut results = self.publish(std::slice::from_ref(&candidate));
            results.pop().expect("BUG: one candidate has one result")
        });
        if stored.is_err() {
            self.discard(&candidate);
        }
        stored.map(|()| (candidate.digest, candidate.size))
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        let file = self.open_verified(digest)?;
        let size = self.stamp_of(&file, digest)?.size;
        Ok(Blob::of_file(Arc::new(file), size))
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        Ok(self.size(digest)?.is_some())
    }
}

/// The filesystem that a directory is on.
fn device(dir: &File, path: &Path) -> Result<u64, BlobError> {
    Ok(dir.metadata().map_err(BlobError::io("stat", path))?.dev())
}

/// Lets the disk work while more bytes are hashed; returns up to where writeback was asked for.
fn begin_writeback(file: &File, started: u64, written: u64) -> u64 {
    if written - started < WRITEBACK_BYTES {
        return started;
    }
    let (offset, length) = (started.cast_signed(), (written - started).cast_signed());
    // Only a hint: the sync that follows is what tells errors.
    let _hint = sys::start_writeback(file, offset, length);
    written
}
