//! The store: immutable bytes by the SHA-256 of their content.
//!
//! A blob is at its address only after its bytes were synced, and is read only after it was verified. Nothing here
//! writes through the inode of a blob, and nothing here deletes one.

mod adopt;
mod batch;
mod disk;
mod error;
mod faults;
mod hashing;
mod memory;
mod publish;
mod stamp;
mod steps;
mod verify;

#[cfg(test)]
mod contract;
#[cfg(test)]
mod tests;

use std::io::Read;

pub use adopt::Note;
pub use disk::DiskStore;
pub use error::{BlobError, NoteError};
pub use faults::{Fault, FaultPlan, Faults, Step};
pub use hashing::digest_of;
pub use memory::MemoryStore;
pub use stamp::{MemoryStamps, Stamp, Stamps};

use crate::model::Digest;

/// Keeps bytes under their digest.
pub trait BlobStore: Send + Sync {
    /// Stores the bytes of a reader, and returns their digest and size; they are durable when it returns.
    ///
    /// Bytes that are there already are verified, and replaced if they are corrupt.
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError>;

    /// Opens a blob for reading; it is verified before the first byte is handed out.
    fn get(&self, digest: &Digest) -> Result<Box<dyn Read + Send>, BlobError>;

    /// Whether the blob is there, and whole.
    fn has(&self, digest: &Digest) -> Result<bool, BlobError>;

    /// The digests, of those given and in their order, that [`has`](Self::has) denies.
    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        let mut missing = Vec::new();
        for digest in digests {
            if !self.has(digest)? {
                missing.push(*digest);
            }
        }
        Ok(missing)
    }
}
