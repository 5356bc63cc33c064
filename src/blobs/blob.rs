use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::sys;

/// The bytes of a blob, verified and open for reading: they stay whatever happens to the store.
#[derive(Debug, Clone)]
pub struct Blob {
    bytes: Bytes,
    size: u64,
}

#[derive(Debug, Clone)]
enum Bytes {
    File(Arc<File>),
    Memory(Arc<[u8]>),
}

impl Blob {
    /// The bytes of a file that nobody changes.
    pub(super) fn of_file(file: Arc<File>, size: u64) -> Self {
        Self { bytes: Bytes::File(file), size }
    }

    /// Bytes in memory.
    pub(super) fn of_memory(bytes: Arc<[u8]>) -> Self {
        Self { size: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads the bytes from the start; other readers of the blob don't move this one.
    pub fn reader(&self) -> BlobReader {
        self.range(0, self.size)
    }

    /// Reads `length` of the bytes, from `start` on.
    pub(super) fn range(&self, start: u64, length: u64) -> BlobReader {
        BlobReader { blob: self.clone(), at: start, end: start.saturating_add(length).min(self.size) }
    }

    /// A file with the bytes, to be read by offset; for bytes in memory one without a name in `dir`.
    ///
    /// # Errors
    /// What the system says to the new file, or to one more descriptor.
    pub fn into_file(self, dir: &Path) -> io::Result<File> {
        match self.bytes {
            // Opened anew, for an offset of its own.
            Bytes::File(file) => Arc::try_unwrap(file).or_else(|shared| sys::reopen(&shared)),
            Bytes::Memory(bytes) => {
                let mut file = sys::create_unnamed(dir)?;
                file.write_all(&bytes)?;
                file.rewind()?;
                Ok(file)
            }
        }
    }
}

/// Reads a blob, or a part of it.
#[derive(Debug)]
pub struct BlobReader {
    blob: Blob,
    at: u64,
    end: u64,
}

impl BlobReader {
    /// How many bytes are still to come.
    pub(super) fn length(&self) -> u64 {
        self.end - self.at
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.length()).unwrap_or(usize::MAX));
        let count = match &self.blob.bytes {
            Bytes::File(file) => file.read_at(&mut buffer[..most], self.at)?,
            Bytes::Memory(bytes) => {
                // In memory: its offsets are sizes.
                let rest = bytes.get(usize::try_from(self.at).unwrap_or(usize::MAX)..).unwrap_or_default();
                let count = most.min(rest.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                count
            }
        };
        self.at += count as u64;
        Ok(count)
    }
}
