//! Blobs as files of a directory: how they get there, and how they are proven to be what they are.

mod adopt;
mod batch;
mod chain;
mod counts;
mod ground;
mod litter;
mod lookup;
mod publish;
mod settings;
mod stamp;
mod steps;
mod sweep;
mod temporary;
mod verify;

#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;

pub use adopt::Note;
pub use counts::DiskCounts;
pub use settings::{DiskParts, DiskSettings, Durability};
pub use stamp::{MemoryStamps, Stamp, Stamps};
pub use sweep::Stored;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use self::chain::Proven;
use self::counts::Counters;
use self::ground::Staging;
use self::steps::Steps;
use super::faults::Faults;
use super::hashing::BUFFER_BYTES;
use super::locks::Locks;
use super::{Blob, BlobError, BlobStore};
use crate::model::Digest;
use crate::sys;

/// Keeps blobs as files: `objects/<first two hex digits>/<64 hex digits>`.
///
/// A blob comes into being as a file of staging, which is synced, renamed to its address, and the directories synced.
/// Whoever has a blob open keeps its bytes whatever happens to the address. Each operation opens the directories anew
/// and follows no symlink beneath them.
pub struct DiskStore {
    objects: PathBuf,
    staging: Staging,
    parts: DiskParts,
    steps: Steps,
    locks: Arc<Locks>,
    proven: Mutex<Proven>,
    /// The staging files of which a sync failed.
    tainted: Mutex<HashSet<OsString>>,
    litter_removed: AtomicBool,
    counts: Counters,
}

impl DiskStore {
    /// Makes the two directories where they are missing, durably, and opens the store.
    pub fn create(objects: &Path, staging: &Path, parts: &DiskParts) -> Result<Self, BlobError> {
        for dir in [objects, staging] {
            sys::make_dirs(dir, parts.settings.dir_mode).map_err(BlobError::io("create", dir))?;
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
        let found = objects_dir.metadata().map_err(BlobError::io("stat", objects))?;
        let parts = if sys::is_shared(&found) { &parts.clone().shared() } else { parts };
        Self::new(objects.to_owned(), Staging::Beside(staging.to_owned()), parts)
    }

    /// Opens the store in a directory of blobs alone, as peers share it; temporary files are in `.staging` of it.
    ///
    /// Nothing is looked at or made: the first put makes what is missing, and until then there is no blob. Slashes at
    /// the end of the path don't count.
    pub fn bare(objects: &Path, parts: &DiskParts) -> Result<Self, BlobError> {
        let objects: PathBuf = objects.components().collect();
        let staging = Staging::within(&objects);
        Self::new(objects, staging, parts)
    }

    fn new(objects: PathBuf, staging: Staging, parts: &DiskParts) -> Result<Self, BlobError> {
        let DiskSettings { coordination, lock_wait_ms, .. } = parts.settings;
        let (clock, ids) = (Arc::clone(&parts.clock), Arc::clone(&parts.ids));
        let locks = Arc::new(Locks::new(&objects, coordination, lock_wait_ms, clock, ids)?);
        Ok(Self {
            locks,
            objects,
            staging,
            parts: parts.clone(),
            steps: Steps { faults: None, durability: parts.settings.durability },
            proven: Mutex::default(),
            tainted: Mutex::default(),
            litter_removed: AtomicBool::new(false),
            counts: Counters::default(),
        })
    }

    /// The same store, whose calls on files fail as `faults` says; for tests.
    pub fn with_faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.locks = Arc::new(self.locks.with_faults(Arc::clone(&faults)));
        self.steps.faults = Some(faults);
        self
    }

    /// The directory of files that aren't blobs yet.
    pub fn staging(&self) -> &Path {
        self.staging.path()
    }

    /// The directory of blobs.
    pub fn objects(&self) -> &Path {
        &self.objects
    }

    /// What was done since the store was opened.
    pub fn counts(&self) -> DiskCounts {
        self.counts.read()
    }

    /// Where a blob is, if it is in the store.
    pub fn path_of(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        self.objects.join(&hex[..2]).join(hex)
    }
}

impl DiskStore {
    /// Stores the bytes of a reader, if `check` has nothing against their digest.
    fn put_one(
        &self,
        source: &mut dyn Read,
        check: impl FnOnce(Digest) -> Result<(), BlobError>,
    ) -> Result<(Digest, u64), BlobError> {
        let ground = self.ground()?;
        let (candidate, file) = self.write_temporary(&ground, source, &mut vec![0; BUFFER_BYTES])?;
        let sync = || file.map_or(Ok(()), |file| self.steps.tolerate(self.steps.sync_file(&file)));
        let synced = check(candidate.digest)
            .and_then(|()| sync().map_err(|source| candidate.sync_error(self, source)));
        let stored = synced.and_then(|()| {
            let mut results = self.publish(&ground, std::slice::from_ref(&candidate));
            results.pop().expect("BUG: one candidate has one result")
        });
        if stored.is_err() {
            self.discard(&ground, &candidate);
        }
        stored.map(|()| (candidate.digest, candidate.size))
    }
}

impl BlobStore for DiskStore {
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        self.put_one(source, |_| Ok(()))
    }

    /// The bytes are hashed as they come, and published only if that is their digest.
    fn put_known(
        &self,
        digest: &Digest,
        _size: u64,
        mut source: Box<dyn Read + Send>,
    ) -> Result<(), BlobError> {
        let check = |found| match found == *digest {
            true => Ok(()),
            false => Err(BlobError::Corrupt { digest: *digest, found }),
        };
        self.put_one(&mut source, check).map(drop)
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        let file = self.open_verified(digest)?;
        self.counts.note_get();
        let size = self.stamp_of(&file, digest)?.size;
        Ok(Blob::of_file(Arc::new(file), size))
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        self.is_present(self.open_objects()?.as_ref(), digest)
    }

    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        self.missing_of(digests)
    }
}

/// The filesystem that a directory is on.
fn device(dir: &File, path: &Path) -> Result<u64, BlobError> {
    Ok(dir.metadata().map_err(BlobError::io("stat", path))?.dev())
}
