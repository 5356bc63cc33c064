use std::ffi::OsStr;
use std::fs::File;
use std::io;

use super::{DiskStore, Stamp};
use crate::blobs::BlobError;
use crate::blobs::hashing::hash_file;
use crate::model::Digest;
use crate::sys;

/// How often a blob may change its stamp while it is hashed (another process freshens it) before that is an error.
const ATTEMPTS: u32 = 4;

impl DiskStore {
    /// Opens a blob's file for reading, verified by its stamp, or else by hashing it once and recording a stamp.
    ///
    /// # Errors
    /// `Missing`; `Corrupt` (logged with both digests) and `NotAFile`, whose bytes are never handed out.
    pub fn open_verified(&self, digest: &Digest) -> Result<File, BlobError> {
        let file = self.open_blob(digest)?;
        self.verify(&file, digest)?;
        Ok(file)
    }

    /// Whether the blob is there and its bytes are right: what [`open_verified`](Self::open_verified) would say.
    pub fn is_whole(&self, digest: &Digest) -> Result<bool, BlobError> {
        match self.open_verified(digest) {
            Ok(_) => Ok(true),
            Err(BlobError::Missing { .. } | BlobError::Corrupt { .. } | BlobError::NotAFile { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether [`open_verified`](Self::open_verified) would have to read the whole blob first.
    ///
    /// # Errors
    /// `Missing`, if the blob isn't there.
    pub fn needs_hashing(&self, digest: &Digest) -> Result<bool, BlobError> {
        let stamp = self.stamp_of(&self.open_blob(digest)?, digest)?;
        Ok(self.parts.stamps.stamp(digest) != Some(stamp))
    }

    /// Proves that an open file holds the bytes of `digest`.
    pub(super) fn verify(&self, file: &File, digest: &Digest) -> Result<(), BlobError> {
        for _ in 0..ATTEMPTS {
            let before = self.stamp_of(file, digest)?;
            if self.parts.stamps.stamp(digest) == Some(before) {
                return Ok(());
            }
            let (found, _) = hash_file(file).map_err(BlobError::io("read", &self.path_of(digest)))?;
            if self.stamp_of(file, digest)? != before {
                continue;
            }
            if found != *digest {
                tracing::error!(%digest, %found, "a blob is corrupt");
                return Err(BlobError::Corrupt { digest: *digest, found });
            }
            self.parts.stamps.record(&[(*digest, before)]);
            return Ok(());
        }
        Err(BlobError::Unsettled { digest: *digest })
    }

    /// Opens whatever is at an address, unverified.
    pub(super) fn open_blob(&self, digest: &Digest) -> Result<File, BlobError> {
        let missing = BlobError::Missing { digest: *digest };
        let hex = digest.to_hex();
        let Some(dir) = self.open_fan_out(OsStr::new(&hex[..2]))? else { return Err(missing) };
        sys::open_file_at(&dir, OsStr::new(&hex)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing,
            _ if sys::is_symlink(&error) => BlobError::NotAFile { digest: *digest },
            _ => BlobError::io("open", &self.path_of(digest))(error),
        })
    }

    /// Opens a fan-out directory, if there is one.
    pub(super) fn open_fan_out(&self, name: &OsStr) -> Result<Option<File>, BlobError> {
        match sys::open_dir_at(&self.objects_dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some).map_err(BlobError::open_dir(&self.objects.join(name))),
        }
    }

    /// The stamp of a blob's open file, which must be a regular one.
    pub(super) fn stamp_of(&self, file: &File, digest: &Digest) -> Result<Stamp, BlobError> {
        let metadata = file.metadata().map_err(BlobError::io("stat", &self.path_of(digest)))?;
        if metadata.is_file() {
            Ok(Stamp::of(&metadata))
        } else {
            Err(BlobError::NotAFile { digest: *digest })
        }
    }
}
