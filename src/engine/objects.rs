//! The store by itself, for programs that put and get bytes by their digests: a workspace's, or a directory of blobs that
//! peers share.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::{Environment, Result, Workspace};
use crate::blobs::{BlobStore, DiskStore, MemoryStamps};
use crate::model::Digest;

pub use crate::blobs::{BackupLease, Coordination, DiskSettings, Durability, Stored};

/// What a store holds, and what this process did with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStats {
    /// How many blobs there are.
    pub blobs: u64,
    /// The sum of their sizes.
    pub bytes: u64,
    /// How many were put since the store was opened, those that were there already included.
    pub puts: u64,
    /// How many were handed out since.
    pub gets: u64,
}

/// Bytes by their digests.
pub struct ObjectStore {
    disk: DiskStore,
}

impl ObjectStore {
    /// The store in a directory of blobs; nothing is made before the first put.
    pub fn bare(objects: &Path, settings: DiskSettings, env: &Environment) -> Result<Self> {
        let parts = env.store_parts(settings, Arc::new(MemoryStamps::default()));
        Ok(Self { disk: DiskStore::bare(objects, &parts)? })
    }

    /// The store of a workspace, with settings of its own.
    pub fn of_workspace(workspace: &Workspace, settings: DiskSettings) -> Result<Self> {
        Ok(Self { disk: workspace.another_store(settings)? })
    }

    /// Stores what a reader holds; its digest and size.
    pub fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64)> {
        Ok(self.disk.put(source)?)
    }

    /// Opens a blob, verified before the first byte.
    pub fn get(&self, digest: &Digest) -> Result<Box<dyn Read + Send>> {
        Ok(self.disk.get(digest)?)
    }

    /// Copies a blob into an empty file and verifies it on its way; if that fails, the file is worth nothing.
    pub fn copy_to(&self, digest: &Digest, target: &File, path: &Path) -> Result<u64> {
        Ok(self.disk.copy_to(digest, target, path)?)
    }

    /// Whether a blob is there; it isn't read.
    pub fn has(&self, digest: &Digest) -> Result<bool> {
        Ok(self.disk.has(digest)?)
    }

    /// Those digests, in their order and each once, of which no blob is there.
    pub fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>> {
        Ok(self.disk.find_missing(digests)?)
    }

    /// Every blob, by its digest.
    pub fn inventory(&self) -> Result<Vec<Stored>> {
        let mut stored = self.disk.inventory()?;
        stored.sort_by_key(|blob| blob.digest);
        Ok(stored)
    }

    /// Removes a blob that was not put after a time, in milliseconds since 1970; false if nothing was removed.
    pub fn remove(&self, digest: &Digest, if_unmodified_since_ms: i64) -> Result<bool> {
        Ok(self.disk.remove(digest, Some(if_unmodified_since_ms))?)
    }

    /// Keeps every blob where it is until the lease ends.
    pub fn begin_backup(&self) -> Result<BackupLease> {
        Ok(self.disk.begin_backup()?)
    }

    /// Counts.
    pub fn stats(&self) -> Result<ObjectStats> {
        let stored = self.disk.inventory()?;
        let counts = self.disk.counts();
        let bytes = stored.iter().map(|blob| blob.size).sum();
        Ok(ObjectStats { blobs: stored.len() as u64, bytes, puts: counts.puts, gets: counts.gets })
    }
}
