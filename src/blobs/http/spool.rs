use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::blobs::BlobError;
use crate::blobs::hashing::{BUFFER_BYTES, Hasher};
use crate::model::Digest;
use crate::sys;

/// Bytes in a temporary file without a name, and what they are.
pub(super) struct Spool {
    file: Arc<File>,
    pub(super) digest: Digest,
    pub(super) size: u64,
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
                let size = hasher.bytes();
                return Ok(Self { file: Arc::new(file), digest: hasher.finish(), size });
            }
            hasher.update(&buffer[..count]);
            let written = file.write_all(&buffer[..count]);
            written.map_err(BlobError::io("write to a temporary file in", dir))?;
        }
    }

    /// The bytes from `start` on, `length` of them.
    pub(super) fn range(&self, start: u64, length: u64) -> Range {
        Range { file: Arc::clone(&self.file), at: start, end: start.saturating_add(length) }
    }

    /// All bytes.
    pub(super) fn reader(&self) -> Range {
        self.range(0, self.size)
    }
}

/// Reads a part of a spool; others of the same spool don't move it.
pub(super) struct Range {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Range {
    pub(super) fn length(&self) -> u64 {
        self.end - self.at
    }
}

impl Read for Range {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.length()).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
