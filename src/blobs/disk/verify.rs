use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;

use super::ground::{Dir, fan_out_name};
use super::publish::fan_out_of;
use super::{DiskStore, Stamp};
use crate::blobs::BlobError;
use crate::blobs::hashing::CopyError;
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
        self.verify(&file, digest).map_err(|error| self.after_refused_read(digest, error))?;
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

    /// Reads the whole blob, whatever its stamp says, and records a new one.
    ///
    /// # Errors
    /// As [`open_verified`](Self::open_verified), and what reading says.
    pub fn check(&self, digest: &Digest) -> Result<(), BlobError> {
        self.prove(&self.open_blob(digest)?, digest)
    }

    /// Whether [`open_verified`](Self::open_verified) would have to read the whole blob first.
    ///
    /// # Errors
    /// `Missing`, if the blob isn't there.
    pub fn needs_hashing(&self, digest: &Digest) -> Result<bool, BlobError> {
        let stamp = self.stamp_of(&self.open_blob(digest)?, digest)?;
        Ok(self.parts.stamps.stamp(digest) != Some(stamp))
    }

    /// The size of what is at an address, if there is a regular file; nothing is read.
    pub fn size(&self, digest: &Digest) -> Result<Option<u64>, BlobError> {
        match self.open_blob(digest).and_then(|file| self.stamp_of(&file, digest)) {
            Ok(stamp) => Ok(Some(stamp.size)),
            Err(BlobError::Missing { .. } | BlobError::NotAFile { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Copies a blob's bytes to the start of an empty file, hashed on their way unless a stamp speaks for them; returns
    /// their count.
    ///
    /// # Errors
    /// As [`open_verified`](Self::open_verified); what is in `target` then is worth nothing. `path` names it in errors.
    pub fn copy_to(&self, digest: &Digest, target: &File, path: &Path) -> Result<u64, BlobError> {
        let source = self.open_blob(digest)?;
        let before = self.stamp_of(&source, digest)?;
        if self.parts.stamps.stamp(digest) == Some(before) {
            sys::copy_bytes(&source, target, u64::MAX).map_err(BlobError::io("write", path))?;
        } else {
            let mut sink = |bytes: &[u8]| self.steps.write(target, bytes);
            let (found, _) = self.steps.copy_hashed(&source, &mut sink).map_err(|error| match error {
                CopyError::Write(error) => BlobError::io("write", path)(error),
                CopyError::Read(error) => {
                    self.after_refused_read(digest, BlobError::io("read", &self.path_of(digest))(error))
                }
            })?;
            self.compare(digest, found)?;
            self.note_proof(&source, digest, before)?;
        }
        self.counts.note_get();
        Ok(before.size)
    }

    /// Proves that an open file holds the bytes of `digest`: by its stamp, or by hashing it.
    pub(super) fn verify(&self, file: &File, digest: &Digest) -> Result<(), BlobError> {
        if self.parts.stamps.stamp(digest) == Some(self.stamp_of(file, digest)?) {
            return Ok(());
        }
        self.prove(file, digest)
    }

    /// Proves by hashing that an open file holds the bytes of `digest`, and records its stamp.
    pub(super) fn prove(&self, file: &File, digest: &Digest) -> Result<(), BlobError> {
        for _ in 0..ATTEMPTS {
            let before = self.stamp_of(file, digest)?;
            let hashed = self.steps.hash(file);
            let (found, _) = hashed.map_err(BlobError::io("read", &self.path_of(digest)))?;
            if self.stamp_of(file, digest)? != before {
                continue;
            }
            self.compare(digest, found)?;
            self.parts.stamps.record(&[(*digest, before)]);
            return Ok(());
        }
        Err(BlobError::Unsettled { digest: *digest })
    }

    fn compare(&self, digest: &Digest, found: Digest) -> Result<(), BlobError> {
        if found == *digest {
            return Ok(());
        }
        tracing::error!(%digest, %found, "a blob is corrupt");
        Err(BlobError::Corrupt { digest: *digest, found })
    }

    /// Records the stamp of a file that was read whole, unless it changed meanwhile.
    fn note_proof(&self, file: &File, digest: &Digest, before: Stamp) -> Result<(), BlobError> {
        if self.stamp_of(file, digest)? == before {
            self.parts.stamps.record(&[(*digest, before)]);
        }
        Ok(())
    }

    /// Opens whatever is at an address, unverified.
    pub(super) fn open_blob(&self, digest: &Digest) -> Result<File, BlobError> {
        let missing = || BlobError::Missing { digest: *digest };
        let objects = self.open_objects()?.ok_or_else(missing)?;
        let dir = self.open_fan_out(&objects, fan_out_of(digest))?.ok_or_else(missing)?;
        self.steps.open_blob(&dir.file, OsStr::new(&digest.to_hex())).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(),
            _ if sys::is_symlink(&error) => BlobError::NotAFile { digest: *digest },
            _ => {
                let refused = BlobError::io("open", &self.path_of(digest))(error);
                self.after_refused_read(digest, refused)
            }
        })
    }

    /// What a refused read comes to: a blob that is gone by now is missing, and only one that is there is unavailable.
    fn after_refused_read(&self, digest: &Digest, refused: BlobError) -> BlobError {
        if !matches!(refused, BlobError::Io { .. }) {
            return refused;
        }
        match self.probe(digest) {
            Ok(true) => refused,
            Ok(false) => BlobError::Missing { digest: *digest },
            Err(probe) => BlobError::Unknown { digest: *digest, source: Box::new(refused), probe },
        }
    }

    /// Whether something is at an address, found out anew.
    fn probe(&self, digest: &Digest) -> io::Result<bool> {
        let fan_out = || {
            let dir = sys::open_dir_at(
                &sys::open_dir(&self.objects)?,
                OsStr::new(&fan_out_name(fan_out_of(digest))),
            )?;
            self.steps.probe(&dir, OsStr::new(&digest.to_hex()))
        };
        match fan_out() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a fan-out directory, if there is one.
    pub(super) fn open_fan_out(&self, objects: &File, number: u8) -> Result<Option<Dir>, BlobError> {
        let name = OsString::from(fan_out_name(number));
        let path = self.objects.join(&name);
        match sys::open_dir_at(objects, &name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BlobError::open_dir(&path)(error)),
            Ok(dir) => Dir::new(dir, path).map(Some),
        }
    }

    /// Whether a regular file is at an address of the directory of blobs, if there is one.
    pub(super) fn is_present(&self, objects: Option<&File>, digest: &Digest) -> Result<bool, BlobError> {
        let Some(objects) = objects else { return Ok(false) };
        match self.open_fan_out(objects, fan_out_of(digest))? {
            Some(dir) => self.is_file_in(&dir, digest),
            None => Ok(false),
        }
    }

    /// Whether a regular file is at an address in its fan-out directory.
    pub(super) fn is_file_in(&self, dir: &Dir, digest: &Digest) -> Result<bool, BlobError> {
        match self.steps.probe(&dir.file, OsStr::new(&digest.to_hex())) {
            Ok(found) => Ok(found.is_file()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(BlobError::io("look for", &self.path_of(digest))(error)),
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
