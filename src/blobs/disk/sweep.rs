//! What a sweep needs: what there is, and how one blob goes. Which ones may go is the caller's business.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::DiskStore;
use crate::blobs::locks::Lock;
use crate::blobs::{BackupLease, BlobError};
use crate::model::Digest;
use crate::sys::{self, Facts};

/// A blob as an inventory lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The address.
    pub digest: Digest,
    /// When it was last put, in milliseconds since 1970, rounded down.
    pub mtime_ms: i64,
    /// The size in bytes.
    pub size: u64,
}

impl DiskStore {
    /// Lists the regular files at addresses, unverified; whatever else is in the directory is nobody's here.
    ///
    /// What can't be read is left out: a sweep keeps what it doesn't know.
    ///
    /// # Errors
    /// `Io`, if the directory of blobs itself can't be listed.
    pub fn inventory(&self) -> Result<Vec<Stored>, BlobError> {
        let names = match sys::names_in(&self.objects_dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BlobError::io("list", &self.objects)(error)),
        };
        let mut stored = Vec::new();
        for name in names.into_iter().filter(|name| is_fan_out(name)) {
            if let Err(error) = self.list_fan_out(&name, &mut stored) {
                let path = self.objects.join(&name);
                tracing::warn!(path = %path.display(), %error, "left out of an inventory");
            }
        }
        Ok(stored)
    }

    fn list_fan_out(&self, name: &OsStr, stored: &mut Vec<Stored>) -> io::Result<()> {
        let dir = sys::open_dir_at(&self.objects_dir, name)?;
        for entry in sys::names_in(&dir)? {
            let digest = entry.to_str().filter(|hex| name.to_str().is_some_and(|name| hex.starts_with(name)));
            let Some(digest) = digest.and_then(|hex| hex.parse::<Digest>().ok()) else { continue };
            if let Ok(facts) = sys::facts_at(&dir, &entry)
                && facts.is_file()
            {
                stored.push(Stored { digest, mtime_ms: mtime_ms(&facts), size: facts.size });
            }
        }
        Ok(())
    }

    /// Removes a blob, and tells whether it was removed: not if it is gone already, if somebody makes a backup, or if it
    /// was put after `if_unmodified_since_ms` (milliseconds since 1970, compared with its mtime rounded down).
    ///
    /// Without a bound a live blob goes as well: that nothing refers to it is the caller's to know. Nothing is synced; a
    /// blob may come back after a power cut.
    ///
    /// # Errors
    /// `Uncoordinated`; `Locked`; `LockLost` and `Swapped`, before anything was removed.
    pub fn remove(&self, digest: &Digest, if_unmodified_since_ms: Option<i64>) -> Result<bool, BlobError> {
        self.remove_if(digest, if_unmodified_since_ms, &mut || true)
    }

    /// As [`remove`](Self::remove), and only if `is_garbage` says so under the lock of the address.
    pub fn remove_if(
        &self,
        digest: &Digest,
        if_unmodified_since_ms: Option<i64>,
        is_garbage: &mut dyn FnMut() -> bool,
    ) -> Result<bool, BlobError> {
        self.locks.require_files()?;
        let lock = self.locks.lock(digest)?;
        let gate = self.locks.gate()?;
        let removed = !self.locks.backup_is_live(&gate)?
            && is_garbage()
            && self.remove_locked(digest, if_unmodified_since_ms, [&gate, &lock])?;
        gate.release()?;
        lock.release()?;
        Ok(removed)
    }

    /// Begins a backup: until it ends, nobody removes a blob of this store; waits for another backup to end.
    pub fn begin_backup(&self) -> Result<BackupLease, BlobError> {
        self.locks.begin_backup()
    }

    fn remove_locked(
        &self,
        digest: &Digest,
        bound_ms: Option<i64>,
        locks: [&Lock<'_>; 2],
    ) -> Result<bool, BlobError> {
        let hex = OsString::from(digest.to_hex());
        let Some(dir) = self.open_fan_out(fan_out_of(&hex))? else { return Ok(false) };
        let Some(judged) = self.stat_blob(&dir, &hex, digest)? else { return Ok(false) };
        if bound_ms.is_some_and(|bound_ms| mtime_ms(&judged) > bound_ms) {
            return Ok(false);
        }
        for lock in locks {
            lock.confirm()?;
        }
        self.check_in_place(&dir, fan_out_of(&hex))?;
        // Somebody who knows no locks may have put or freshened it.
        if self.stat_blob(&dir, &hex, digest)? != Some(judged) {
            return Ok(false);
        }
        match self.steps.sweep(&dir, &hex) {
            Ok(()) => Ok(true),
            Err(source) => self.explain_unremoved(&dir, &hex, digest, source),
        }
    }

    /// Looks at an address: none, if nothing is there.
    fn stat_blob(&self, dir: &File, hex: &OsStr, digest: &Digest) -> Result<Option<Facts>, BlobError> {
        match sys::facts_at(dir, hex) {
            Ok(facts) if facts.is_file() => Ok(Some(facts)),
            Ok(_) => Err(BlobError::NotAFile { digest: *digest }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BlobError::io("stat", &self.path_of(digest))(error)),
        }
    }

    /// Makes sure that the directories of an address are the open ones.
    pub(super) fn check_in_place(&self, fan_out: &File, name: &OsStr) -> Result<(), BlobError> {
        let path = self.objects.join(name);
        let objects = self.objects.symlink_metadata().map(|found| (found.dev(), found.ino()));
        let below = sys::facts_at(&self.objects_dir, name).map(|found| (found.device, found.inode));
        for (open, found, path) in [(&self.objects_dir, objects, &self.objects), (fan_out, below, &path)] {
            let expected = open.metadata().map_err(BlobError::io("stat", path))?;
            if !found.is_ok_and(|found| found == (expected.dev(), expected.ino())) {
                return Err(BlobError::Swapped { path: path.clone() });
            }
        }
        Ok(())
    }

    /// What it means that an unlink failed: nothing, if the blob is gone all the same.
    fn explain_unremoved(
        &self,
        dir: &File,
        hex: &OsStr,
        digest: &Digest,
        source: io::Error,
    ) -> Result<bool, BlobError> {
        match self.stat_blob(dir, hex, digest) {
            Ok(None) => Ok(false),
            Ok(Some(_)) => Err(BlobError::io("remove", &self.path_of(digest))(source)),
            Err(probe) => {
                let source = io::Error::new(source.kind(), format!("{source}; then: {probe}"));
                Err(BlobError::io("remove", &self.path_of(digest))(source))
            }
        }
    }
}

fn mtime_ms(facts: &Facts) -> i64 {
    facts.mtime_ns.div_euclid(1_000_000)
}

fn fan_out_of(hex: &OsStr) -> &OsStr {
    OsStr::new(hex.to_str().map_or("", |hex| &hex[..2]))
}

fn is_fan_out(name: &OsStr) -> bool {
    let digits = |name: &str| name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    name.len() == 2 && name.to_str().is_some_and(digits)
}
