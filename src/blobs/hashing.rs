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

/// The bytes of a reader were not those that were promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not those of the digest that was promised")]
pub struct WrongBytes {
    /// What the bytes hash to, as far as they were read.
    pub found: Digest,
}

/// Hands on the bytes of a reader, and fails with [`WrongBytes`] instead of ending, unless they are what was promised.
///
/// Where the size is promised, too, the failure comes in the place of the last bytes: who counts them never gets all.
pub struct Promised<R> {
    source: R,
    digest: Digest,
    size: Option<u64>,
    hasher: Hasher,
}

impl<R: Read> Promised<R> {
    /// Bytes that should have a digest and, if it is known, a size.
    pub fn new(source: R, digest: Digest, size: Option<u64>) -> Self {
        Self { source, digest, size, hasher: Hasher::default() }
    }

    fn read_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.source.read(buffer))
    }

    fn is_kept(&mut self) -> io::Result<()> {
        let found = self.hasher.clone().finish();
        let more = self.size.is_some() && self.read_on(&mut [0])? > 0;
        if found != self.digest || more {
            return Err(io::Error::new(ErrorKind::InvalidData, WrongBytes { found }));
        }
        Ok(())
    }
}

impl<R: Read> Read for Promised<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.size.map_or(u64::MAX, |size| size - self.hasher.bytes());
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.read_on(&mut buffer[..most])?;
        self.hasher.update(&buffer[..count]);
        let at_promised_end = self.size == Some(self.hasher.bytes());
        if at_promised_end || count == 0 && !buffer.is_empty() {
            self.is_kept()?;
        }
        Ok(count)
    }
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
pub(super) fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was read before the end or the failure, and the digest that the failure names.
    fn read_all(mut reader: impl Read) -> (Vec<u8>, Option<Digest>) {
        let mut bytes = Vec::new();
        let failed = reader.read_to_end(&mut bytes).err();
        (bytes, failed.map(|error| error.get_ref().unwrap().downcast_ref::<WrongBytes>().unwrap().found))
    }

    #[test]
    fn promised_bytes_come_whole_and_others_never_come_whole() {
        for size in [Some(5), None] {
            let promised = |source: &'static [u8]| Promised::new(source, digest_of(b"right"), size);
            assert_eq!(read_all(promised(b"right")), (b"right".to_vec(), None), "{size:?}");
            assert_eq!(read_all(promised(b"wrong")).1, Some(digest_of(b"wrong")), "{size:?}");
            assert!(read_all(promised(b"righ")).1.is_some(), "{size:?}");
            assert!(read_all(promised(b"right and more")).1.is_some(), "{size:?}");
        }
        let counted = Promised::new(&b"wrong"[..], digest_of(b"right"), Some(5));
        assert!(read_all(counted).0.len() < 5, "who counts must not get all");
        let nothing = |size| Promised::new(io::empty(), digest_of(b""), size);
        assert_eq!((read_all(nothing(Some(0))), read_all(nothing(None))), ((vec![], None), (vec![], None)));
    }
}
