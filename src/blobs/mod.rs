//! The store: immutable bytes by the SHA-256 of their content.
//!
//! A blob is at its address only after its bytes were synced, and is read only after it was verified. Nothing here
//! writes through the inode of a blob, and only an explicit sweep removes one.

mod blob;
mod combined;
mod disk;
mod error;
mod faults;
mod hashing;
mod http;
mod locks;
mod memory;
mod parallel;
mod pausing;

#[cfg(test)]
pub(crate) mod contract;

use std::collections::HashSet;
use std::io::Read;

pub use blob::{Blob, BlobReader};
pub use combined::{CombinedSettings, CombinedStore, RemoteTally, Uploaded};
pub use disk::{
    DiskCounts, DiskParts, DiskSettings, DiskStore, Durability, MemoryStamps, Note, Stamp, Stamps, Stored,
};
pub use error::{BlobError, NoteError, TransportFault};
pub use faults::{Fault, FaultPlan, Faults, Step};
pub use hashing::digest_of;
pub use http::{HttpOptions, HttpStore};
pub use locks::{BackupLease, Coordination};
pub use memory::MemoryStore;
pub use pausing::PausingStore;

use crate::model::Digest;

/// Keeps bytes under their digest.
pub trait BlobStore: Send + Sync {
    /// Stores the bytes of a reader, and returns their digest and size; they are durable when it returns.
    ///
    /// Bytes that are there already are verified, and replaced if they are corrupt.
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError>;

    /// Stores bytes whose digest and size the caller knows.
    ///
    /// # Errors
    /// `Corrupt` if the source has other bytes: nothing is at the digest's address then that was not there before.
    fn put_known(
        &self,
        digest: &Digest,
        _size: u64,
        mut source: Box<dyn Read + Send>,
    ) -> Result<(), BlobError> {
        let (found, _) = self.put(&mut source)?;
        if found == *digest { Ok(()) } else { Err(BlobError::Corrupt { digest: *digest, found }) }
    }

    /// Opens a blob; it is verified before the first byte is handed out.
    fn open(&self, digest: &Digest) -> Result<Blob, BlobError>;

    /// Opens a blob for reading, verified as by [`open`](Self::open).
    fn get(&self, digest: &Digest) -> Result<Box<dyn Read + Send>, BlobError> {
        Ok(Box::new(self.open(digest)?.reader()))
    }

    /// Whether a blob is at this address. Nothing is read: a corrupt one is there, too.
    fn has(&self, digest: &Digest) -> Result<bool, BlobError>;

    /// The digests, of those given and in their order, that [`has`](Self::has) denies; each once.
    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        let mut asked = HashSet::with_capacity(digests.len());
        let mut missing = Vec::new();
        for digest in digests {
            if asked.insert(*digest) && !self.has(digest)? {
                missing.push(*digest);
            }
        }
        Ok(missing)
    }
}
