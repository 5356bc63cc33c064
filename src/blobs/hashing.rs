use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;

use sha2::{Digest as _, Sha256};

use crate::model::Digest;

/// How much is read at once: more doesn't measure faster, and this much stays in a core's cache.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The digest of bytes in memory.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}

/// A digest in the making, with the count of bytes that went in.
#[derive(Default, Clone)]
pub(super) struct Hasher {
    state: Sha256,
    bytes: u64,
}

impl Hasher {
    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// How many bytes were taken.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of all bytes.
    pub(super) fn finish(self) -> Digest {
        Digest::from_bytes(self.state.finalize().into())
    }
}

/// Which side of a copy failed.
#[derive(Debug)]
pub(super) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// The digest and size of a file's bytes, from its start; the file's offset stays where it is.
pub(super) fn hash_file(file: &File) -> io::Result<(Digest, u64)> {
    copy_hashed(file, &mut |_| Ok(())).map_err(|error| match error {
        CopyError::Read(error) | CopyError::Write(error) => error,
    })
}

/// As [`hash_file`], and hands the bytes on while they pass.
pub(super) fn copy_hashed(
    file: &File,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(Digest, u64), CopyError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match uninterrupted(|| file.read_at(&mut buffer, hasher.bytes())).map_err(CopyError::Read)? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                sink(&buffer[..count]).map_err(CopyError::Write)?;
            }
        }
    }
    let size = hasher.bytes();
    Ok((hasher.finish(), size))
}

/// Reads until the buffer is full or the source ends; returns how much that was.
pub(super) fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match uninterrupted(|| source.read(&mut buffer[filled..]))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Reads once, however often a signal comes between.
fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
