//! What a sweep needs: what there is, and how one blob goes. Which ones may go is the caller's business.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;

use super::DiskStore;
use super::ground::{Dir, is_fan_out};
use super::publish::fan_out_of;
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
        let Some(objects) = self.open_objects()? else { return Ok(Vec::new()) };
        let names = sys::names_in(&objects).map_err(BlobError::io("list", &self.objects))?;
        let mut stored = Vec::new();
        for name in names.into_iter().filter(|name| is_fan_out(name)) {
            if let Err(error) = list_fan_out(&objects, &name, &mut stored) {
                let path = self.objects.join(&name);
                tracing::warn!(path = %path.display(), %error, "left out of an inventory");
            }
        }
        Ok(stored)
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
        let Some(objects) = self.open_objects()? else { return Ok(false) };
        let objects = Dir::new(objects, self.objects.clone())?;
        let lock = self.locks.lock(digest)?;
        let gate = self.locks.gate()?;
        let removed = !self.locks.backup_is_live(&gate)?
            && is_garbage()
            && self.remove_locked(&objects, digest, if_unmodified_since_ms, [&gate, &lock])?;
        gate.release()?;
        lock.release()?;
        Ok(removed)
    }

    /// Begins a backup: until it ends, nobody removes a blob of this store; waits for another backup to end.
    ///
    /// A store that has nothing yet gets its directory.
    pub fn begin_backup(&self) -> Result<BackupLease, BlobError> {
        self.ground()?;
        self.locks.begin_backup()
    }

    fn remove_locked(
        &self,
        objects: &Dir,
        digest: &Digest,
        bound_ms: Option<i64>,
        locks: [&Lock<'_>; 2],
    ) -> Result<bool, BlobError> {
        let hex = OsString::from(digest.to_hex());
        let Some(fan_out) = self.open_fan_out(&objects.file, fan_out_of(digest))? else { return Ok(false) };
        let dir = &fan_out.file;
        let Some(judged) = self.stat_blob(dir, &hex, digest)? else { return Ok(false) };
        if bound_ms.is_some_and(|bound_ms| mtime_ms(&judged) > bound_ms) {
            return Ok(false);
        }
        for lock in locks {
            lock.confirm()?;
        }
        objects.check_at_path()?;
        fan_out.check_in(objects)?;
        // Somebody who knows no locks may have put or freshened it.
        if self.stat_blob(dir, &hex, digest)? != Some(judged) {
            return Ok(false);
        }
        match self.steps.sweep(dir, &hex) {
            Ok(()) => Ok(true),
            Err(source) => self.explain_unremoved(dir, &hex, digest, source),
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

fn list_fan_out(objects: &File, name: &OsStr, stored: &mut Vec<Stored>) -> io::Result<()> {
    let dir = sys::open_dir_at(objects, name)?;
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

fn mtime_ms(facts: &Facts) -> i64 {
    facts.mtime_ns.div_euclid(1_000_000)
}
