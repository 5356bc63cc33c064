use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;

use crate::blobs::hashing::{BUFFER_BYTES, Hasher};
use crate::blobs::{Blob, BlobError};
use crate::model::Digest;
use crate::sys;

/// Bytes in a temporary file without a name, and what they are.
pub(super) struct Spool {
    pub(super) blob: Blob,
    pub(super) digest: Digest,
}

impl Spool {
    /// Takes all that `read` gives, which is over with 0 bytes.
    pub(super) fn fill(
        dir: &Path,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, BlobError>,
    ) -> Result<Self, BlobError> {
        let mut file = sys::create_unnamed(dir).map_err(BlobError::io("create a temporary file in", dir))?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = read(&mut buffer)?;
            if count == 0 {
                // For whoever takes the file itself.
                file.rewind().map_err(BlobError::io("rewind a temporary file in", dir))?;
                let size = hasher.bytes();
                return Ok(Self { blob: Blob::of_file(Arc::new(file), size), digest: hasher.finish() });
            }
            hasher.update(&buffer[..count]);
            let written = file.write_all(&buffer[..count]);
            written.map_err(BlobError::io("write to a temporary file in", dir))?;
        }
    }
}
