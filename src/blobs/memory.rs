use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Blob, BlobError, BlobStore, digest_of};
use crate::model::Digest;

/// Keeps blobs in memory, for tests of what stands above.
#[derive(Debug, Default)]
pub struct MemoryStore(RwLock<HashMap<Digest, Arc<[u8]>>>);

impl BlobStore for MemoryStore {
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).map_err(|source| BlobError::Source { source })?;
        let (digest, size) = (digest_of(&bytes), bytes.len() as u64);
        self.0.write().entry(digest).or_insert_with(|| bytes.into());
        Ok((digest, size))
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        let blobs = self.0.read();
        let bytes = blobs.get(digest).ok_or(BlobError::Missing { digest: *digest })?;
        Ok(Blob::of_memory(Arc::clone(bytes)))
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        Ok(self.0.read().contains_key(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::contract;

    #[test]
    fn the_store_in_memory_keeps_the_contract() {
        contract::holds(MemoryStore::default);
    }
}
